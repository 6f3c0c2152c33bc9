-- Arrays of jobs: one row for the array, which is never planned, and a row for each element once the leader has made it.
-- Columns that may be null, and checks that no row from before can break: no table is rewritten or read.
ALTER TABLE reservations
    ADD COLUMN IF NOT EXISTS array_size     smallint,
    ADD COLUMN IF NOT EXISTS array_parallel smallint,
    ADD COLUMN IF NOT EXISTS array_id       text,
    ADD COLUMN IF NOT EXISTS array_index    smallint;
ALTER TABLE reservations
    DROP CONSTRAINT IF EXISTS reservations_id_check,
    DROP CONSTRAINT IF EXISTS reservations_array_size,
    DROP CONSTRAINT IF EXISTS reservations_array_parallel,
    DROP CONSTRAINT IF EXISTS reservations_element,
    DROP CONSTRAINT IF EXISTS reservations_element_of,
    DROP CONSTRAINT IF EXISTS reservations_array_is_not_planned,
    ADD CONSTRAINT reservations_id_check CHECK (id ~ CASE kind WHEN 'job' THEN '^job-[0-9a-z]{1,32}(\.[0-9]{1,4})?$'
        WHEN 'booking' THEN '^bkg-[0-9a-z]{1,32}$' ELSE '^mnt-[0-9a-z]{1,32}$' END) NOT VALID,
    ADD CONSTRAINT reservations_array_size CHECK (array_size BETWEEN 1 AND 10000) NOT VALID,
    ADD CONSTRAINT reservations_array_parallel
        CHECK (array_parallel IS NULL OR (array_parallel BETWEEN 1 AND 10000 AND array_size IS NOT NULL AND array_id IS NULL)) NOT VALID,
    ADD CONSTRAINT reservations_element CHECK (CASE WHEN array_id IS NULL THEN array_index IS NULL
        ELSE array_size IS NOT NULL AND array_index IS NOT NULL AND array_index >= 0 AND array_index < array_size
             AND kind = 'job' AND id = array_id || '.' || array_index END) NOT VALID,
    ADD CONSTRAINT reservations_element_of FOREIGN KEY (array_id) REFERENCES reservations (id) NOT VALID,
    -- The row of an array is held for as long as it is not over, also by processes that know no arrays.
    ADD CONSTRAINT reservations_array_is_not_planned CHECK (array_size IS NULL OR array_id IS NOT NULL
        OR finished_at IS NOT NULL OR (held IS TRUE AND status = 'queued')) NOT VALID;
-- An array takes the numbers after its own for its elements, which so have its place in the queue whenever they are made.
ALTER TABLE reservations ALTER COLUMN seq SET INCREMENT BY 10007;

-- How many elements were made, and how those that are over ended. An element is open from when it is made until it is over.
CREATE TABLE IF NOT EXISTS job_arrays (
    id         text PRIMARY KEY REFERENCES reservations (id) ON DELETE CASCADE,
    size       integer NOT NULL CHECK (size BETWEEN 1 AND 10000),
    parallel   integer NOT NULL CHECK (parallel BETWEEN 1 AND size),
    made       integer NOT NULL DEFAULT 0 CHECK (made BETWEEN 0 AND size),
    succeeded  integer NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
    failed     integer NOT NULL DEFAULT 0 CHECK (failed >= 0),
    cancelled  integer NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
    expired    integer NOT NULL DEFAULT 0 CHECK (expired >= 0),
    worst_exit integer,
    CONSTRAINT job_arrays_ended CHECK (succeeded + failed + cancelled + expired <= made),
    CONSTRAINT job_arrays_parallel CHECK (made - (succeeded + failed + cancelled + expired) <= parallel)
) WITH (fillfactor = 70);

