-- name: any_terms_due
-- Whether the rest has anything to look at: some jobs run that are preemptible, were asked for GPUs, or get their signal now.
SELECT EXISTS (SELECT FROM reservations WHERE status = 'running'
               AND (preemptible OR preempted_at IS NOT NULL OR end_signal IS NOT NULL AND signalled_at IS NULL
                                   AND ends_at - end_signal_before <= CAST(:now AS timestamptz))) AS found;

-- name: end_signals_due
-- Running jobs so near to their end that they get the signal that they asked for.
SELECT id FROM reservations
WHERE status = 'running' AND end_signal IS NOT NULL AND signalled_at IS NULL
  AND ends_at - end_signal_before <= CAST(:now AS timestamptz)
ORDER BY ends_at LIMIT :limit;

-- name: shares_needed
-- Running preemptible jobs that keep others from CPUs or memory: on a node where a job asks for some, another range begins
-- so soon that their own time can't be renewed, and there is too little for both. Those that started first stay as long as
-- there is enough beside them. Rows count as in refuse_beyond_shares.
WITH taken AS MATERIALIZED (
    SELECT g.node_id, a.reservation_id, a.gpu_id, a.cpu_milli, a.memory_bytes, lower(a.during) AS begins,
           CASE WHEN r.id IS NULL AND a.held
                THEN greatest(upper(a.during), CAST(:now AS timestamptz) + interval '60 seconds')
                ELSE upper(a.during) END AS ends,
           r.started_at, CAST(:now AS timestamptz) + coalesce(r.end_signal_before, '0')
                         + make_interval(secs => CAST(:needs_s AS float8)) AS until
    FROM (SELECT DISTINCT g.node_id FROM allocations a JOIN gpus g ON g.id = a.gpu_id
          WHERE a.released_at IS NULL AND (a.cpu_milli IS NOT NULL OR a.memory_bytes IS NOT NULL)) AS asked
    JOIN gpus g ON g.node_id = asked.node_id
    JOIN allocations a ON a.gpu_id = g.id AND a.released_at IS NULL AND a.reservation_id NOT LIKE 'mnt-%'
    LEFT JOIN reservations r ON r.id = a.reservation_id AND r.status = 'running' AND r.preemptible AND r.preempted_at IS NULL
), whole AS (
    SELECT n.id AS node_id, n.cpu_milli, n.memory_bytes, count(*) AS gpus
    FROM nodes n JOIN gpus g ON g.node_id = n.id WHERE n.id IN (SELECT node_id FROM taken) GROUP BY n.id
), renewable AS (
    SELECT t.node_id, t.reservation_id, min(t.started_at) AS started_at, max(t.ends) AS ends, max(t.until) AS until,
           array_agg(t.gpu_id) AS gpu_ids,
           coalesce(max(t.cpu_milli) * max(w.gpus), count(*) * max(w.cpu_milli)) AS cpu,
           coalesce(max(t.memory_bytes) * max(w.gpus), count(*) * max(w.memory_bytes)) AS memory
    FROM taken t JOIN whole w ON w.node_id = t.node_id WHERE t.started_at IS NOT NULL GROUP BY t.node_id, t.reservation_id
), beside AS (
    SELECT c.reservation_id, w.cpu_milli * w.gpus AS all_cpu, w.memory_bytes * w.gpus AS all_memory,
           s.cpu_gpus * w.cpu_milli + m.cpu_milli * w.gpus + sum(c.cpu) OVER stay AS cpu,
           s.memory_gpus * w.memory_bytes + m.memory_bytes * w.gpus + sum(c.memory) OVER stay AS memory
    FROM (SELECT DISTINCT node_id, begins AS at FROM taken) AS i
    JOIN whole w ON w.node_id = i.node_id
    JOIN renewable c ON c.node_id = i.node_id AND c.ends <= i.at AND i.at <= c.until
     AND NOT EXISTS (SELECT FROM taken o WHERE o.gpu_id = ANY (c.gpu_ids) AND o.begins BETWEEN c.ends AND i.at)
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT gpu_id) FILTER (WHERE cpu_milli IS NULL) AS cpu_gpus,
               count(DISTINCT gpu_id) FILTER (WHERE memory_bytes IS NULL) AS memory_gpus
        FROM taken WHERE node_id = i.node_id AND begins <= i.at AND ends > i.at
    ) AS s
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(cpu_milli), 0) AS cpu_milli, coalesce(sum(memory_bytes), 0) AS memory_bytes
        FROM (SELECT DISTINCT reservation_id, cpu_milli, memory_bytes FROM taken
              WHERE node_id = i.node_id AND begins <= i.at AND ends > i.at) AS asked
    ) AS m
    WINDOW stay AS (PARTITION BY i.node_id, i.at ORDER BY c.started_at, c.reservation_id)
)
SELECT DISTINCT reservation_id AS id FROM beside WHERE cpu > all_cpu OR memory > all_memory;

