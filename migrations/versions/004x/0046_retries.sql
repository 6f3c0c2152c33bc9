-- Jobs that are retried: how often at most, after which ends, and how often they were.
ALTER TABLE reservations
    ADD COLUMN retry_max smallint,
    ADD COLUMN retry_on text[],
    ADD COLUMN retried smallint NOT NULL DEFAULT 0;
-- Rows from before have no retries: none of them needs to be read for this.
ALTER TABLE reservations
    ADD CONSTRAINT reservations_retry_max CHECK (retry_max BETWEEN 1 AND 100) NOT VALID,
    ADD CONSTRAINT reservations_retry_on
        CHECK (cardinality(retry_on) > 0 AND retry_on <@ ARRAY['failed', 'node_lost', 'preempted']) NOT VALID,
    ADD CONSTRAINT reservations_retries_together CHECK ((retry_max IS NULL) = (retry_on IS NULL)) NOT VALID,
    ADD CONSTRAINT reservations_retried CHECK (retried BETWEEN 0 AND coalesce(retry_max, 0)) NOT VALID;

-- The start of a run of a former attempt; that of the newest attempt is the reservation's.
ALTER TABLE allocations ADD COLUMN ran_from timestamptz;

-- As before, and attempts before the newest one may have run.
CREATE OR REPLACE FUNCTION usage_of(ids text[])
RETURNS TABLE (hour timestamptz, user_id bigint, project text, gpu_type text, held_us numeric, used_us numeric, wasted_us numeric)
LANGUAGE sql VOLATILE AS $$
WITH spans AS (
    SELECT h.hour, a.reservation_id, a.gpu_id, r.kind, r.status, g.gpu_type, r.user_id, r.project,
           greatest(lower(a.during), h.hour) AS s, least(upper(a.during), h.hour + interval '1 hour') AS e,
           coalesce(a.ran_from, CASE WHEN a.attempt = r.attempt THEN r.started_at END) AS ran_from,
           a.ran_from IS NULL AND (a.attempt < r.attempt OR r.started_at IS NULL) AS never_ran,
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
      AND NOT EXISTS (SELECT FROM reservations j WHERE j.booking_id = r.id AND (j.started_at IS NOT NULL OR j.retried > 0))
      AND NOT EXISTS (SELECT FROM admissions m WHERE m.booking_id = r.id)
), measured AS (
    SELECT x.*, extract(epoch FROM x.e - x.s) AS held,
           CASE WHEN x.kind = 'job' THEN
               greatest(extract(epoch FROM x.e - greatest(x.s, x.ran_from)), 0) * CAST(x.ran_from IS NOT NULL AS integer)
           ELSE (
               SELECT coalesce(sum(greatest(extract(epoch FROM
                          least(upper(n.during), x.e) - greatest(lower(n.during), coalesce(n.ran_from, j.started_at), x.s)), 0)), 0)
               FROM reservations j JOIN allocations n ON n.reservation_id = j.id
               WHERE j.booking_id = x.reservation_id AND n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id
                 AND NOT n.planned AND (n.ran_from IS NOT NULL OR n.attempt = j.attempt AND j.started_at IS NOT NULL)
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
    SELECT x.hour, x.reservation_id, greatest(lower(n.during), coalesce(n.ran_from, j.started_at), x.s), least(upper(n.during), x.e), -1, 0
    FROM spans x
    JOIN reservations j ON j.booking_id = x.reservation_id
    JOIN allocations n ON n.reservation_id = j.id
     AND (n.ran_from IS NOT NULL OR n.attempt = j.attempt AND j.started_at IS NOT NULL)
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
