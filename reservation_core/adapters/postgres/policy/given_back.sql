-- name: sum_up_given_back
-- Move holdings that had ended by a time to the weekly sums; locked rows are left out.
WITH due AS (
    SELECT b.allocation_id FROM given_back b JOIN allocations a ON a.id = b.allocation_id
    WHERE upper(a.during) <= CAST(:before AS timestamptz)
    ORDER BY b.allocation_id LIMIT :limit FOR UPDATE OF b SKIP LOCKED
), moved AS (
    DELETE FROM given_back b USING due d WHERE b.allocation_id = d.allocation_id RETURNING b.allocation_id
), summed AS (
    INSERT INTO gpu_time_given_back AS s (user_id, project, gpu_type, kind, week, gpu_us)
    SELECT r.user_id, r.project, g.gpu_type, r.kind, w.week, CAST(1000000 * sum(extract(epoch FROM
               least(upper(a.during), w.week + interval '168 hours') - greatest(lower(a.during), w.week))) AS bigint)
    FROM moved m
    JOIN allocations a ON a.id = m.allocation_id
    JOIN reservations r ON r.id = a.reservation_id AND r.kind IN ('job', 'booking')
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