-- What has happened to an array or its elements and is not in `job_arrays` yet. Written in the transaction in which it
-- happens, without a lock on the array; taken in the one that counts it.
CREATE TABLE IF NOT EXISTS array_news (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    array_id  text NOT NULL,
    status    text CHECK (status IN ('succeeded', 'failed', 'cancelled', 'expired')),
    exit_code integer
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX IF NOT EXISTS array_news_array ON array_news (array_id);

CREATE OR REPLACE FUNCTION note_array_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO job_arrays (id, size, parallel)
        VALUES (NEW.id, NEW.array_size, least(NEW.array_parallel, NEW.array_size));
    END IF;
    INSERT INTO array_news (array_id, status, exit_code)
    SELECT coalesce(NEW.array_id, NEW.id), CASE WHEN NEW.array_id IS NOT NULL AND NEW.finished_at IS NOT NULL THEN NEW.status END,
           CASE WHEN NEW.array_id IS NOT NULL AND NEW.finished_at IS NOT NULL THEN NEW.exit_code END;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER reservations_store_arrays AFTER INSERT ON reservations
    FOR EACH ROW WHEN (NEW.array_size IS NOT NULL AND NEW.array_id IS NULL) EXECUTE FUNCTION note_array_news();
CREATE OR REPLACE TRIGGER reservations_have_news_for_arrays AFTER UPDATE ON reservations
    FOR EACH ROW WHEN (NEW.array_size IS NOT NULL AND (
        (NEW.array_id IS NULL AND OLD.reason_code <> NEW.reason_code)
        OR (NEW.array_id IS NOT NULL AND OLD.status <> NEW.status
            AND (OLD.status = 'queued' OR (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)))))
    EXECUTE FUNCTION note_array_news();

-- As before, and an array tells its owner what its elements would tell 10,000 times.
CREATE OR REPLACE FUNCTION notify_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM notice_targets WHERE told) THEN
        RETURN NULL;
    END IF;
    PERFORM pgmq.send('notifications', jsonb_build_object('v', 1, 'kind', 'event', 'event', NEW.id, 'target', t.id))
    FROM notice_events n
    JOIN notice_kinds k ON k.kind = n.kind
    JOIN reservations r ON r.id = NEW.reservation_id AND r.array_id IS NULL
    JOIN users u ON u.id = r.user_id
    JOIN notice_targets t ON t.user_id = r.user_id
    LEFT JOIN notice_preferences p ON p.user_id = r.user_id AND p.kind = n.kind AND p.channel = t.channel
    WHERE n.event = NEW.kind
      -- The job of a booking that is over: what ran ends with an event of its own.
      AND NOT (NEW.kind = 'booking_over' AND NEW.after = 'ending')
      AND t.told AND u.disabled_at IS NULL AND coalesce(p.wanted, k.by_default);
    RETURN NULL;
END $$;

-- As before, and an array pays for what its elements held.
CREATE OR REPLACE FUNCTION give_back_to_budgets() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept numeric;
BEGIN
    IF NOT EXISTS (SELECT FROM token_charges WHERE reservation_id = NEW.id) THEN
        RETURN NULL;
    END IF;
    IF NEW.finished_at IS NULL THEN
        kept := round(1000000 * extract(epoch FROM NEW.duration) * NEW.gpus * NEW.nodes);
    ELSE
        SELECT coalesce(round(1000000 * sum(extract(epoch FROM upper(a.during) - lower(a.during)))), 0) INTO kept
        FROM (SELECT NEW.id AS id UNION ALL SELECT e.id FROM reservations e WHERE e.array_id = NEW.id) AS held
        JOIN allocations a ON a.reservation_id = held.id AND NOT a.planned;
    END IF;
    INSERT INTO token_refunds (budget_id, gpu_us)
    SELECT budget_id, sum(to_us - greatest(from_us, kept)) FROM token_charges
    WHERE reservation_id = NEW.id AND to_us > kept GROUP BY budget_id ORDER BY budget_id;
    DELETE FROM token_charges WHERE reservation_id = NEW.id AND (NEW.finished_at IS NOT NULL OR from_us >= kept);
    UPDATE token_charges SET to_us = kept WHERE reservation_id = NEW.id AND to_us > kept;
    RETURN NULL;
END $$;
