-- Jobs that wait for other jobs.

-- Null: the job names no other jobs. A held job waits for some, and the planner leaves it out: it gets neither GPUs nor a slot.
-- No row has a value yet, so that none needs to be checked.
ALTER TABLE reservations
    ADD COLUMN held boolean,
    ADD CONSTRAINT reservations_held_check
        CHECK (held IS NOT TRUE OR status NOT IN ('starting', 'running', 'ending', 'succeeded')) NOT VALID;

-- `changed`: what the job waits for has started or ended since the leader last looked, or it was not looked at yet.
CREATE TABLE job_dependencies (
    job_id    text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    needs_id  text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    condition text NOT NULL CHECK (condition IN ('succeeded', 'ended', 'failed', 'started')),
    place     smallint NOT NULL CHECK (place >= 0),
    changed   boolean NOT NULL DEFAULT true,
    PRIMARY KEY (job_id, needs_id)
) WITH (fillfactor = 90);
CREATE INDEX job_dependencies_needed ON job_dependencies (needs_id);
CREATE INDEX job_dependencies_changed ON job_dependencies (job_id) WHERE changed;

-- A job waits only for jobs that were stored before it, so that none waits for itself in a circle.
CREATE FUNCTION dependency_is_older() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM reservations j JOIN reservations n ON n.seq < j.seq AND n.kind = 'job'
                   WHERE j.id = NEW.job_id AND n.id = NEW.needs_id AND j.kind = 'job') THEN
        RAISE EXCEPTION 'job % can only wait for a job that was submitted before it, not for %', NEW.job_id, NEW.needs_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'job_dependencies_go_back';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_dependencies_go_back BEFORE INSERT OR UPDATE OF job_id, needs_id ON job_dependencies
    FOR EACH ROW EXECUTE FUNCTION dependency_is_older();

-- In the transaction that starts or ends a job, whatever does it: its dependants have to be looked at.
CREATE FUNCTION tell_dependants() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Also those that have changed: the leader, which may be looking at them without this change, leaves them as they are.
    UPDATE job_dependencies SET changed = true
    WHERE needs_id = NEW.id AND (NEW.finished_at IS NOT NULL OR condition = 'started');
    RETURN NULL;
END $$;
CREATE TRIGGER reservations_have_news_for_dependants AFTER UPDATE ON reservations
    FOR EACH ROW WHEN (NEW.kind = 'job' AND ((OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)
                                             OR (OLD.started_at IS NULL AND NEW.started_at IS NOT NULL)))
    EXECUTE FUNCTION tell_dependants();
