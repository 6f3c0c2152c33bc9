-- name: acquire_lease
-- Acquire a free lease, or one that has expired by the monotonic time of this process. A lease whose end is impossibly
-- late was renewed before a step back of the clock that no process has seen: `back_s` is the time since its last
-- renewal.
UPDATE planner_lease p SET epoch = p.epoch + 1, holder = :holder,
       expires_at = t.counted + make_interval(secs => CAST(:ttl_s AS float8))
FROM (SELECT expires_at AS former FROM planner_lease FOR UPDATE) AS l,
     (SELECT coalesce(CAST(:counted AS timestamptz), at) AS counted, at, record
      FROM (SELECT ledger_now() AS at, CAST(c AS text) AS record FROM ledger_clock c) AS now) AS t,
     LATERAL (SELECT CASE WHEN l.former > t.counted + make_interval(secs => CAST(:longest_s AS float8) + CAST(:ttl_s AS float8))
                           AND l.former <> 'infinity' AND abs(extract(epoch FROM t.at - t.counted)) < 1
                     THEN CAST(extract(epoch FROM l.former - t.counted) AS float8) - CAST(:ttl_s AS float8) END AS back_s) AS u
WHERE l.former < t.counted OR p.holder = :holder OR u.back_s IS NOT NULL
RETURNING p.epoch, u.back_s, t.record;

-- name: renew_lease
-- Renew the lease.
UPDATE planner_lease
SET expires_at = coalesce(CAST(:counted AS timestamptz), (SELECT ledger_now())) + make_interval(secs => :ttl_s)
WHERE epoch = :epoch RETURNING epoch;

-- name: release_lease
-- Release the lease.
UPDATE planner_lease SET expires_at = '-infinity', holder = NULL WHERE epoch = :epoch;

-- name: check_epoch
-- The fence: a new lease holder waits for this transaction, or this transaction sees the new epoch.
SELECT epoch FROM planner_lease WHERE epoch = :epoch FOR SHARE;

-- name: planning_gpus
-- The inventory: every GPU with its state; the details of a node are built once per node.
WITH s AS MATERIALIZED (
    SELECT node_id AS id, available, detail FROM node_conditions
)
SELECT c.node, s.available, s.detail,
       c.gpu_id AS id, c.index AS card_index, c.gpu_type, c.uuid, c.memory_bytes, c.condition,
       n.cpu_milli, n.memory_bytes AS node_memory_bytes, n.id AS node_id, n.spare_cpu_milli, n.spare_memory_bytes
FROM card_conditions c
JOIN s ON s.id = c.node_id
JOIN nodes n ON n.id = c.node_id
ORDER BY c.node, c.index;

-- name: open_allocations
-- All open ledger rows. Those without a GPU have the id of a place on their node, see domain/pools/cpu_places.py.
SELECT reservation_id, coalesce(gpu_id, -1 - node_id * 32 - cpu_slot) AS gpu_id, lower(during) AS starts_at, upper(during) AS ends_at, held, planned, booking_id,
       held AND (SELECT r.preemptible FROM reservations r WHERE r.id = reservation_id) AS preemptible,
       cpu_milli, memory_bytes
FROM allocations WHERE released_at IS NULL;

-- name: nearest_open_allocations
-- The open ledger rows of jobs, and of the others those that begin first; one more than `limit` shows that there are more.
SELECT reservation_id, coalesce(gpu_id, -1 - node_id * 32 - cpu_slot) AS gpu_id, lower(during) AS starts_at, upper(during) AS ends_at, held, planned, booking_id,
       held AND (SELECT r.preemptible FROM reservations r WHERE r.id = reservation_id) AS preemptible,
       cpu_milli, memory_bytes
FROM allocations WHERE released_at IS NULL AND (held OR planned OR booking_id IS NOT NULL)
UNION ALL
(SELECT reservation_id, coalesce(gpu_id, -1 - node_id * 32 - cpu_slot) AS gpu_id, lower(during), upper(during), held, planned, booking_id, false, cpu_milli, memory_bytes
 FROM allocations WHERE released_at IS NULL AND NOT (held OR planned OR booking_id IS NOT NULL)
 ORDER BY lower(during), id LIMIT :limit + 1);

