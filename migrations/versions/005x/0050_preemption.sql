-- Preemptible jobs: whether one is, and how long it runs at least; how often it gave its GPUs back, and since when it is
-- asked to. The signal that any job may get before its end, and when it got it in this attempt.
ALTER TABLE reservations
    ADD COLUMN preemptible       boolean,
    ADD COLUMN min_runtime       interval,
    ADD COLUMN end_signal        text,
    ADD COLUMN end_signal_before interval,
    ADD COLUMN signalled_at      timestamptz,
    ADD COLUMN preempted_at      timestamptz,
    ADD COLUMN preemptions       integer NOT NULL DEFAULT 0;
-- Rows from before have none of these: they need not be read for this.
ALTER TABLE reservations
    ADD CONSTRAINT reservations_preemptible_alone
        CHECK (preemptible IS NOT TRUE OR (kind = 'job' AND booking_id IS NULL)) NOT VALID,
    ADD CONSTRAINT reservations_min_runtime
        CHECK (min_runtime IS NULL OR (preemptible AND min_runtime > interval '0' AND min_runtime <= duration)) NOT VALID,
    ADD CONSTRAINT reservations_end_signal
        CHECK (end_signal_before IS NULL
               OR end_signal_before >= interval '0' AND end_signal_before <= interval '1 hour') NOT VALID,
    ADD CONSTRAINT reservations_end_signal_whole CHECK ((end_signal IS NULL) = (end_signal_before IS NULL)) NOT VALID,
    -- Who waits is asked nothing.
    ADD CONSTRAINT reservations_asked_while_running
        CHECK (status <> 'queued' OR (preempted_at IS NULL AND signalled_at IS NULL)) NOT VALID,
    ADD CONSTRAINT reservations_preemptions CHECK (preemptions >= 0) NOT VALID;

-- As before, but for preemptible jobs: what they had counts for no quota.
CREATE OR REPLACE FUNCTION note_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO given_back (allocation_id, user_id, project)
    SELECT NEW.id, r.user_id, r.project FROM reservations r
    WHERE r.id = NEW.reservation_id AND r.preemptible IS NOT TRUE;
    RETURN NULL;
END $$;

INSERT INTO notice_kinds (kind, by_default) VALUES ('preempted', true);
INSERT INTO notice_events (event, kind) VALUES ('preempted', 'preempted');
