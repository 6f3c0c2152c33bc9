-- Pods of others that use bookings, what disabled users have left, and workloads that could not begin.

-- == Admissions ==
-- A pod that is none of ours and uses a booking's cards, as what watches a cluster reports it. Its owner is the
-- booking's. Without `ended_at` it still runs as far as is known; nothing counts beyond the booking's own rows of the
-- ledger. One pod uses one booking at a time.
CREATE TABLE admissions (
    booking_id  text NOT NULL REFERENCES reservations (id) CHECK (booking_id LIKE 'bkg-%'),
    pod_uid     text NOT NULL CHECK (length(pod_uid) BETWEEN 1 AND 128),
    namespace   text NOT NULL CHECK (length(namespace) BETWEEN 1 AND 253),
    name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 253),
    gpus        integer NOT NULL CHECK (gpus BETWEEN 1 AND 1048576),
    admitted_at timestamptz NOT NULL,
    ended_at    timestamptz CHECK (ended_at >= admitted_at),
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (booking_id, pod_uid),
    CONSTRAINT admissions_one_at_a_time EXCLUDE USING gist (pod_uid WITH =, tstzrange(admitted_at, ended_at) WITH &&)
);

-- == Disabled users ==
-- `settled_at`: since when nothing of a disabled user waits any more for good, that is also nothing that was on its way
-- in while they were disabled.
ALTER TABLE users ADD COLUMN settled_at timestamptz CHECK (settled_at >= disabled_at);
CREATE INDEX users_unsettled ON users (id) WHERE disabled_at IS NOT NULL AND settled_at IS NULL;

-- == Being told ==
INSERT INTO notice_events (event, kind) VALUES ('workload_refused', 'failed');