-- name: open_allocations_of
-- The open ledger rows of these reservations.
SELECT reservation_id, coalesce(gpu_id, -1 - node_id * 32 - cpu_slot) AS gpu_id, lower(during) AS starts_at, upper(during) AS ends_at, held, planned, booking_id,
       held AND (SELECT r.preemptible FROM reservations r WHERE r.id = reservation_id) AS preemptible,
       cpu_milli, memory_bytes
FROM allocations WHERE released_at IS NULL AND reservation_id = ANY(CAST(:ids AS text[]));

-- name: planner_news
-- The oldest visible messages to the planner, as pgmq.read would find them, and the jobs that they name as `waiting_of` reads
-- them. Each job by itself: however many messages there are, no plan reads all reservations.
SELECT n.msg_id, n.read_ct + 1 AS read_ct, n.enqueued_at, CAST(n.message AS text) AS body, w.*
FROM (SELECT msg_id, read_ct, enqueued_at, message FROM pgmq.q_gpu_jobs
      WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT :limit) AS n
LEFT JOIN LATERAL (
    SELECT id, gpus, nodes, gpu_type, preemptible,
           CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                                   ELSE duration END) AS float8) AS duration_s, priority, seq, version,
           avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
           (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at, held,
           CASE WHEN held THEN ARRAY(SELECT o.needs_id FROM open_needs(id) AS o WHERE NOT o.by_start) END AS needed_ends,
           CASE WHEN held THEN ARRAY(SELECT o.needs_id FROM open_needs(id) AS o WHERE o.by_start) END AS needed_starts
    FROM reservations
    WHERE id = n.message ->> 'id' AND status = 'queued' AND kind = 'job'
      AND (held IS NOT TRUE OR (array_size IS NULL AND booking_id IS NULL AND preemptible IS NOT TRUE AND has_few_needs(id)))
    OFFSET 0
) AS w ON true
ORDER BY n.msg_id;

-- name: waiting_of
-- The waiting ones of these jobs; of those that wait for others, those that may have a slot, with what they still wait for.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at, held,
       CASE WHEN held THEN ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE NOT n.by_start) END AS needed_ends,
       CASE WHEN held THEN ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE n.by_start) END AS needed_starts
FROM reservations
WHERE id = ANY(CAST(:ids AS text[])) AND status = 'queued' AND kind = 'job'
  AND (held IS NOT TRUE OR (array_size IS NULL AND booking_id IS NULL AND preemptible IS NOT TRUE AND has_few_needs(id)));

-- name: waiting_dependants
-- The jobs that wait for others and may have a slot, with what they still wait for: the first, over all types, and all
-- that have a slot.
SELECT id, gpus, nodes, gpu_type, preemptible, CAST(extract(epoch FROM duration) AS float8) AS duration_s, priority, seq,
       version, avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at, held,
       ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE NOT n.by_start) AS needed_ends,
       ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE n.by_start) AS needed_starts
FROM reservations
WHERE status = 'queued' AND held AND kind = 'job' AND array_size IS NULL AND booking_id IS NULL
  AND preemptible IS NOT TRUE AND has_few_needs(id)
  AND id IN ((SELECT id FROM reservations
              WHERE status = 'queued' AND held AND kind = 'job' AND array_size IS NULL AND booking_id IS NULL
                AND preemptible IS NOT TRUE
              ORDER BY line_priority, seq LIMIT :limit)
             UNION ALL
             SELECT reservation_id FROM allocations WHERE planned);

