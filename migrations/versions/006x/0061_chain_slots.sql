-- Jobs that wait for others have slots, each no earlier than what the job waits for ends at the latest.

-- What a job still waits for: the other job's end or, with `by_start`, its start. See domain/jobs/dependencies.py.
CREATE OR REPLACE FUNCTION open_needs(waiting_id text) RETURNS TABLE (needs_id text, by_start boolean) LANGUAGE sql STABLE AS $$
    SELECT d.needs_id, d.condition = 'started'
    FROM job_dependencies d JOIN reservations n ON n.id = d.needs_id
    WHERE d.job_id = waiting_id AND NOT CASE d.condition
        WHEN 'succeeded' THEN n.status = 'succeeded'
        WHEN 'ended' THEN n.finished_at IS NOT NULL
        WHEN 'failed' THEN n.finished_at IS NOT NULL AND n.status <> 'succeeded'
        ELSE n.started_at IS NOT NULL OR n.retried > 0 END
$$;

-- Whether a job that waits for others may have a slot: each look at it asks for the ends of all of them.
CREATE OR REPLACE FUNCTION has_few_needs(waiting_id text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT count(*) <= 100 FROM (SELECT FROM job_dependencies WHERE job_id = waiting_id LIMIT 101) AS needs
$$;

-- Null: not the slot of a job that waits for others, so that all other rows cost nothing.
ALTER TABLE allocations ADD COLUMN IF NOT EXISTS follows boolean;

-- At the end of the statement, which may write the slots of both. What a job waits for has a slot or GPUs, as long as it
-- lasts. Later the other job's end may move: the planner then gives this job another slot.
CREATE OR REPLACE FUNCTION slot_follows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    needed text;
BEGIN
    SELECT n.needs_id INTO needed
    FROM open_needs(NEW.reservation_id) AS n
    LEFT JOIN allocations a ON a.reservation_id = n.needs_id AND a.released_at IS NULL
    WHERE a.id IS NULL OR lower(NEW.during) < CASE WHEN n.by_start THEN lower(a.during) ELSE upper(a.during) END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the slot of % begins before the end (or start) of %, for which it waits', NEW.reservation_id, needed
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_follow', TABLE = 'allocations';
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS allocations_follow ON allocations;
CREATE TRIGGER allocations_follow AFTER INSERT ON allocations
    FOR EACH ROW WHEN (NEW.follows AND NEW.planned) EXECUTE FUNCTION slot_follows();
