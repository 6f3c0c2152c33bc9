-- name: arrays_with_news
-- Arrays to which or to whose elements something has happened that was not counted yet, the longest first. Arrays to leave
-- out don't count among the rows that are scanned, so that they can't hide the others.
SELECT array_id FROM (
    SELECT id, array_id FROM array_news WHERE array_id <> ALL(CAST(:leave_out AS text[])) ORDER BY id LIMIT :scanned
) AS oldest
GROUP BY array_id ORDER BY min(id) LIMIT :limit;

-- name: take_array_news
-- Count what has happened to the elements of an array, once. Lock its row before. Nothing where the array was removed.
WITH taken AS (
    DELETE FROM array_news WHERE array_id = :id RETURNING status, exit_code
), sums AS (
    SELECT count(*) AS news, count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE status = 'failed') AS failed, count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE status = 'expired') AS expired,
           max(exit_code) FILTER (WHERE status <> 'succeeded') AS worst_exit
    FROM taken
)
UPDATE job_arrays a
SET succeeded = a.succeeded + s.succeeded, failed = a.failed + s.failed, cancelled = a.cancelled + s.cancelled,
    expired = a.expired + s.expired, worst_exit = greatest(a.worst_exit, s.worst_exit)
FROM sums s
WHERE a.id = :id
RETURNING a.id, a.size, a.parallel, a.made, a.succeeded, a.failed, a.cancelled, a.expired, a.worst_exit, s.news,
          (SELECT count(*) FROM reservations r
           WHERE r.array_id = :id AND r.finished_at IS NULL AND r.status = 'queued') AS waiting,
          (SELECT count(*) FROM reservations r
           WHERE r.array_id = :id AND r.finished_at IS NULL AND r.status <> 'queued') AS holding;

-- name: array_states
-- How far these arrays are, with what was not counted yet.
SELECT a.id, a.size, a.parallel, a.made, a.succeeded + n.succeeded AS succeeded, a.failed + n.failed AS failed,
       a.cancelled + n.cancelled AS cancelled, a.expired + n.expired AS expired, a.worst_exit, o.waiting, o.holding
FROM job_arrays a
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE n.status = 'succeeded') AS succeeded, count(*) FILTER (WHERE n.status = 'failed') AS failed,
           count(*) FILTER (WHERE n.status = 'cancelled') AS cancelled, count(*) FILTER (WHERE n.status = 'expired') AS expired
    FROM array_news n WHERE n.array_id = a.id
) n
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.status = 'queued') AS waiting, count(*) FILTER (WHERE r.status <> 'queued') AS holding
    FROM reservations r WHERE r.array_id = a.id AND r.finished_at IS NULL
) o
WHERE a.id = ANY(CAST(:ids AS text[]));

-- name: open_elements
-- Elements of an array that are not over and whose end was not asked for, in order.
SELECT id FROM reservations
WHERE array_id = :id AND finished_at IS NULL AND status <> 'ending' ORDER BY array_index LIMIT :limit;

-- name: make_elements
-- The next elements of an array: rows, events and messages in one statement. They have the place in the queue that follows
-- the array's, whenever they are made. Lock the array's row before.
WITH next AS (
    SELECT made AS first FROM job_arrays WHERE id = :id
), made AS (
    INSERT INTO reservations (id, seq, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at, project, retry_max, retry_on, preemptible,
                              min_runtime, end_signal, end_signal_before, cpu_milli, memory_bytes, shm_bytes,
                              array_size, array_id, array_index, trace)
    OVERRIDING SYSTEM VALUE
    SELECT a.id || '.' || i.index, a.seq + 1 + i.index, a.kind, a.user_id, a.name, :status, :reason_code, :reason,
           a.gpus, a.gpu_type, a.nodes, a.duration, a.priority, a.workload, a.created_at, :now, a.project, a.retry_max,
           a.retry_on, a.preemptible, a.min_runtime, a.end_signal, a.end_signal_before, a.cpu_milli, a.memory_bytes,
           a.shm_bytes, a.array_size, a.id, i.index, a.trace
    FROM reservations a, next, generate_series(next.first, next.first + :count - 1) AS i (index)
    WHERE a.id = :id
    RETURNING id, seq
), counted AS (
    UPDATE job_arrays SET made = made + :count WHERE id = :id
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason)
    SELECT id, :now, 'system', :event_kind, NULL, :status, :reason_code, :reason FROM made ORDER BY seq
), sent AS (
    INSERT INTO pgmq.q_gpu_jobs (vt, message)
    SELECT clock_timestamp(), jsonb_build_object('v', 1, 'kind', 'submitted', 'id', id) FROM made ORDER BY seq
)
SELECT count(*) FROM made;

-- name: note_array
-- There is more to do for an array.
INSERT INTO array_news (array_id) VALUES (:id);

-- name: forget_array_news
-- What happened to an array that is not there any more.
DELETE FROM array_news WHERE array_id = :id;
