-- name: usage_report
-- GPU-seconds held, used and wasted in [start, end), step by step, by the ledger (see domain.usage for the words). What runs
-- within a booking is found through the booking's own rows, card by card; pods of others under one are counted beside it.
WITH spans AS (
    SELECT p.step, p.starts_at, p.ends_at, a.reservation_id, a.gpu_id, r.kind, r.status, g.gpu_type, u.name AS user_name, r.project,
           greatest(lower(a.during), p.starts_at) AS s, least(upper(a.during), p.ends_at) AS e,
           CASE WHEN a.attempt = r.attempt THEN r.started_at END AS ran_from,
           a.released_at IS NOT NULL AND (a.attempt < r.attempt OR r.started_at IS NULL) AS never_ran
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    JOIN gpus g ON g.id = a.gpu_id
    -- The steps it touches, by their numbers, and one on either side: what a division rounds away must not be missed.
    CROSS JOIN LATERAL (
        SELECT n AS step, CAST(:start AS timestamptz) + n * CAST(:step AS interval) AS starts_at,
               least(CAST(:start AS timestamptz) + (n + 1) * CAST(:step AS interval), CAST(:end AS timestamptz)) AS ends_at
        FROM generate_series(
            greatest(0, CAST(floor(
                extract(epoch FROM greatest(lower(a.during), CAST(:start AS timestamptz)) - CAST(:start AS timestamptz))
                / extract(epoch FROM CAST(:step AS interval))) AS integer) - 1),
            CAST(ceil(
                extract(epoch FROM least(upper(a.during), CAST(:end AS timestamptz)) - CAST(:start AS timestamptz))
                / extract(epoch FROM CAST(:step AS interval))) AS integer)
        ) AS n
    ) p
    WHERE a.during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
      AND p.starts_at < CAST(:end AS timestamptz) AND a.during && tstzrange(p.starts_at, p.ends_at)
      AND a.booking_id IS NULL AND NOT a.planned AND r.kind IN ('job', 'booking')
      AND (CAST(:user_id AS bigint) IS NULL OR r.user_id = CAST(:user_id AS bigint))
), measured AS (
    SELECT x.*,
           extract(epoch FROM x.e - x.s) AS held,
           CASE WHEN x.kind = 'job' THEN
               greatest(extract(epoch FROM x.e - greatest(x.s, x.ran_from)), 0) * CAST(x.ran_from IS NOT NULL AS integer)
           ELSE (
               SELECT coalesce(sum(greatest(extract(epoch FROM
                          least(upper(n.during), x.e) - greatest(lower(n.during), j.started_at, x.s)), 0)), 0)
               FROM allocations n JOIN reservations j ON j.id = n.reservation_id AND j.attempt = n.attempt
               WHERE n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id AND NOT n.planned
                 AND j.started_at IS NOT NULL
           ) END AS used,
           CASE WHEN x.kind = 'job' THEN x.never_ran
                ELSE x.status IN ('ended', 'released', 'cancelled', 'expired')
                     AND (SELECT b.used_at IS NULL FROM bookings b WHERE b.id = x.reservation_id)
                     AND NOT EXISTS (
                         SELECT FROM reservations j WHERE j.booking_id = x.reservation_id AND j.started_at IS NOT NULL)
                     AND NOT EXISTS (SELECT FROM admissions m WHERE m.booking_id = x.reservation_id)
           END AS is_wasted
    FROM spans x
), admitted AS (
    -- Which cards of a booking the pods of others are on is not known: they count where its jobs leave cards, and never
    -- for more than it has at that moment.
    SELECT DISTINCT x.step, x.starts_at, x.ends_at, x.reservation_id, x.user_name, x.project, x.gpu_type
    FROM spans x WHERE x.kind = 'booking' AND EXISTS (SELECT FROM admissions m WHERE m.booking_id = x.reservation_id)
), edges AS (
    SELECT x.step, x.reservation_id, x.s AS begins, x.e AS ends, 1 AS cards, 0 AS pods
    FROM spans x JOIN admitted USING (step, reservation_id)
    UNION ALL
    SELECT x.step, x.reservation_id, greatest(lower(n.during), j.started_at, x.s), least(upper(n.during), x.e), -1, 0
    FROM spans x JOIN admitted USING (step, reservation_id)
    JOIN allocations n ON n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id AND NOT n.planned
    JOIN reservations j ON j.id = n.reservation_id AND j.attempt = n.attempt AND j.started_at IS NOT NULL
    UNION ALL
    SELECT d.step, m.booking_id, greatest(m.admitted_at, d.starts_at), least(m.ended_at, d.ends_at), 0, m.gpus
    FROM admissions m JOIN admitted d ON d.reservation_id = m.booking_id
), moments AS (
    SELECT step, reservation_id, at, lead(at) OVER line AS until, sum(sum(cards)) OVER line AS cards,
           sum(sum(pods)) OVER line AS pods
    FROM (
        SELECT step, reservation_id, begins AS at, cards, pods FROM edges WHERE begins < ends
        UNION ALL
        SELECT step, reservation_id, ends, -cards, -pods FROM edges WHERE begins < ends
    ) AS each
    GROUP BY step, reservation_id, at WINDOW line AS (PARTITION BY step, reservation_id ORDER BY at)
), used_by_others AS (
    SELECT step, reservation_id, sum(extract(epoch FROM until - at) * least(cards, pods)) AS used
    FROM moments WHERE until IS NOT NULL GROUP BY step, reservation_id
)
SELECT step, CASE CAST(:by AS text) WHEN 'user' THEN user_name WHEN 'project' THEN project ELSE gpu_type END AS key,
       sum(held) AS held, sum(used) AS used, coalesce(sum(held - used) FILTER (WHERE is_wasted), 0) AS wasted