-- name: waiting_windows
-- The first jobs of the queue of every requested type; one more than the window shows that there are more.
WITH RECURSIVE types AS (
    (SELECT line_type FROM reservations WHERE status = 'queued' AND booking_id IS NULL ORDER BY line_type LIMIT 1)
    UNION ALL
    SELECT (SELECT r.line_type FROM reservations r WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.line_type > t.line_type
            ORDER BY r.line_type LIMIT 1)
    FROM types t WHERE t.line_type IS NOT NULL
)
SELECT w.* FROM types t CROSS JOIN LATERAL (
    SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = r.id) AS promised_at
    FROM reservations r
    WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.held IS NOT TRUE AND r.kind = 'job' AND r.line_type = t.line_type
    ORDER BY r.line_type, r.line_priority, r.seq LIMIT :limit
) w
WHERE t.line_type IS NOT NULL;

-- name: waiting_apart
-- Waiting jobs with a slot, anywhere in the queue, or within a booking: they are planned whatever the windows are.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at
FROM reservations
WHERE status = 'queued' AND held IS NOT TRUE AND kind = 'job' AND booking_id IS NULL
  AND id IN (SELECT reservation_id FROM allocations WHERE planned)
UNION ALL
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at
FROM reservations
WHERE status = 'queued' AND held IS NOT TRUE AND kind = 'job' AND booking_id IS NOT NULL;

-- name: waiting_without_slot
-- The first waiting jobs without a slot, over all types.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = r.id) AS promised_at
FROM reservations r
WHERE status = 'queued' AND held IS NOT TRUE AND kind = 'job' AND booking_id IS NULL
  AND NOT EXISTS (SELECT FROM allocations a WHERE a.planned AND a.reservation_id = r.id)
ORDER BY line_priority, seq LIMIT :limit;

-- name: last_with_slot
-- The last waiting jobs with a slot, over all types.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at
FROM reservations
WHERE status = 'queued' AND held IS NOT TRUE AND kind = 'job' AND booking_id IS NULL
  AND id IN (SELECT reservation_id FROM allocations WHERE planned)
ORDER BY line_priority DESC, seq DESC LIMIT :limit;

-- name: dependants_with_slot
-- The first jobs with a slot that wait for others, over all types, with what they still wait for.
SELECT id, gpus, nodes, gpu_type, preemptible, CAST(extract(epoch FROM duration) AS float8) AS duration_s, priority, seq,
       version, avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at,
       ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE NOT n.by_start) AS needed_ends,
       ARRAY(SELECT n.needs_id FROM open_needs(id) AS n WHERE n.by_start) AS needed_starts
FROM reservations
WHERE status = 'queued' AND held AND kind = 'job' AND array_size IS NULL
  AND id IN (SELECT reservation_id FROM allocations WHERE planned AND follows)
ORDER BY line_priority, seq LIMIT :limit;

-- name: others_with_slot
-- The first waiting jobs with a slot, over all types: what predictions need of them.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq,
       avoid_nodes, user_id, project, created_at, cpu_milli, memory_bytes
FROM reservations
WHERE status = 'queued' AND held IS NOT TRUE AND kind = 'job' AND booking_id IS NULL
  AND id IN (SELECT reservation_id FROM allocations WHERE planned)
ORDER BY line_priority, seq LIMIT :limit;

-- name: open_allocations_beside
-- The open ledger rows on the GPUs of a booking.
SELECT reservation_id, gpu_id, lower(during) AS starts_at, upper(during) AS ends_at, held, planned, booking_id,
       held AND (SELECT r.preemptible FROM reservations r WHERE r.id = reservation_id) AS preemptible,
       cpu_milli, memory_bytes
FROM allocations
WHERE released_at IS NULL
  AND gpu_id IN (SELECT gpu_id FROM allocations WHERE reservation_id = :id AND released_at IS NULL);

