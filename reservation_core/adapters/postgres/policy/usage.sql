-- name: usage_report
-- GPU-seconds held, used and wasted in [start, end) by step (domain.policy.usage defines the terms). Settled usage
-- comes from the sums of whole hours, days and months; the rest of the steps, and all open or pending usage, from the
-- ledger (see migration 0023). Jobs within a booking are found through the booking's rows, by GPU; foreign pods in a
-- booking are counted in addition. A piece is a step, or a part of one that no sum covers. `split`: a row for each user,
-- project and type of a line, as prices may differ.
WITH pieces AS (
    SELECT * FROM unnest(CAST(:edge_steps AS integer[]), CAST(:edge_starts AS timestamptz[]), CAST(:edge_ends AS timestamptz[]))
         WITH ORDINALITY AS e (step, starts_at, ends_at, number)
), rows AS MATERIALIZED (
    SELECT a.id, a.during, a.reservation_id, a.gpu_id, a.attempt, a.released_at, a.ran_from
    FROM allocations a
    WHERE a.released_at IS NULL AND lower(a.during) < CAST(:end AS timestamptz) AND upper(a.during) > CAST(:start AS timestamptz)
      AND a.booking_id IS NULL AND NOT a.planned
    UNION ALL
    SELECT a.id, a.during, a.reservation_id, a.gpu_id, a.attempt, a.released_at, a.ran_from
    FROM usage_pending p JOIN allocations a ON a.reservation_id = p.reservation_id
    WHERE a.released_at IS NOT NULL AND a.during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
      AND a.booking_id IS NULL
), parts AS MATERIALIZED (
    -- The steps that a row overlaps, by number, and one more on either side, against rounding of the division.
    SELECT p.step, 0 AS piece, p.starts_at, p.ends_at, a.*
    FROM rows a
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
    WHERE p.starts_at < CAST(:end AS timestamptz) AND a.during && tstzrange(p.starts_at, p.ends_at)
    UNION ALL
    SELECT p.step, CAST(p.number AS integer), p.starts_at, p.ends_at,
           a.id, a.during, a.reservation_id, a.gpu_id, a.attempt, a.released_at, a.ran_from
    FROM pieces p
    JOIN allocations a ON a.released_at IS NOT NULL AND a.booking_id IS NULL AND a.during && tstzrange(p.starts_at, p.ends_at)
    WHERE NOT EXISTS (SELECT FROM usage_pending w WHERE w.reservation_id = a.reservation_id)
), owners AS MATERIALIZED (
    -- By arrays of ids, here and below: for a join, the planner would read whole tables, or row by row.
    SELECT id, kind, status, user_id, project, attempt, started_at FROM reservations
    WHERE id = ANY(ARRAY(SELECT DISTINCT reservation_id FROM parts)) AND kind IN ('job', 'booking')
      AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint))
), cards AS MATERIALIZED (
    SELECT id, gpu_type FROM gpus WHERE id = ANY(ARRAY(SELECT DISTINCT gpu_id FROM parts))
), begun AS MATERIALIZED (
    SELECT DISTINCT booking_id FROM reservations
    WHERE booking_id = ANY(ARRAY(SELECT id FROM owners WHERE kind = 'booking')) AND (started_at IS NOT NULL OR retried > 0)
), given AS MATERIALIZED (
    SELECT DISTINCT booking_id FROM admissions WHERE booking_id = ANY(ARRAY(SELECT id FROM owners WHERE kind = 'booking'))
), unused AS MATERIALIZED (
    SELECT id FROM bookings
    WHERE id = ANY(ARRAY(
        SELECT id FROM owners WHERE kind = 'booking' AND status IN ('ended', 'released', 'cancelled', 'expired')
        EXCEPT SELECT booking_id FROM begun EXCEPT SELECT booking_id FROM given)) AND used_at IS NULL
), spans AS MATERIALIZED (
    SELECT a.step, a.piece, a.starts_at, a.ends_at, a.reservation_id, a.gpu_id, r.kind, g.gpu_type, r.user_id, r.project,
           greatest(lower(a.during), a.starts_at) AS s, least(upper(a.during), a.ends_at) AS e,
           coalesce(a.ran_from, CASE WHEN a.attempt = r.attempt THEN r.started_at END) AS ran_from,
           a.released_at IS NOT NULL AND a.ran_from IS NULL AND (a.attempt < r.attempt OR r.started_at IS NULL) AS never_ran,
           a.reservation_id IN (SELECT booking_id FROM begun) AS has_jobs,
           a.reservation_id IN (SELECT booking_id FROM given) AS has_pods
    FROM parts a
    JOIN owners r ON r.id = a.reservation_id
    JOIN cards g ON g.id = a.gpu_id
), measured AS (
    SELECT x.*,
           extract(epoch FROM x.e - x.s) AS held,
           CASE WHEN x.kind = 'job' THEN
               greatest(extract(epoch FROM x.e - greatest(x.s, x.ran_from)), 0) * CAST(x.ran_from IS NOT NULL AS integer)
           WHEN x.has_jobs THEN (
               SELECT coalesce(sum(greatest(extract(epoch FROM
                          least(upper(n.during), x.e) - greatest(lower(n.during), coalesce(n.ran_from, j.started_at), x.s)), 0)), 0)
               FROM reservations j JOIN allocations n ON n.reservation_id = j.id
               WHERE j.booking_id = x.reservation_id AND n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id
                 AND NOT n.planned AND (n.ran_from IS NOT NULL OR n.attempt = j.attempt AND j.started_at IS NOT NULL)
           ) ELSE 0 END AS used,
           CASE WHEN x.kind = 'job' THEN x.never_ran ELSE x.reservation_id IN (SELECT id FROM unused) END AS is_wasted
    FROM spans x
), admitted AS (
    -- The GPUs that foreign pods use in a booking are unknown: these pods count on GPUs without jobs, and never for
    -- more than the booking has at that moment.
    SELECT DISTINCT step, piece, starts_at, ends_at, reservation_id, user_id, project, gpu_type FROM spans WHERE has_pods
), edges AS (
    SELECT x.step, x.piece, x.reservation_id, x.user_id, x.project, x.gpu_type, x.s AS begins, x.e AS ends, 1 AS cards, 0 AS pods
    FROM spans x WHERE x.has_pods
    UNION ALL
    SELECT x.step, x.piece, x.reservation_id, x.user_id, x.project, x.gpu_type,
           greatest(lower(n.during), coalesce(n.ran_from, j.started_at), x.s), least(upper(n.during), x.e), -1, 0
    FROM spans x
    JOIN reservations j ON j.booking_id = x.reservation_id
    JOIN allocations n ON n.reservation_id = j.id
     AND (n.ran_from IS NOT NULL OR n.attempt = j.attempt AND j.started_at IS NOT NULL)
     AND n.booking_id = x.reservation_id AND n.gpu_id = x.gpu_id AND NOT n.planned
    WHERE x.has_pods AND x.has_jobs
    UNION ALL
    SELECT d.step, d.piece, d.reservation_id, d.user_id, d.project, d.gpu_type,
           greatest(m.admitted_at, d.starts_at), least(m.ended_at, d.ends_at), 0, m.gpus
    FROM admitted d JOIN admissions m ON m.booking_id = d.reservation_id
), moments AS (
    SELECT step, user_id, project, gpu_type, at, lead(at) OVER line AS until, sum(sum(cards)) OVER line AS cards,
           sum(sum(pods)) OVER line AS pods
    FROM (
        SELECT step, piece, reservation_id, user_id, project, gpu_type, begins AS at, cards, pods FROM edges WHERE begins < ends
        UNION ALL
        SELECT step, piece, reservation_id, user_id, project, gpu_type, ends, -cards, -pods FROM edges WHERE begins < ends
    ) AS changes
    GROUP BY step, piece, reservation_id, user_id, project, gpu_type, at
    WINDOW line AS (PARTITION BY step, piece, reservation_id, gpu_type ORDER BY at)
), sums AS MATERIALIZED (
    -- Grouped by the report's key, a hundredth of the rows. LATERAL with a GROUP BY prevents a hash join by `span`
    -- alone, which would compare all sums with all parts.
    SELECT c.number, s.*
    FROM unnest(CAST(:sum_spans AS text[]), CAST(:sum_starts AS timestamptz[]), CAST(:sum_ends AS timestamptz[]))
         WITH ORDINALITY AS c (span, starts_at, ends_at, number)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN CAST(:split AS boolean) OR CAST(:by AS text) = 'user' THEN user_id END AS user_id,
               CASE WHEN CAST(:split AS boolean) OR CAST(:by AS text) = 'project' THEN project END AS project,
               CASE WHEN CAST(:split AS boolean) OR CAST(:by AS text) = 'gpu_type' THEN gpu_type END AS gpu_type,
               sum(held_us) AS held_us, sum(used_us) AS used_us, sum(wasted_us) AS wasted_us
        FROM usage_sums u
        WHERE span = c.span AND starts_at >= c.starts_at AND starts_at < c.ends_at AND held_us > 0
          AND (CAST(:user_id AS bigint) IS NULL OR u.user_id = CAST(:user_id AS bigint))
        GROUP BY 1, 2, 3
    ) AS s
)
SELECT step, CASE CAST(:by AS text) WHEN 'user' THEN u.name WHEN 'project' THEN project ELSE gpu_type END AS key,
       CASE WHEN CAST(:split AS boolean) THEN u.name END AS user_name,
       CASE WHEN CAST(:split AS boolean) THEN project END AS project,
       CASE WHEN CAST(:split AS boolean) THEN gpu_type END AS gpu_type,
       sum(held) AS held, sum(used) AS used, sum(wasted) AS wasted