FROM (
    SELECT step, user_name, project, gpu_type, held, used, is_wasted FROM measured
    UNION ALL
    SELECT step, user_name, project, gpu_type, 0, used, false FROM used_by_others JOIN admitted USING (step, reservation_id)
) AS parts
GROUP BY 1, 2;

-- name: lock_fair_shares
-- Up to when what was held is counted, and by which half-life; whoever counts on waits.
SELECT as_of, half_life_s FROM fair_share_state FOR UPDATE;

-- name: forget_fair_shares
-- Another half-life: everything is counted anew.
DELETE FROM fair_shares;

-- name: bring_shares_up
-- Usage decays by its age, and what was held since comes in. Exponents are bounded: what is smaller counts for nothing.
WITH fresh AS (
    SELECT r.user_id, sum(
        CAST(:rate_s AS float8) * (
            power(CAST(2 AS float8), greatest(-900, CAST(extract(epoch FROM
                least(upper(a.during), CAST(:now AS timestamptz)) - CAST(:now AS timestamptz)) AS float8)
                / CAST(:half_life_s AS float8)))
          - power(CAST(2 AS float8), greatest(-900, CAST(extract(epoch FROM
                greatest(lower(a.during), CAST(:as_of AS timestamptz)) - CAST(:now AS timestamptz)) AS float8)
                / CAST(:half_life_s AS float8))))) AS usage
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    WHERE (a.released_at IS NULL OR a.released_at > CAST(:as_of AS timestamptz))
      AND a.booking_id IS NULL AND NOT a.planned AND r.kind IN ('job', 'booking')
      AND a.during && tstzrange(CAST(:as_of AS timestamptz), CAST(:now AS timestamptz))
    GROUP BY r.user_id
), all_of_it AS (
    SELECT user_id, usage * power(CAST(2 AS float8), greatest(-900, -CAST(:age_s AS float8) / CAST(:half_life_s AS float8)))
           AS usage
    FROM fair_shares
    UNION ALL
    SELECT user_id, greatest(usage, 0) FROM fresh
), noted AS (
    UPDATE fair_share_state SET as_of = CAST(:now AS timestamptz), half_life_s = CAST(:half_life_s AS float8)
)
INSERT INTO fair_shares (user_id, usage) SELECT user_id, sum(usage) FROM all_of_it GROUP BY user_id
ON CONFLICT (user_id) DO UPDATE SET usage = excluded.usage;

-- name: fair_shares
-- Each user's decayed usage.
SELECT user_id, usage FROM fair_shares WHERE usage > 0;