-- name: waiting_by_owner
-- How many waiting jobs of one requested type each user has, by priority, and how many of these go before a job that
-- comes now (see `standings.standing`, which this follows).
SELECT user_id, priority, count(*) AS jobs, count(*) FILTER (
    WHERE waited_s >= CAST(:longest_s AS float8)
       OR CASE WHEN CAST(:by_area AS boolean) <> coalesce(project = ANY(CAST(:others AS text[])), false)
               THEN greatest(gpus, 1) * nodes * (CAST(extract(epoch FROM duration) AS float8) + CAST(:beside_s AS float8))
               ELSE CAST(:alike_s AS float8) END
          <= CAST(:standing_s AS float8) * (1 + waited_s / CAST(:ageing_s AS float8)) ^ 2) AS ahead
FROM (
    SELECT *, greatest(0, CAST(extract(epoch FROM CAST(:now AS timestamptz) - created_at) AS float8)) AS waited_s
    FROM reservations
    WHERE status = 'queued' AND booking_id IS NULL AND held IS NOT TRUE AND kind = 'job' AND line_type = :line_type
      AND id <> :without AND (CAST(:preemptible AS boolean) OR preemptible IS NOT TRUE)
) AS waiting
GROUP BY user_id, priority;

-- name: more_waiting
-- The next jobs of one queue.
SELECT id, gpus, nodes, gpu_type, preemptible,
       CAST(extract(epoch FROM CASE WHEN preemptible THEN least(duration, coalesce(min_runtime, '0') + coalesce(end_signal_before, '0') + '5 s')
                               ELSE duration END) AS float8) AS duration_s, priority, seq, version,
       avoid_nodes, user_id, booking_id, project, created_at, cpu_milli, memory_bytes,
       (SELECT p.promised_start_at FROM start_promises p WHERE p.reservation_id = reservations.id) AS promised_at
FROM reservations
WHERE status = 'queued' AND booking_id IS NULL AND held IS NOT TRUE AND kind = 'job' AND line_type = :line_type
  AND (line_priority, seq) > (:after_priority, :after_seq)
ORDER BY line_type, line_priority, seq LIMIT :limit;