FROM (
    SELECT step, user_id, project, gpu_type, held, used, CASE WHEN is_wasted THEN held - used ELSE 0 END AS wasted
    FROM measured
    UNION ALL
    SELECT step, user_id, project, gpu_type, 0, extract(epoch FROM until - at) * least(cards, pods), 0
    FROM moments WHERE until IS NOT NULL
    UNION ALL
    -- The sums to add to and subtract from every step: two steps share the sums around their common bound.
    SELECT t.step, s.user_id, s.project, s.gpu_type, t.sign * s.held_us * 0.000001, t.sign * s.used_us * 0.000001,
           t.sign * s.wasted_us * 0.000001
    FROM unnest(CAST(:term_steps AS integer[]), CAST(:term_sums AS bigint[]), CAST(:term_signs AS integer[]))
         AS t (step, number, sign)
    JOIN sums s ON s.number = t.number
) AS whole LEFT JOIN users u ON u.id = user_id
GROUP BY 1, 2, 3, 4, 5
HAVING sum(held) > 0;

-- name: settled_usage
-- Pending reservations whose usage can only change by a correction. They are locked, so corrections wait (see
-- reopen_usage). `hours`: the GPU-hours of their usage. OFFSET 0 keeps the subqueries lookups by key, also where many
-- reservations are pending.
SELECT p.reservation_id AS id,
       (SELECT coalesce(sum(1 + extract(epoch FROM upper(a.during) - lower(a.during)) / 3600), 0)
        FROM allocations a
        WHERE a.reservation_id = p.reservation_id AND a.released_at IS NOT NULL AND a.booking_id IS NULL AND NOT a.planned
       ) AS hours
