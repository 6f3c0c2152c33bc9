-- Bookings beside jobs in one ledger: what is booked, what runs within a booking, and what waiting jobs were promised.

-- == Reservations of three kinds ==
-- A job and a booking have their own words for where they stand; a maintenance window holds cards like a booking does.
ALTER TABLE reservations
    ADD COLUMN booking_id text REFERENCES reservations (id),
    ADD COLUMN project    text CHECK (project ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
    DROP CONSTRAINT reservations_id_check,
    DROP CONSTRAINT reservations_kind_check,
    DROP CONSTRAINT reservations_status_check,
    DROP CONSTRAINT reservations_check1,
    DROP CONSTRAINT reservations_gpus_check,
    ADD CONSTRAINT reservations_gpus_check CHECK (gpus BETWEEN 1 AND CASE kind WHEN 'maintenance' THEN 1048576 ELSE 1024 END),
    ADD CONSTRAINT reservations_id_check CHECK (id ~ CASE kind WHEN 'job' THEN '^job-[0-9a-z]{1,32}$'
        WHEN 'booking' THEN '^bkg-[0-9a-z]{1,32}$' ELSE '^mnt-[0-9a-z]{1,32}$' END),
    ADD CONSTRAINT reservations_kind_check CHECK (kind IN ('job', 'booking', 'maintenance')),
    ADD CONSTRAINT reservations_status_check CHECK (CASE kind
        WHEN 'job' THEN status IN ('queued', 'starting', 'running', 'ending', 'succeeded', 'failed', 'cancelled', 'expired')
        WHEN 'booking' THEN status IN ('waiting', 'offered', 'confirmed', 'active', 'ended', 'released', 'cancelled', 'expired')
        ELSE status IN ('confirmed', 'active', 'ended', 'cancelled') END),
    ADD CONSTRAINT reservations_final_check CHECK (
        (status IN ('succeeded', 'failed', 'cancelled', 'expired', 'ended', 'released')) = (finished_at IS NOT NULL)),
    -- Only jobs run within bookings.
    ADD CONSTRAINT reservations_booking_check CHECK (booking_id IS NULL OR kind = 'job');

-- Who waits in the common line; jobs of bookings wait in lines of their own.
DROP INDEX reservations_line;
CREATE INDEX reservations_line ON reservations (line_type, line_priority, seq) INCLUDE (gpus, nodes, duration)
    WHERE status = 'queued' AND booking_id IS NULL;
CREATE INDEX reservations_in_bookings ON reservations (booking_id, status, seq) WHERE booking_id IS NOT NULL;
CREATE INDEX reservations_bookings ON reservations (status, id)
    WHERE kind <> 'job' AND status IN ('waiting', 'offered', 'confirmed', 'active');

-- == Bookings ==
CREATE TABLE booking_series (
    id         text PRIMARY KEY CHECK (id ~ '^ser-[0-9a-z]{1,32}$'),
    user_id    bigint NOT NULL REFERENCES users (id),
    rule       text NOT NULL CHECK (length(rule) BETWEEN 1 AND 1000),
    time_zone  text NOT NULL CHECK (length(time_zone) BETWEEN 1 AND 64),
    created_at timestamptz NOT NULL
);

-- What a reservation of kind booking has beyond others. Its cards are in the ledger from the moment it is offered or
-- confirmed. `used_at`: when something of its owner first ran in it; `release_at`: when it is given up unless used.
CREATE TABLE bookings (
    id          text PRIMARY KEY REFERENCES reservations (id),
    starts_at   timestamptz NOT NULL CHECK (mod(extract(epoch FROM starts_at), 60) = 0),
    ends_at     timestamptz NOT NULL CHECK (mod(extract(epoch FROM ends_at), 60) = 0),
    node_id     bigint REFERENCES nodes (id),
    series_id   text REFERENCES booking_series (id),
    occurrence  integer CHECK (occurrence >= 0),
    auto_accept boolean NOT NULL DEFAULT false,
    waits_until timestamptz,
    offer_until timestamptz,
    used_at     timestamptz,
    release_at  timestamptz,
    started_job text REFERENCES reservations (id),
    CHECK (ends_at > starts_at),
    CHECK ((series_id IS NULL) = (occurrence IS NULL)),
    UNIQUE (series_id, occurrence)
) WITH (fillfactor = 80);
CREATE INDEX bookings_starts ON bookings (starts_at);
CREATE INDEX bookings_ends ON bookings (ends_at);

-- The private address of a person's calendar: only the digest of its token is kept.
CREATE TABLE calendar_feeds (
    user_id    bigint PRIMARY KEY REFERENCES users (id),
    digest     bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at timestamptz NOT NULL
);

-- == One calendar in two layers ==
-- What runs within a booking lies over the booking's own rows: each layer has an exclusion of its own, and the hold is
-- common to both. `planned` rows are the slots of jobs that still wait: nobody else may be given these cards then.
ALTER TABLE allocations
    ADD COLUMN booking_id text REFERENCES reservations (id),
    ADD COLUMN planned    boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT allocations_calendar,
    ADD CONSTRAINT allocations_planned_check CHECK (NOT (planned AND (held OR released_at IS NOT NULL))),
    ADD CONSTRAINT allocations_calendar EXCLUDE USING gist (gpu_id WITH =, during WITH &&) WHERE (booking_id IS NULL),
    ADD CONSTRAINT allocations_calendar_in_bookings EXCLUDE USING gist (gpu_id WITH =, during WITH &&)
        WHERE (booking_id IS NOT NULL);
CREATE INDEX allocations_planned ON allocations (reservation_id) WHERE planned;
CREATE INDEX allocations_booking ON allocations (booking_id) WHERE booking_id IS NOT NULL AND released_at IS NULL;

-- What lies within a booking stays within it. Whoever changes a booking updates its reservation's row first: the share
-- lock here waits for that, or that waits for this transaction.
CREATE FUNCTION stay_within_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM reservations WHERE id = NEW.booking_id FOR SHARE;
    IF NOT EXISTS (SELECT FROM allocations b WHERE b.reservation_id = NEW.booking_id AND b.gpu_id = NEW.gpu_id
                   AND b.released_at IS NULL AND b.during @> NEW.during) THEN
        RAISE EXCEPTION 'card % is not booked by % for %', NEW.gpu_id, NEW.booking_id, NEW.during
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_within_booking', TABLE = 'allocations';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER allocations_within_booking
    AFTER INSERT OR UPDATE OF gpu_id, booking_id, during ON allocations DEFERRABLE INITIALLY IMMEDIATE
    FOR EACH ROW WHEN (NEW.booking_id IS NOT NULL AND NEW.released_at IS NULL) EXECUTE FUNCTION stay_within_booking();

CREATE FUNCTION cover_what_is_within() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM allocations a WHERE a.booking_id = OLD.reservation_id AND a.gpu_id = OLD.gpu_id
               AND a.released_at IS NULL AND NOT EXISTS (
                   SELECT FROM allocations b WHERE b.reservation_id = OLD.reservation_id AND b.gpu_id = OLD.gpu_id
                   AND b.during @> a.during)) THEN
        RAISE EXCEPTION 'something lies on card % within % that would lie outside', OLD.gpu_id, OLD.reservation_id
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_cover_what_is_within', TABLE = 'allocations';
    END IF;
    RETURN NULL;
END $$;
-- Deferred: the booking and what lies within it may be changed in any order.
CREATE CONSTRAINT TRIGGER allocations_cover_what_is_within
    AFTER UPDATE OF gpu_id, during OR DELETE ON allocations DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.reservation_id LIKE 'bkg-%') EXECUTE FUNCTION cover_what_is_within();

-- == What waiting jobs were promised ==
-- The first estimate of a job. Kept for ever: whether a promise was held is seen from it and from the record.
CREATE TABLE start_promises (
    reservation_id    text PRIMARY KEY REFERENCES reservations (id),
    promised_start_at timestamptz NOT NULL,
    made_at           timestamptz NOT NULL
);
