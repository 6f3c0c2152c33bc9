-- GPU-time that was given back, summed by week, and versions of what people say of their notices.

-- == What was given back ==
-- Quotas on GPU-hours ask for a week's history again and again. It is summed as it becomes old: what was given back is
-- noted here in the transaction in which that happens, and moves from here into the sums. Whoever adds both up in one
-- statement has all of it, each once. No reference to the ledger: its closed rows stay for ever.
CREATE TABLE given_back (
    allocation_id bigint PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

CREATE FUNCTION note_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO given_back (allocation_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
-- What lies within a booking is the booking's.
CREATE TRIGGER allocations_given_back AFTER UPDATE OF released_at ON allocations
    FOR EACH ROW WHEN (OLD.released_at IS NULL AND NEW.released_at IS NOT NULL AND NEW.booking_id IS NULL)
    EXECUTE FUNCTION note_given_back();
CREATE TRIGGER allocations_added_closed AFTER INSERT ON allocations
    FOR EACH ROW WHEN (NEW.released_at IS NOT NULL AND NEW.booking_id IS NULL)
    EXECUTE FUNCTION note_given_back();

-- Sums would not be true any more if what they were made of could change.
CREATE FUNCTION given_back_is_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'row % of the ledger is closed', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'allocations_closed', TABLE = 'allocations',
              HINT = 'What was given back is history: it is neither changed nor removed.';
END $$;
CREATE TRIGGER allocations_closed BEFORE UPDATE OF reservation_id, gpu_id, during, released_at, booking_id ON allocations
    FOR EACH ROW WHEN (OLD.released_at IS NOT NULL) EXECUTE FUNCTION given_back_is_history();
CREATE TRIGGER allocations_closed_stay BEFORE DELETE ON allocations
    FOR EACH ROW WHEN (OLD.released_at IS NOT NULL) EXECUTE FUNCTION given_back_is_history();

-- Weeks begin on Monday at 00:00 UTC.
CREATE TABLE gpu_time_given_back (
    user_id  bigint NOT NULL REFERENCES users (id),
    project  text,
    gpu_type text NOT NULL,
    kind     text NOT NULL CHECK (kind IN ('job', 'booking')),
    week     timestamptz NOT NULL CHECK (week = date_trunc('week', week, 'UTC')),
    gpu_us   bigint NOT NULL CHECK (gpu_us >= 0),
    UNIQUE NULLS NOT DISTINCT (user_id, week, project, gpu_type, kind)
) WITH (fillfactor = 80);
CREATE INDEX gpu_time_given_back_week ON gpu_time_given_back (week);
CREATE INDEX gpu_time_given_back_project ON gpu_time_given_back (project, week) WHERE project IS NOT NULL;

INSERT INTO given_back (allocation_id)
SELECT id FROM allocations WHERE released_at IS NOT NULL AND booking_id IS NULL;

-- Whose rows are open, and which bookings were over when: without walking through all that somebody ever had.
CREATE INDEX reservations_unended ON reservations (user_id) WHERE finished_at IS NULL;
CREATE INDEX reservations_unended_of_project ON reservations (project) WHERE finished_at IS NULL AND project IS NOT NULL;
CREATE INDEX reservations_bookings_of_user ON reservations (user_id, finished_at) WHERE kind = 'booking';
CREATE INDEX reservations_bookings_of_project ON reservations (project, finished_at)
    WHERE kind = 'booking' AND project IS NOT NULL;

-- == What people want to hear of ==
-- Counts what somebody has said of it, so that a change is made only to what was seen.
ALTER TABLE users ADD COLUMN preferences_version integer NOT NULL DEFAULT 1 CHECK (preferences_version >= 1);