-- name: commit_starts
-- Allocate: unchanged waiting rows (an extension changes them) move to starting, with their GPUs, events and create
-- messages, in one statement. Ranges begin and end by the database's clock: with clocks of several machines, a range
-- could begin before the previous one has ended. After a step of the clock, the caller's monotonic time counts. Nothing
-- is written without the fence (see check_epoch), or if a range would end before it begins, by a stale plan or another
-- clock. The messages that led to the plan are deleted. Messages are written and deleted as pgmq.send_batch and
-- pgmq.delete do, which would plan anew at each call.
WITH time AS MATERIALIZED (
    SELECT t.at, EXISTS (SELECT FROM unnest(CAST(:range_ends AS timestamptz[])) AS i (range_end)
                         WHERE i.range_end <= t.at) AS over
    FROM (SELECT ledger_time(CAST(:counted AS timestamptz)) AS at) AS t
), fence AS (
    SELECT epoch FROM planner_lease WHERE epoch = :epoch AND NOT (SELECT over FROM time) FOR SHARE
), started AS (
    UPDATE reservations r
    SET status = :after, reason_code = :reason_code, reason = i.reason, attempt = r.attempt + 1,
        version = r.version + 1, changed_at = CAST(:now AS timestamptz), range_end = i.range_end
    FROM unnest(CAST(:ids AS text[]), CAST(:reasons AS text[]), CAST(:range_ends AS timestamptz[]),
                CAST(:versions AS integer[]))
         AS i (id, reason, range_end, version)
    WHERE r.id = i.id AND r.status = :before AND r.held IS NOT TRUE AND (i.version IS NULL OR r.version = i.version)
      AND EXISTS (SELECT FROM fence)
      -- Its next pods would have the names of existing pods that hold other GPUs.
      AND NOT EXISTS (SELECT FROM unknown_pods u WHERE u.reservation_id = r.id)
      -- Jobs of disabled users are about to be cancelled.
      AND (SELECT o.disabled_at FROM users o WHERE o.id = r.user_id) IS NULL
    RETURNING r.id, r.attempt, r.range_end, r.reason, r.booking_id, r.cpu_milli, r.memory_bytes
), slots AS (
    DELETE FROM allocations
    WHERE planned AND reservation_id IN (SELECT id FROM started WHERE id = ANY(CAST(:slotted AS text[])))
    RETURNING gpu_id
), placed AS (
    -- Own slots are deleted first: conflicts are checked once, before the first row is written.
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, booking_id, created_at, cpu_milli,
                             memory_bytes, node_id, cpu_slot)
    SELECT s.id, s.attempt, CASE WHEN g.gpu_id >= 0 THEN g.gpu_id END, g.rank, tstzrange(t.at, s.range_end), true,
           s.booking_id, t.at, s.cpu_milli, s.memory_bytes,
           CASE WHEN g.gpu_id < 0 THEN (-1 - g.gpu_id) / 32 END, CASE WHEN g.gpu_id < 0 THEN (-1 - g.gpu_id) % 32 END
    FROM time t
    CROSS JOIN started s
    JOIN unnest(CAST(:gpu_owners AS text[]), CAST(:gpu_ids AS bigint[]), CAST(:ranks AS integer[]))
         AS g (reservation_id, gpu_id, rank) ON g.reservation_id = s.id
    WHERE (SELECT count(*) FROM slots) >= 0
    RETURNING reservation_id
), forgotten AS (
    DELETE FROM wait_estimates e USING started s WHERE e.reservation_id = s.id
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason)
    SELECT id, :now, 'planner', :event_kind, :before, :after, :reason_code, reason FROM started
), sent AS (
    INSERT INTO pgmq.q_pod_operations (vt, message)
    SELECT clock_timestamp(), jsonb_build_object('v', 1, 'op', 'create', 'id', id, 'attempt', attempt) FROM started
    RETURNING msg_id
), forgotten_messages AS (
    DELETE FROM pgmq.q_gpu_jobs
    WHERE msg_id = ANY(CAST(:handled AS bigint[])) AND EXISTS (SELECT FROM fence) RETURNING msg_id
)
SELECT EXISTS (SELECT FROM fence) AS leads, (SELECT over FROM time) AS over,
       (SELECT coalesce(array_agg(id), '{}') FROM started) AS ids,
       (SELECT count(*) FROM placed) AS cards, (SELECT count(*) FROM sent) AS sent,
       (SELECT count(*) FROM forgotten_messages) AS handled;