-- name: gpus_needed
-- Running preemptible jobs whose time since they were asked for their GPUs is over, or whose GPUs are promised to others,
-- or in maintenance, so soon that their own time can't be renewed. `lacking` are those of shares_needed. Other jobs are asked
-- when their GPUs are idle.
SELECT r.id FROM reservations r
WHERE r.status = 'running' AND (r.preemptible OR r.preempted_at IS NOT NULL)
  AND CASE WHEN r.preempted_at IS NOT NULL THEN coalesce(r.signalled_at + r.end_signal_before, r.preempted_at) <= CAST(:now AS timestamptz)
      ELSE r.started_at + coalesce(r.min_runtime, '0') <= CAST(:now AS timestamptz) AND (r.id = ANY(CAST(:lacking AS text[])) OR EXISTS (
          SELECT FROM allocations a
          JOIN allocations o ON o.gpu_id = a.gpu_id AND o.reservation_id <> a.reservation_id AND o.released_at IS NULL
          WHERE a.reservation_id = r.id AND a.released_at IS NULL
            AND lower(o.during) <= CAST(:now AS timestamptz) + coalesce(r.end_signal_before, '0') + make_interval(secs => CAST(:needs_s AS float8)))) END
ORDER BY r.ends_at LIMIT :limit;

-- name: gpus_lent
-- The GPUs of running preemptible jobs that were not asked for them and have had their time. Those that ask for CPUs or memory
-- are left out: what they leave could be no share of the node.
SELECT r.id, a.gpu_id, r.started_at
FROM reservations r JOIN allocations a ON a.reservation_id = r.id AND a.released_at IS NULL
WHERE r.status = 'running' AND r.preemptible AND r.preempted_at IS NULL AND r.cpu_milli IS NULL AND r.memory_bytes IS NULL
  AND r.started_at + coalesce(r.min_runtime, '0') <= CAST(:now AS timestamptz)
  AND coalesce(r.end_signal_before, '0') <= CAST(:longest_lead AS interval);

-- name: leases_due
-- Running preemptible jobs whose ranges are nearly over and whose GPUs nobody else has next, and until when these last then.
-- Ends are whole multiples of a while, so that many jobs have the same. `lacking` are those of shares_needed. Rows that are
-- being changed have their turn the next time.
SELECT r.id, u.until
FROM reservations r CROSS JOIN LATERAL (
    SELECT least(r.ends_at + make_interval(secs => CAST(:turnaround_s AS float8)), date_bin(
               make_interval(secs => CAST(:while_s AS float8)), CAST(:now AS timestamptz)
               + coalesce(r.end_signal_before, '0') + make_interval(secs => CAST(:needs_s AS float8)), 'epoch')) AS until
) u
WHERE r.status = 'running' AND r.preemptible AND r.preempted_at IS NULL AND u.until > r.range_end
  AND r.id <> ALL(CAST(:lacking AS text[]))
  AND r.range_end < CAST(:now AS timestamptz) + coalesce(r.end_signal_before, '0')
                    + make_interval(secs => CAST(:needs_s AS float8) - CAST(:while_s AS float8))
  AND NOT EXISTS (
      SELECT FROM allocations a
      JOIN allocations o ON o.gpu_id = a.gpu_id AND o.reservation_id <> a.reservation_id AND o.released_at IS NULL
      WHERE a.reservation_id = r.id AND a.released_at IS NULL AND lower(o.during) < u.until)
ORDER BY r.ends_at LIMIT :limit FOR NO KEY UPDATE OF r SKIP LOCKED;

-- name: renew_leases
-- The ranges of these jobs, whose rows are locked, last longer. The planner is told of them.
WITH due AS (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:untils AS timestamptz[])) AS i (id, until)
), moved AS (
    UPDATE allocations a SET during = tstzrange(lower(a.during), d.until)
    FROM due d WHERE a.reservation_id = d.id AND a.released_at IS NULL
    RETURNING a.id
), noted AS (
    UPDATE reservations r SET range_end = d.until FROM due d WHERE r.id = d.id
    RETURNING r.id
), sent AS (
    SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id))) FROM noted
    HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM moved) AS cards, (SELECT count(*) FROM sent) AS sent;
