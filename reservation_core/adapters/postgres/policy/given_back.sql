-- name: sum_up_given_back
-- Move holdings that had ended by a time to the weekly sums; locked rows are left out. OFFSET 0 keeps the subqueries
-- lookups by key, also where many are due.
WITH due AS (
    SELECT b.allocation_id FROM given_back b
    WHERE EXISTS (
        SELECT FROM allocations a
        WHERE a.id = b.allocation_id AND upper(a.during) <= CAST(:before AS timestamptz) OFFSET 0)
    ORDER BY b.allocation_id LIMIT :limit FOR UPDATE OF b SKIP LOCKED
), moved AS (
    DELETE FROM given_back WHERE allocation_id = ANY(ARRAY(SELECT allocation_id FROM due)) RETURNING allocation_id
), summed AS (
    INSERT INTO gpu_time_given_back AS s (user_id, project, gpu_type, kind, week, gpu_us)
    SELECT r.user_id, r.project, g.gpu_type, r.kind, w.week, CAST(1000000 * sum(extract(epoch FROM
               least(upper(a.during), w.week + interval '168 hours') - greatest(lower(a.during), w.week))) AS bigint)
    FROM moved m
    CROSS JOIN LATERAL (
        SELECT during, reservation_id, gpu_id FROM allocations WHERE id = m.allocation_id OFFSET 0
    ) a
    CROSS JOIN LATERAL (
        SELECT user_id, project, kind FROM reservations
        WHERE id = a.reservation_id AND kind IN ('job', 'booking') OFFSET 0
    ) r
    JOIN gpus g ON g.id = a.gpu_id
    CROSS JOIN LATERAL (
        SELECT date_trunc('week', lower(a.during), 'UTC') + n * interval '168 hours' AS week
        FROM generate_series(0, CAST(extract(epoch FROM upper(a.during) - lower(a.during)) AS integer) / 604800 + 1) n
    ) w
    WHERE w.week < upper(a.during)
    GROUP BY r.user_id, r.project, g.gpu_type, r.kind, w.week
    ORDER BY r.user_id, w.week, r.project, g.gpu_type, r.kind
    ON CONFLICT (user_id, week, project, gpu_type, kind) DO UPDATE SET gpu_us = s.gpu_us + excluded.gpu_us
)
SELECT count(*) AS rows FROM moved;