-- name: commit_slots
-- Replace the slots of waiting jobs, under the fence (see check_epoch). Jobs that have left the queue, were changed, or
-- are being changed are left out: the change decides about the slot, too. With them, and with those whose slots were
-- `refused`, go all that follow these. The first slot comes with the promised start.
-- A slot that moves beyond it is recorded once per promise, with a step of the clock since then.
WITH RECURSIVE time AS MATERIALIZED (
    SELECT ledger_time(CAST(:counted AS timestamptz)) AS at
), fence AS (
    SELECT epoch FROM planner_lease WHERE epoch = :epoch FOR SHARE
), input AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:versions AS integer[]), CAST(:starts AS timestamptz[]),
                         CAST(:ends AS timestamptz[]), CAST(:promises AS timestamptz[]), CAST(:placed AS boolean[]),
                         CAST(:becauses AS text[]), CAST(:follows AS boolean[]))
         AS i (id, version, starts_at, ends_at, promised_at, placed, because, follows)
), locked AS MATERIALIZED (
    SELECT r.id, r.attempt, r.booking_id, r.cpu_milli, r.memory_bytes, r.held
    FROM reservations r
    WHERE r.id = ANY(CAST(:ids AS text[])) AND r.status = 'queued' AND EXISTS (SELECT FROM fence)
      -- Preemptible jobs are promised nothing.
      AND r.preemptible IS NOT TRUE
      -- A plan that knows nothing of the jobs that it waits for gives a job nothing. An array has no slot.
      AND EXISTS (SELECT FROM input i WHERE i.id = r.id AND (i.version IS NULL OR i.version = r.version)
                    AND (r.held IS NOT TRUE OR (i.follows AND r.array_size IS NULL)))
    ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED
), left_out (id) AS (
    SELECT id FROM (SELECT unnest(CAST(:refused AS text[])) UNION ALL
                    SELECT i.id FROM input i WHERE i.id NOT IN (SELECT l.id FROM locked l)) AS o (id)
    WHERE EXISTS (SELECT FROM input i WHERE i.follows)
    UNION
    SELECT d.job_id
    FROM left_out l JOIN job_dependencies d ON d.needs_id = l.id JOIN input i ON i.id = d.job_id AND i.follows
), waiting AS MATERIALIZED (
    SELECT * FROM locked WHERE id NOT IN (SELECT o.id FROM left_out o)
), removed AS (
    DELETE FROM allocations a USING waiting w WHERE a.reservation_id = w.id AND a.planned
    RETURNING a.gpu_id
), placed AS (
    -- All moving slots are deleted first: conflicts are checked once, before the first row is written.
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, booking_id, created_at,
                             cpu_milli, memory_bytes, node_id, cpu_slot, follows)
    SELECT w.id, w.attempt + 1, CASE WHEN g.gpu_id >= 0 THEN g.gpu_id END, g.rank, tstzrange(i.starts_at, i.ends_at),
           false, true, w.booking_id, (SELECT at FROM time), w.cpu_milli, w.memory_bytes,
           CASE WHEN g.gpu_id < 0 THEN (-1 - g.gpu_id) / 32 END, CASE WHEN g.gpu_id < 0 THEN (-1 - g.gpu_id) % 32 END,
           w.held
    FROM waiting w
    JOIN input i ON i.id = w.id
    JOIN unnest(CAST(:gpu_owners AS text[]), CAST(:gpu_ids AS bigint[]), CAST(:ranks AS integer[]))
         AS g (reservation_id, gpu_id, rank) ON g.reservation_id = w.id
    WHERE (SELECT count(*) FROM removed) >= 0
    RETURNING reservation_id
), promised AS (
    INSERT INTO start_promises (reservation_id, promised_start_at, made_at, first_p50, first_p90)
    SELECT w.id, i.promised_at, (SELECT at FROM time), e.estimated_start_p50, e.estimated_start_p90
    FROM waiting w JOIN input i ON i.id = w.id
    LEFT JOIN wait_estimates e ON e.reservation_id = w.id AND e.position IS NOT NULL
    WHERE i.placed
    ON CONFLICT (reservation_id) DO NOTHING
), missed AS (
    UPDATE start_promises p SET missed_at = :now
    FROM waiting w JOIN input i ON i.id = w.id
    WHERE p.reservation_id = w.id AND p.missed_at IS NULL AND (NOT i.placed OR i.starts_at > p.promised_start_at)
    RETURNING p.reservation_id, p.promised_start_at, i.because, CASE WHEN i.placed THEN i.starts_at END AS estimated,
              (SELECT s.because FROM clock_steps s WHERE s.at > p.made_at) AS step
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, reason, data)
    SELECT reservation_id, :now, 'planner', 'start_promise_missed', concat_ws(' ', because, step),
           jsonb_build_object('promised_start_at', promised_start_at, 'because', concat_ws(' ', because, step),
                              'estimated_start_at', estimated)
    FROM missed
)
SELECT EXISTS (SELECT FROM fence) AS leads, (SELECT coalesce(array_agg(id), '{}') FROM waiting) AS ids,
       (SELECT count(*) FROM placed) AS cards;

