-- What is removed when it is old enough: where that is counted, by which indexes it is found, and what must not go.

-- == What was removed ==
-- One row for each kind of thing; written in the transaction that removes. `oldest_at`: the oldest that was left then.
CREATE TABLE retention_state (
    kind       text PRIMARY KEY CHECK (length(kind) BETWEEN 1 AND 64),
    removed    bigint NOT NULL DEFAULT 0 CHECK (removed >= 0),
    oldest_at  timestamptz,
    kept_bytes bigint CHECK (kept_bytes >= 0),
    looked_at  timestamptz NOT NULL
);

-- == By which indexes old things are found ==
-- Jobs within bookings go with their bookings.
CREATE INDEX reservations_finished ON reservations (finished_at, id) WHERE finished_at IS NOT NULL AND booking_id IS NULL;
-- Each removed reservation is looked for where something could refer to it: never by walking through a table.
CREATE INDEX allocations_of_booking ON allocations (booking_id) WHERE booking_id IS NOT NULL;
CREATE INDEX pod_logs_reservation ON pod_logs (reservation_id);
CREATE INDEX bookings_started_job ON bookings (started_job) WHERE started_job IS NOT NULL;

-- == The ledger's history ==
-- Whose usage is not in the sums by day; this table belongs to those sums.
CREATE TABLE IF NOT EXISTS usage_pending (reservation_id text PRIMARY KEY);

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
ALTER TABLE events DROP CONSTRAINT events_reservation_id_fkey;
DO $$
DECLARE
    until timestamptz;
BEGIN
    SELECT date_trunc('month', greatest(max(at) + interval '1 month', statement_timestamp() + interval '2 months'), 'UTC')
    INTO until FROM events;
    EXECUTE format('ALTER TABLE events ADD CONSTRAINT events_before_partitions CHECK (at < %L) NOT VALID', until);
END $$;
