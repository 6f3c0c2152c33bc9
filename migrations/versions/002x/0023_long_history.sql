-- Reports and lists that cost the same however long the history is: usage summed by hour, day and month, and bookings
-- found by owner, status and time.

-- == Bookings by owner and status ==
-- Copies of the reservation's columns, for indexes together with the times. Written by triggers alone, but for
-- `add_bookings`, which fills them itself.
ALTER TABLE bookings ADD COLUMN IF NOT EXISTS user_id bigint, ADD COLUMN IF NOT EXISTS status text;

CREATE OR REPLACE FUNCTION complete_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bookings b SET user_id = r.user_id, status = r.status FROM reservations r WHERE r.id = NEW.id AND b.id = NEW.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER bookings_complete AFTER INSERT ON bookings
    FOR EACH ROW WHEN (NEW.status IS NULL) EXECUTE FUNCTION complete_booking();

CREATE OR REPLACE FUNCTION copy_booking_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bookings SET status = NEW.status WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER reservations_copy_booking_status AFTER UPDATE OF status ON reservations
    FOR EACH ROW WHEN (NEW.kind = 'booking' AND OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION copy_booking_status();

-- == Usage sums ==
-- GPU-time of reservations that are over, by UTC hour, day and month. Every reservation with closed rows in the common
-- layer of the ledger is either in `usage_pending`, or all of its closed rows are in the sums: reports compute the
-- pending ones from the ledger. Rows of the ledger that are deleted by age stay in the sums.
CREATE TABLE IF NOT EXISTS usage_sums (
    span      text NOT NULL CHECK (span IN ('hour', 'day', 'month')),
    starts_at timestamptz NOT NULL CHECK (starts_at = date_trunc(span, starts_at, 'UTC')),
    user_id   bigint NOT NULL REFERENCES users (id),
    project   text,
    gpu_type  text NOT NULL,
    held_us   bigint NOT NULL,
    used_us   bigint NOT NULL,
    wasted_us bigint NOT NULL,
    -- Whole: a report reads thousands of rows in this order, and not one by one from the table.
    UNIQUE NULLS NOT DISTINCT (span, starts_at, user_id, project, gpu_type) INCLUDE (held_us, used_us, wasted_us)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);

CREATE TABLE IF NOT EXISTS usage_pending (
    reservation_id text PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

-- What the closed rows of these reservations come to, hour by hour (see domain/policy/usage.py for the words). The same
-- computation as the statement `usage_report`, which reads it from the ledger step by step.
CREATE OR REPLACE FUNCTION usage_of(ids text[])
RETURNS TABLE (hour timestamptz, user_id bigint, project text, gpu_type text, held_us numeric, used_us numeric, wasted_us numeric)
LANGUAGE sql VOLATILE AS $$
WITH spans AS (
    SELECT h.hour, a.reservation_id, a.gpu_id, r.kind, r.status, g.gpu_type, r.user_id, r.project,
           greatest(lower(a.during), h.hour) AS s, least(upper(a.during), h.hour + interval '1 hour') AS e,
           CASE WHEN a.attempt = r.attempt THEN r.started_at END AS ran_from,
           a.attempt < r.attempt OR r.started_at IS NULL AS never_ran,
           EXISTS (SELECT FROM admissions m WHERE m.booking_id = r.id) AS has_pods
    FROM unnest(ids) AS i (id)
    JOIN reservations r ON r.id = i.id AND r.kind IN ('job', 'booking')
    JOIN allocations a ON a.reservation_id = r.id
    JOIN gpus g ON g.id = a.gpu_id
    CROSS JOIN LATERAL (
        SELECT date_trunc('hour', lower(a.during), 'UTC') + n * interval '1 hour' AS hour
        FROM generate_series(0, CAST(extract(epoch FROM upper(a.during) - lower(a.during)) AS bigint) / 3600 + 1) n
    ) h
    WHERE a.released_at IS NOT NULL AND a.booking_id IS NULL AND NOT a.planned AND h.hour < upper(a.during)
), wasted AS (
    SELECT r.id FROM reservations r
    WHERE r.id = ANY (ids) AND r.kind = 'booking' AND r.status IN ('ended', 'released', 'cancelled', 'expired')
      AND (SELECT b.used_at IS NULL FROM bookings b WHERE b.id = r.id)
      AND NOT EXISTS (SELECT FROM reservations j WHERE j.booking_id = r.id AND j.started_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM admissions m WHERE m.booking_id = r.id)
), measured AS (
    SELECT x.*, extract(epoch FROM x.e - x.s) AS held,
           CASE WHEN x.kind = 'job' THEN
               greatest(extract(epoch FROM x.e - greatest(x.s, x.ran_from)), 0) * CAST(x.ran_from IS NOT NULL AS integer)
           ELSE (
               SELECT coalesce(sum(greatest(extract(epoch FROM
                          least(upper(n.during), x.e) - greatest(lower(n.during), j.started_at, x.s)), 0)), 0)
               FROM reservations j JOIN allocations n ON n.reservation_id = j.id AND n.attempt = j.attempt
               WHERE j.booking_id = x.reservation_id AND n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id
                 AND NOT n.planned AND j.started_at IS NOT NULL
           ) END AS used,
           CASE WHEN x.kind = 'job' THEN x.never_ran ELSE x.reservation_id IN (SELECT id FROM wasted) END AS is_wasted
    FROM spans x
), admitted AS (
    SELECT DISTINCT x.hour, x.reservation_id, x.user_id, x.project, x.gpu_type
    FROM spans x WHERE x.kind = 'booking' AND x.has_pods
), edges AS (
    SELECT x.hour, x.reservation_id, x.s AS begins, x.e AS ends, 1 AS cards, 0 AS pods
    FROM spans x WHERE x.kind = 'booking' AND x.has_pods
    UNION ALL
    SELECT x.hour, x.reservation_id, greatest(lower(n.during), j.started_at, x.s), least(upper(n.during), x.e), -1, 0
    FROM spans x
    JOIN reservations j ON j.booking_id = x.reservation_id AND j.started_at IS NOT NULL
    JOIN allocations n ON n.reservation_id = j.id AND n.attempt = j.attempt
     AND n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id AND NOT n.planned
    WHERE x.kind = 'booking' AND x.has_pods
    UNION ALL
    SELECT d.hour, m.booking_id, greatest(m.admitted_at, d.hour), least(m.ended_at, d.hour + interval '1 hour'), 0, m.gpus
    FROM admitted d JOIN admissions m ON m.booking_id = d.reservation_id
), moments AS (
    SELECT hour, reservation_id, at, lead(at) OVER line AS until, sum(sum(cards)) OVER line AS cards,
           sum(sum(pods)) OVER line AS pods
    FROM (
        SELECT hour, reservation_id, begins AS at, cards, pods FROM edges WHERE begins < ends
        UNION ALL
        SELECT hour, reservation_id, ends, -cards, -pods FROM edges WHERE begins < ends
    ) AS changes
    GROUP BY hour, reservation_id, at WINDOW line AS (PARTITION BY hour, reservation_id ORDER BY at)
), used_by_others AS (
    SELECT hour, reservation_id, sum(extract(epoch FROM until - at) * least(cards, pods)) AS used
    FROM moments WHERE until IS NOT NULL GROUP BY hour, reservation_id
)
SELECT hour, user_id, project, gpu_type, 1000000 * sum(held), 1000000 * sum(used),
       1000000 * coalesce(sum(held - used) FILTER (WHERE is_wasted), 0)
FROM (
    SELECT hour, user_id, project, gpu_type, held, used, is_wasted FROM measured
    UNION ALL
    SELECT hour, user_id, project, gpu_type, 0, used, false FROM used_by_others JOIN admitted USING (hour, reservation_id)
) AS parts
GROUP BY hour, user_id, project, gpu_type
$$;

-- Add what these reservations come to, once (1) or less once (-1). In the order of the keys: two that add wait in line.
CREATE OR REPLACE FUNCTION add_to_usage_sums(ids text[], times integer) RETURNS void LANGUAGE sql VOLATILE AS $$
INSERT INTO usage_sums AS s (span, starts_at, user_id, project, gpu_type, held_us, used_us, wasted_us)
SELECT p.span, date_trunc(p.span, u.hour, 'UTC') AS begins, u.user_id, u.project, u.gpu_type,
       times * sum(u.held_us), times * sum(u.used_us), times * sum(u.wasted_us)
FROM usage_of(ids) u CROSS JOIN (VALUES ('hour'), ('day'), ('month')) AS p (span)
GROUP BY p.span, begins, u.user_id, u.project, u.gpu_type
ORDER BY p.span, begins, u.user_id, u.project, u.gpu_type
ON CONFLICT (span, starts_at, user_id, project, gpu_type) DO UPDATE
SET held_us = s.held_us + excluded.held_us, used_us = s.used_us + excluded.used_us,
    wasted_us = s.wasted_us + excluded.wasted_us
$$;

-- Something changes of which a reservation's usage is made: it is pending from now on, and what the sums had of it goes
-- out of them. Called before the change: what is subtracted is what was added. Whoever sums it up at the same time is
-- waited for.
CREATE OR REPLACE FUNCTION reopen_usage(changed text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        INSERT INTO usage_pending (reservation_id) VALUES (changed) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF EXISTS (SELECT FROM allocations WHERE reservation_id = changed AND released_at IS NOT NULL) THEN
                PERFORM add_to_usage_sums(ARRAY[changed], -1);
            END IF;
            RETURN;
        END IF;
        PERFORM FROM usage_pending WHERE reservation_id = changed FOR SHARE;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION reopen_usage_of_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM reopen_usage(coalesce(NEW.booking_id, NEW.reservation_id));
    RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION reopen_usage_of_reservation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM reopen_usage(coalesce(NEW.booking_id, NEW.id));
    RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION reopen_usage_of_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM reopen_usage(NEW.id);
    RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION reopen_usage_of_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM reopen_usage(NEW.booking_id);
    RETURN NEW;
END $$;