-- name: record_late_starts
-- Record, once per promise, that the promised start has passed while other reservations still have the GPUs.
WITH missed AS (
    UPDATE start_promises p SET missed_at = :now
    FROM unnest(CAST(:ids AS text[]), CAST(:becauses AS text[]), CAST(:lates AS text[])) AS i (id, because, late)
    JOIN reservations r ON r.id = i.id AND r.status = 'queued'
    WHERE p.reservation_id = i.id AND p.missed_at IS NULL
      AND p.promised_start_at < (SELECT ledger_time(CAST(:counted AS timestamptz))) - make_interval(secs => :slack_s)
    RETURNING p.reservation_id, p.promised_start_at, i.late,
              concat_ws(' ', i.because, (SELECT s.because FROM clock_steps s WHERE s.at > p.made_at)) AS because
)
INSERT INTO events (reservation_id, at, actor, kind, reason, data)
SELECT reservation_id, :now, 'planner', 'start_promise_missed', because,
       jsonb_build_object('promised_start_at', promised_start_at, 'because', because, 'late', CAST(late AS jsonb))
FROM missed;

-- name: record_missed_starts
-- These jobs no longer wait: they have started or ended at the given time. Missed promised starts that were not noticed
-- earlier (without a plan, for example) are recorded once per promise. Jobs that got their GPUs in time have some more
-- time until their pods run.
WITH ended AS (
    SELECT i.id, i.at, i.started, EXISTS (
        SELECT FROM allocations a JOIN reservations r ON r.id = a.reservation_id AND r.attempt = a.attempt
        WHERE a.reservation_id = i.id AND NOT a.planned
          AND lower(a.during) <= p.promised_start_at + make_interval(secs => :slack_s)) AS given
    FROM unnest(CAST(:ids AS text[]), CAST(:ats AS timestamptz[]), CAST(:starteds AS boolean[])) AS i (id, at, started)
    JOIN start_promises p ON p.reservation_id = i.id
    WHERE p.promised_start_at < i.at - make_interval(secs => :slack_s)
), missed AS (
    UPDATE start_promises p SET missed_at = :now
    FROM ended e
    WHERE p.reservation_id = e.id AND p.missed_at IS NULL
      AND (NOT e.given OR p.promised_start_at < e.at - make_interval(secs => :pods_slack_s))
    RETURNING p.reservation_id, p.promised_start_at, CASE WHEN e.started THEN e.at END AS started_at,
              concat_ws(' ', CASE WHEN NOT e.started THEN :never_started WHEN e.given THEN :ran_late ELSE :given_late END,
                        (SELECT s.because FROM clock_steps s WHERE s.at > p.made_at)) AS because
)
INSERT INTO events (reservation_id, at, actor, kind, reason, data)
SELECT reservation_id, :now, 'system', 'start_promise_missed', because,
       jsonb_build_object('promised_start_at', promised_start_at, 'because', because, 'started_at', started_at)
FROM missed;

-- name: forget_messages
-- Delete well-formed messages (contracts.JobMessage); malformed ones stay, to be reported.
WITH fence AS (
    SELECT epoch FROM planner_lease WHERE epoch = :epoch FOR SHARE
), forgotten AS (
    DELETE FROM pgmq.q_gpu_jobs WHERE msg_id IN (
        SELECT msg_id FROM pgmq.q_gpu_jobs
        WHERE message @> '{"v": 1}' AND (
            message ->> 'kind' = 'inventory'
            OR (message ->> 'kind' IN ('submitted', 'changed') AND jsonb_typeof(message -> 'id') = 'string'
                AND length(message ->> 'id') <= 64)
        )
        ORDER BY msg_id LIMIT :limit
    ) AND EXISTS (SELECT FROM fence)
    RETURNING msg_id
)
SELECT EXISTS (SELECT FROM fence) AS leads, (SELECT count(*) FROM forgotten) AS forgotten;

