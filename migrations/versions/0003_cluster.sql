-- What clusters that fail need, in sections that stand by themselves.

-- == Starts that are tried again ==
-- A job whose pods could not start is `ending` with the outcome `queued`: once its pods are gone it waits again, at its
-- old place in line, and goes to the nodes of its former attempts only where no other could ever take it.
ALTER TABLE reservations
    ADD COLUMN avoid_nodes text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT reservations_outcome_check,
    ADD CONSTRAINT reservations_outcome_check
        CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'expired', 'queued'));

-- == Kept logs ==
-- The last lines of pods whose cluster forgets their logs with them. `complete`: read after the pod had finished, or
-- given up; such a row is not written again.
CREATE TABLE pod_logs (
    pod            text PRIMARY KEY CHECK (length(pod) BETWEEN 1 AND 253),
    reservation_id text NOT NULL REFERENCES reservations (id),
    tail           bytea NOT NULL CHECK (length(tail) <= 1048576),
    complete       boolean NOT NULL,
    kept_at        timestamptz NOT NULL
);
CREATE INDEX pod_logs_age ON pod_logs (kept_at);