FROM usage_pending p
WHERE EXISTS (
    SELECT FROM reservations r
    WHERE r.id = p.reservation_id AND r.finished_at <= CAST(:before AS timestamptz) OFFSET 0)
  AND NOT EXISTS (
    SELECT FROM allocations a WHERE a.reservation_id = p.reservation_id AND a.released_at IS NULL OFFSET 0)
  AND NOT EXISTS (SELECT FROM allocations n WHERE n.booking_id = p.reservation_id AND n.released_at IS NULL OFFSET 0)
  AND NOT EXISTS (
    SELECT FROM reservations j
    WHERE j.booking_id = p.reservation_id AND j.status IN ('queued', 'starting', 'running', 'ending') OFFSET 0)
ORDER BY p.reservation_id LIMIT :limit FOR UPDATE OF p SKIP LOCKED;

-- name: sum_up_usage
-- Move their usage to the sums. A separate statement, so that it sees corrections from before the locks.
WITH moved AS (
    DELETE FROM usage_pending WHERE reservation_id = ANY(CAST(:ids AS text[]))
)
SELECT add_to_usage_sums(CAST(:ids AS text[]), 1);

-- name: lock_fair_shares
-- Lock the time up to which usage is counted, and its half-life.
SELECT as_of, half_life_s FROM fair_share_state FOR UPDATE;

-- name: forget_fair_shares
-- Reset fair shares after a change of the half-life.
DELETE FROM fair_shares;

-- name: update_shares
-- Decay usage by its age, and add new usage. Exponents are bounded: smaller values count as zero.
WITH released AS MATERIALIZED (
    SELECT reservation_id, during, released_at FROM allocations
    WHERE released_at IS NOT NULL AND booking_id IS NULL
      AND during && tstzrange(CAST(:as_of AS timestamptz), CAST(:now AS timestamptz))
), fresh AS (
    SELECT r.user_id, sum(
        CAST(:rate_s AS float8) * (
            power(CAST(2 AS float8), greatest(-900, CAST(extract(epoch FROM
                least(upper(a.during), CAST(:now AS timestamptz)) - CAST(:now AS timestamptz)) AS float8)
                / CAST(:half_life_s AS float8)))
          - power(CAST(2 AS float8), greatest(-900, CAST(extract(epoch FROM
                greatest(lower(a.during), CAST(:as_of AS timestamptz)) - CAST(:now AS timestamptz)) AS float8)
                / CAST(:half_life_s AS float8))))) AS usage
    FROM (
        -- Bounds of ranges are compared, not ranges: see quota_held_now.
        SELECT reservation_id, during FROM allocations
        WHERE released_at IS NULL AND booking_id IS NULL AND NOT planned
          AND lower(during) < CAST(:now AS timestamptz) AND upper(during) > CAST(:as_of AS timestamptz)
        UNION ALL
        SELECT reservation_id, during FROM released WHERE released_at > CAST(:as_of AS timestamptz)
    ) a
    JOIN reservations r ON r.id = a.reservation_id
    -- Preemptible jobs and jobs without GPUs take no GPU from others.
    WHERE r.kind IN ('job', 'booking') AND r.preemptible IS NOT TRUE AND r.gpus > 0
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
-- The decayed usage of every user.
SELECT user_id, usage FROM fair_shares WHERE usage > 0;

-- name: claim_digest
-- Note that the digests of a week are sent; no row where that was done.
INSERT INTO usage_digests (week, sent_at) VALUES (CAST(:week AS timestamptz), CAST(:now AS timestamptz)) ON CONFLICT DO NOTHING;
