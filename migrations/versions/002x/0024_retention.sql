-- What is removed when it is old enough: where that is counted, and what must not go. All of it may be there already. Every step may have been done before.

-- == What was removed ==
-- One row for each kind of thing; written in the transaction that removes. `oldest_at`: the oldest that was left then.
CREATE TABLE IF NOT EXISTS retention_state (
    kind       text PRIMARY KEY CHECK (length(kind) BETWEEN 1 AND 64),
    removed    bigint NOT NULL DEFAULT 0 CHECK (removed >= 0),
    oldest_at  timestamptz,
    kept_bytes bigint CHECK (kept_bytes >= 0),
    looked_at  timestamptz NOT NULL
);

-- == The ledger's history ==
-- It is still neither changed nor removed, but by the retention, and by that only what is in the sums: in those by week,
-- which quotas read, and in those by day, which reports read.
CREATE OR REPLACE FUNCTION given_back_is_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('gpu_dev.retention', true) = 'on'
       AND NOT EXISTS (SELECT FROM given_back b WHERE b.allocation_id = OLD.id)
       AND NOT EXISTS (SELECT FROM usage_pending p WHERE p.reservation_id = coalesce(OLD.booking_id, OLD.reservation_id)) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'row % of the ledger is closed', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'allocations_closed', TABLE = 'allocations',
              HINT = 'What was given back is history: it is not changed, and removed by the retention alone.';
END $$;

-- == The audit log, until it is partitioned ==
-- By the next revision all of `events` becomes the first partition, up to a month that is not near. The constraint says
-- so beforehand, and is checked while the service goes on: then that revision has nothing to look through.
-- A lock that is not had at once would keep everybody waiting who comes later: it is tried for a moment at a time.
DO $$
BEGIN
    FOR try IN 1..600 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE events, reservations IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF try = 600 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;
ALTER TABLE events DROP CONSTRAINT IF EXISTS events_reservation_id_fkey, DROP CONSTRAINT IF EXISTS events_before_partitions;
DO $$
DECLARE
    until timestamptz;
BEGIN
    SELECT date_trunc('month', greatest(max(at) + interval '1 month', statement_timestamp() + interval '2 months'), 'UTC')
    INTO until FROM events;
    EXECUTE format('ALTER TABLE events ADD CONSTRAINT events_before_partitions CHECK (at < %L) NOT VALID', until);
END $$;
