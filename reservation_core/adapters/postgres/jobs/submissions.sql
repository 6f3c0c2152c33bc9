-- name: submit_reservations
-- Store a batch: idempotency keys, rows, events and messages in one statement. Of those that name the same key, in this
-- batch or before, the first that may be is stored. Keys are taken in their own order, so that two batches never wait in a circle.
-- The batch is one JSON document: for the driver that is a tenth of the work of an array for each column. Messages are
-- written as pgmq.send_batch writes them, which would plan its insert anew at each call: a fifth of all work here.
WITH asked AS (
    SELECT *,
           -- Few jobs name a booking or a project, and those who don't pay nothing for what is asked of the others.
           ((booking_id IS NULL AND project IS NULL)
            OR (may_name(user_id, booking_id, project, gpus, nodes, gpu_type)
                AND may_ask_in_booking(booking_id, gpus, gpu_type, cpu_milli, coalesce(memory_bytes, shm_bytes))))
           AND (gpus > 0 OR is_kept_somewhere(cpu_milli, memory_bytes))
           -- Whose token a process still believes may have been disabled since.
           AND (SELECT u.disabled_at FROM users u WHERE u.id = user_id) IS NULL AS usable
    FROM ROWS FROM (
        json_to_recordset(CAST(:batch AS json)) AS (
            id text, kind text, user_id bigint, name text, gpus integer, gpu_type text, nodes integer,
            duration_s float8, priority integer, workload jsonb, actor text, key text, request_hash text, answer text,
            created_at timestamptz, booking_id text, project text, inactivity_s float8, held boolean,
            retry_max integer, retry_on text[], array_size integer, array_parallel integer, preemptible boolean,
            min_runtime_s float8, end_signal text, end_signal_before_s float8, cpu_milli bigint, memory_bytes bigint,
            shm_bytes bigint, trace text
        )
    ) WITH ORDINALITY AS i (
        id, kind, user_id, name, gpus, gpu_type, nodes, duration_s, priority, workload, actor, key, request_hash, answer,
        created_at, booking_id, project, inactivity_s, held, retry_max, retry_on, array_size, array_parallel, preemptible,
        min_runtime_s, end_signal, end_signal_before_s, cpu_milli, memory_bytes, shm_bytes, trace, place
    )
), input AS (
    SELECT *, row_number() OVER (PARTITION BY user_id, key, usable ORDER BY place) AS turn FROM asked
), keys AS (
    INSERT INTO idempotency_keys (user_id, key, request_hash, status, answer, created_at)
    SELECT user_id, key, decode(request_hash, 'hex'), 202, convert_to(answer, 'UTF8'), CAST(:now AS timestamptz)
    FROM input WHERE key IS NOT NULL AND turn = 1 AND usable ORDER BY user_id, key
    ON CONFLICT (user_id, key) DO NOTHING
    RETURNING user_id, key
), stored AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at, booking_id, project, inactivity, held,
                              retry_max, retry_on, array_size, array_parallel, preemptible, min_runtime, end_signal,
                              end_signal_before, cpu_milli, memory_bytes, shm_bytes, trace)
    SELECT i.id, i.kind, i.user_id, i.name, :status, :reason_code, :reason, i.gpus, i.gpu_type, i.nodes,
           make_interval(secs => i.duration_s), i.priority, i.workload, i.created_at, :now,
           i.booking_id, i.project, make_interval(secs => i.inactivity_s), i.held, i.retry_max, i.retry_on,
           i.array_size, i.array_parallel, i.preemptible, make_interval(secs => i.min_runtime_s), i.end_signal,
           make_interval(secs => i.end_signal_before_s), i.cpu_milli, i.memory_bytes, i.shm_bytes, i.trace
    FROM input i LEFT JOIN keys k ON k.user_id = i.user_id AND k.key = i.key
    WHERE i.usable AND (i.key IS NULL OR (k.key IS NOT NULL AND i.turn = 1))
    ORDER BY i.place
    RETURNING id, seq
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason)
    SELECT s.id, :now, i.actor, :event_kind, NULL, :status, :reason_code, :reason
    FROM stored s JOIN input i ON i.id = s.id ORDER BY s.seq
), sent AS (
    INSERT INTO pgmq.q_gpu_jobs (vt, message)
    SELECT clock_timestamp(), jsonb_build_object('v', 1, 'kind', 'submitted', 'id', id) FROM stored ORDER BY seq
    RETURNING msg_id
)
SELECT id, (SELECT count(*) FROM sent) AS messages FROM stored;

-- name: may_be_stored
-- Whether such a job would be stored, see `submit_reservations`.
SELECT may_name(:user_id, :booking_id, :project, :gpus, :nodes, :gpu_type)
       AND may_ask_in_booking(:booking_id, :gpus, :gpu_type, :cpu_milli, :memory_bytes)
       AND (CAST(:gpus AS integer) > 0 OR is_kept_somewhere(:cpu_milli, :memory_bytes))
       AND (SELECT disabled_at FROM users WHERE id = :user_id) IS NULL;

-- name: kept_by_nodes
-- What nodes keep for jobs without GPUs.
SELECT id, name, spare_cpu_milli, spare_memory_bytes FROM nodes
WHERE removed_at IS NULL AND spare_cpu_milli > 0 AND spare_memory_bytes > 0
  AND EXISTS (SELECT FROM gpus WHERE gpus.node_id = nodes.id);

-- name: disabled_of
-- Who of these is disabled.
SELECT id FROM users WHERE id = ANY(CAST(:ids AS bigint[])) AND disabled_at IS NOT NULL;

-- name: bookings_named
-- The bookings that jobs named which could not be stored.
SELECT r.id, r.user_id, r.status, r.project, k.ends_at <= (SELECT ledger_now()) AS over
FROM reservations r JOIN bookings k ON k.id = r.id WHERE r.id = ANY(CAST(:ids AS text[]));

-- name: least_share_in_booking
-- On how many nodes of a booking so many GPUs of a type are, and the least share that these are of one; 0: not known.
SELECT nodes, cpu_milli, memory_bytes FROM least_share_in_booking(:booking_id, :gpus, :gpu_type);

-- name: stored_answers
-- What these Idempotency-Keys were answered with.
SELECT user_id, key, request_hash, status, answer FROM idempotency_keys
WHERE (user_id, key) IN (
    SELECT * FROM unnest(CAST(:user_ids AS bigint[]), CAST(:keys AS text[]))
);