-- name: publish_estimates
-- Write estimates of waiting jobs that have changed. Jobs that are no longer among the first of the queue, or have left
-- it, are not written. Predicted starts drift as time passes: they are written again once they are off by a fiftieth of
-- the time until then, or half a minute, and pages are woken for that alone twice a minute at most. The first prediction is
-- kept with the promise; commit_slots does that for a promise that comes after it. What is predicted of jobs that wait for
-- others is not kept: it is no part of what predictions are judged by.
WITH outdated AS (
    DELETE FROM wait_estimates e
    WHERE NOT EXISTS (SELECT FROM unnest(CAST(:ids AS text[])) AS told (id) WHERE told.id = e.reservation_id)
), told AS (
    INSERT INTO wait_estimates AS e (reservation_id, position, reason_code, reason, estimated_start_at,
                                     estimated_start_p50, estimated_start_p90, planned_at)
    SELECT i.id, i.position, i.reason_code, i.reason, i.estimated_start_at, i.p50, i.p90,
           CASE WHEN c.changed OR w.woken_at <= CAST(:now AS timestamptz) - interval '30 seconds'
                THEN CAST(:now AS timestamptz) ELSE o.planned_at END
    FROM unnest(CAST(:ids AS text[]), CAST(:positions AS integer[]), CAST(:reason_codes AS text[]),
                CAST(:reasons AS text[]), CAST(:estimated AS timestamptz[]), CAST(:p50s AS timestamptz[]),
                CAST(:p90s AS timestamptz[]))
         AS i (id, position, reason_code, reason, estimated_start_at, p50, p90)
    JOIN reservations r ON r.id = i.id AND r.status = 'queued'
    LEFT JOIN wait_estimates o ON o.reservation_id = i.id
    CROSS JOIN (SELECT max(planned_at) AS woken_at FROM wait_estimates) AS w
    CROSS JOIN LATERAL (
        SELECT (o.position, o.reason_code, o.reason, o.estimated_start_at, o.estimated_start_p50 IS NULL)
               IS DISTINCT FROM (i.position, i.reason_code, i.reason, i.estimated_start_at, i.p50 IS NULL) AS changed,
               greatest(interval '30 seconds', (i.p50 - CAST(:now AS timestamptz)) / 50) AS p50_drift,
               greatest(interval '30 seconds', (i.p90 - CAST(:now AS timestamptz)) / 50) AS p90_drift
    ) AS c
    WHERE c.changed OR o.estimated_start_p50 NOT BETWEEN i.p50 - c.p50_drift AND i.p50 + c.p50_drift
       OR o.estimated_start_p90 NOT BETWEEN i.p90 - c.p90_drift AND i.p90 + c.p90_drift
    ON CONFLICT (reservation_id) DO UPDATE
    SET position = excluded.position, reason_code = excluded.reason_code, reason = excluded.reason,
        estimated_start_at = excluded.estimated_start_at, estimated_start_p50 = excluded.estimated_start_p50,
        estimated_start_p90 = excluded.estimated_start_p90, planned_at = excluded.planned_at
    RETURNING reservation_id, position, estimated_start_p50, estimated_start_p90
)
UPDATE start_promises p SET first_p50 = t.estimated_start_p50, first_p90 = t.estimated_start_p90
FROM told t
WHERE p.reservation_id = t.reservation_id AND p.first_p50 IS NULL AND t.estimated_start_p50 IS NOT NULL
  AND t.position IS NOT NULL;

-- name: run_times
-- Of the newest jobs that ended after a time (null: ever), oldest first, those that ran as they liked: they started,
-- and their end has one of these reasons. Jobs within bookings and without GPUs are left out. The limit is on what is looked at.
SELECT owner, gpus, nodes, gpu_type, asked, ran, ended_at FROM (
    SELECT user_id AS owner, gpus, nodes, gpu_type, CAST(extract(epoch FROM duration) AS float8) AS asked,
           CAST(extract(epoch FROM finished_at - started_at) AS float8) AS ran, finished_at AS ended_at, id,
           kind, reason_code, array_size IS NOT NULL AND array_id IS NULL AS is_array
    FROM reservations
    WHERE finished_at IS NOT NULL AND booking_id IS NULL
      AND finished_at > coalesce(CAST(:since AS timestamptz), '-infinity')
    ORDER BY finished_at DESC, id DESC LIMIT :limit
) AS newest
WHERE kind = 'job' AND gpus > 0 AND NOT is_array AND ran > 0 AND reason_code = ANY(CAST(:reason_codes AS text[]))
ORDER BY ended_at, id;
