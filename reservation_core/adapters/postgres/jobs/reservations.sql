-- name: lock_reservations
-- Read rows and keep others from changing them, always in the same order.
SELECT r.*, u.name AS user_name FROM reservations r JOIN users u ON u.id = r.user_id
WHERE r.id = ANY(CAST(:ids AS text[])) ORDER BY r.id FOR NO KEY UPDATE OF r;

-- name: get_reservations
-- Read rows.
SELECT r.*, u.name AS user_name FROM reservations r JOIN users u ON u.id = r.user_id
WHERE r.id = ANY(CAST(:ids AS text[]));

-- name: reservation_allocations
-- The GPUs of each reservation's newest attempt; of jobs without GPUs the place on their node, see domain/pools/cpu_places.py.
SELECT a.reservation_id, coalesce(a.gpu_id, -1 - a.node_id * 32 - a.cpu_slot) AS gpu_id, n.name AS node,
       coalesce(g.index, -1) AS card_index, g.gpu_type, g.uuid, a.rank, lower(a.during) AS starts_at,
       upper(a.during) AS ends_at, a.held, n.gpu_resource,
       (SELECT min(u.name) FROM unknown_pods u WHERE u.node = n.name AND g.index = ANY (u.gpu_indices)) AS claimed_by
FROM allocations a
JOIN reservations r ON r.id = a.reservation_id AND r.attempt = a.attempt
LEFT JOIN gpus g ON g.id = a.gpu_id
JOIN nodes n ON n.id = coalesce(g.node_id, a.node_id)
WHERE a.reservation_id = ANY(CAST(:ids AS text[]))
ORDER BY a.reservation_id, a.rank, g.index;

-- name: last_released
-- When the GPUs of the attempt before each reservation's newest one were released.
SELECT a.reservation_id, max(a.released_at) AS released_at
FROM allocations a JOIN reservations r ON r.id = a.reservation_id AND r.attempt = a.attempt + 1
WHERE a.reservation_id = ANY(CAST(:ids AS text[])) AND a.released_at IS NOT NULL
GROUP BY a.reservation_id;

-- name: update_reservations
-- Write rows after a transition; the version must still be the one that was read.
UPDATE reservations r
SET status = i.status, reason_code = i.reason_code, reason = i.reason,
    duration = make_interval(secs => i.duration_s), outcome = i.outcome, range_end = i.range_end,
    started_at = i.started_at, ends_at = i.ends_at, finished_at = i.finished_at, exit_code = i.exit_code,
    warned_s = i.warned_s, attempt = i.attempt, held = i.held, retried = i.retried, idle_since = i.idle_since,
    idle_warned_at = i.idle_warned_at, idle_release_at = i.idle_release_at, idle_from = i.idle_from,
    signalled_at = i.signalled_at, preempted_at = i.preempted_at, preemptions = i.preemptions, version = r.version + 1,
    changed_at = CASE WHEN r.status = i.status AND r.attempt = i.attempt THEN r.changed_at
                      ELSE CAST(:now AS timestamptz) END
FROM unnest(
    CAST(:ids AS text[]), CAST(:versions AS integer[]), CAST(:statuses AS text[]), CAST(:reason_codes AS text[]),
    CAST(:reasons AS text[]), CAST(:durations AS float8[]), CAST(:outcomes AS text[]),
    CAST(:range_ends AS timestamptz[]), CAST(:started_ats AS timestamptz[]), CAST(:ends_ats AS timestamptz[]),
    CAST(:finished_ats AS timestamptz[]), CAST(:exit_codes AS integer[]), CAST(:warned AS integer[]),
    CAST(:attempts AS integer[]), CAST(:helds AS boolean[]), CAST(:retried AS integer[]),
    CAST(:idle_sinces AS timestamptz[]), CAST(:idle_warned_ats AS timestamptz[]),
    CAST(:idle_release_ats AS timestamptz[]), CAST(:idle_froms AS timestamptz[]),
    CAST(:signalled_ats AS timestamptz[]), CAST(:preempted_ats AS timestamptz[]), CAST(:preemptions AS integer[])
) AS i (id, version, status, reason_code, reason, duration_s, outcome, range_end, started_at, ends_at, finished_at,
        exit_code, warned_s, attempt, held, retried, idle_since, idle_warned_at, idle_release_at, idle_from,
        signalled_at, preempted_at, preemptions)
WHERE r.id = i.id AND r.version = i.version;

-- name: unsettle_reservations
-- Until when pods may come to be that were asked for and not answered. Nothing that is decided of a row depends on it
-- but the letting go of its cards, which its pod lock keeps apart from this.
UPDATE reservations r SET unsettled_until = greatest(r.unsettled_until, CAST(:until AS timestamptz))
FROM (SELECT id, unsettled_until FROM reservations WHERE id = ANY(CAST(:ids AS text[])) ORDER BY id
      FOR NO KEY UPDATE) AS o
WHERE r.id = o.id
RETURNING r.id, o.unsettled_until AS former;

-- name: settle_reservations
-- All was answered that was noted since.
UPDATE reservations r SET unsettled_until = i.until
FROM unnest(CAST(:ids AS text[]), CAST(:untils AS timestamptz[])) AS i (id, until)
WHERE r.id = i.id;

-- name: forget_waiting
-- Who has left the line is told nothing more about it, and needs no slot. Who is planned anew has asked for something
-- else than what was promised.
WITH slots AS (
    DELETE FROM allocations WHERE planned AND reservation_id = ANY(CAST(:ids AS text[]))
), promises AS (
    DELETE FROM start_promises WHERE reservation_id = ANY(CAST(:anew AS text[]))
)
DELETE FROM wait_estimates WHERE reservation_id = ANY(CAST(:ids AS text[]));

-- name: move_range_ends
-- The open rows of these reservations now end then; an empty range is not a range.
UPDATE allocations a
SET during = tstzrange(lower(a.during), greatest(i.range_end, lower(a.during) + interval '1 microsecond')),
    created_at = CASE WHEN i.range_end > upper(a.during) THEN
                      (SELECT ledger_time(CAST(:counted AS timestamptz)))
                      ELSE a.created_at END
FROM unnest(CAST(:ids AS text[]), CAST(:range_ends AS timestamptz[])) AS i (id, range_end)
WHERE a.reservation_id = i.id AND a.released_at IS NULL AND NOT a.planned;

-- name: in_the_way
-- What the first of these would meet if they lasted so much longer: somebody's range, or the end of their own booking. Of
-- several that begin at once it is the one that was submitted first.
SELECT r.id, r.user_id, u.name AS user_name, lower(o.during) AS starts_at,
       CASE WHEN o.planned THEN 'planned' ELSE r.kind END AS what, r.seq
FROM unnest(CAST(:ids AS text[]), CAST(:range_ends AS timestamptz[])) AS i (id, range_end)
JOIN allocations a ON a.reservation_id = i.id AND a.released_at IS NULL AND NOT a.planned
JOIN allocations o ON o.gpu_id = a.gpu_id AND o.released_at IS NULL AND o.reservation_id <> a.reservation_id
     AND (o.booking_id IS NULL) = (a.booking_id IS NULL)
     AND o.during && tstzrange(upper(a.during), greatest(i.range_end, upper(a.during)))
JOIN reservations r ON r.id = o.reservation_id
JOIN users u ON u.id = r.user_id
UNION ALL
SELECT r.id, r.user_id, u.name, lower(o.during), 'place', r.seq
FROM unnest(CAST(:ids AS text[]), CAST(:range_ends AS timestamptz[])) AS i (id, range_end)
JOIN allocations a ON a.reservation_id = i.id AND a.released_at IS NULL AND NOT a.planned
JOIN allocations o ON o.node_id = a.node_id AND o.released_at IS NULL AND o.reservation_id <> a.reservation_id
     AND lower(o.during) >= upper(a.during)
     AND o.during && tstzrange(upper(a.during), greatest(i.range_end, upper(a.during)))
JOIN reservations r ON r.id = o.reservation_id
JOIN users u ON u.id = r.user_id
UNION ALL
SELECT a.booking_id, 0, '', upper(b.during), 'outside', 0
FROM unnest(CAST(:ids AS text[]), CAST(:range_ends AS timestamptz[])) AS i (id, range_end)
JOIN allocations a ON a.reservation_id = i.id AND a.released_at IS NULL AND NOT a.planned
JOIN allocations b ON b.reservation_id = a.booking_id AND b.gpu_id = a.gpu_id AND b.released_at IS NULL
WHERE upper(b.during) < i.range_end
ORDER BY starts_at, seq LIMIT 1;

-- name: release_allocations
-- Close the open rows: the hold is over, and what lay in the future goes back to the calendar. The database's clock, as
-- where ranges begin (see commit_starts).
UPDATE allocations a
SET held = false, released_at = t.at, ran_from = i.ran_from,
    during = tstzrange(lower(a.during),
                       least(upper(a.during), greatest(t.at, lower(a.during) + interval '1 microsecond')))
FROM (SELECT ledger_time(CAST(:counted AS timestamptz)) AS at) AS t,
     unnest(CAST(:ids AS text[]), CAST(:ran_froms AS timestamptz[])) AS i (id, ran_from)
WHERE a.reservation_id = i.id AND a.released_at IS NULL;

-- name: avoid_nodes
-- These could not start where they are: the nodes of the newest attempt join those to avoid.
UPDATE reservations r
SET avoid_nodes = (
    SELECT array_agg(DISTINCT names.name ORDER BY names.name)
    FROM (SELECT unnest(r.avoid_nodes) AS name
          UNION ALL
          SELECT n.name FROM allocations a LEFT JOIN gpus g ON g.id = a.gpu_id
          JOIN nodes n ON n.id = coalesce(g.node_id, a.node_id)
          WHERE a.reservation_id = r.id AND a.attempt = r.attempt) AS names)
WHERE r.id = ANY(CAST(:ids AS text[]));

-- name: clear_slots_on
-- Slots of waiting jobs on cards that pods hold already; the planner is told, and gives these jobs others.
WITH cleared AS (
    DELETE FROM allocations a
    WHERE a.planned AND a.reservation_id IN (
        SELECT s.reservation_id FROM unnest(CAST(:nodes AS text[]), CAST(:indices AS integer[]),
                                            CAST(:range_ends AS timestamptz[])) AS i (node, index, range_end)
        JOIN nodes n ON n.name = i.node
        JOIN gpus g ON g.node_id = n.id AND g.index = i.index
        JOIN allocations s ON s.gpu_id = g.id AND s.planned
        WHERE lower(s.during) < i.range_end)
    RETURNING a.reservation_id
), ids AS (
    SELECT DISTINCT reservation_id AS id FROM cleared
)
SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)))
FROM ids HAVING count(*) > 0;

-- name: take_cards
-- Cards that the pods of an adopted reservation hold already. The ranges begin now: the past has been told otherwise.
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT i.id, i.attempt, g.id, i.rank,
       tstzrange(t.at, greatest(i.range_end, t.at + interval '1 second')), true, t.at
FROM (SELECT ledger_time(CAST(:counted AS timestamptz)) AS at) AS t
CROSS JOIN unnest(CAST(:ids AS text[]), CAST(:attempts AS integer[]), CAST(:nodes AS text[]),
                  CAST(:indices AS integer[]), CAST(:ranks AS integer[]), CAST(:range_ends AS timestamptz[]))
     AS i (id, attempt, node, index, rank, range_end)
JOIN nodes n ON n.name = i.node
JOIN gpus g ON g.node_id = n.id AND g.index = i.index;

-- name: take_places
-- The same for pods without GPUs: a place that nobody has, now or later. Slots there are given up as for GPUs.
INSERT INTO allocations (reservation_id, attempt, node_id, cpu_slot, rank, during, held, created_at, cpu_milli, memory_bytes)
SELECT i.id, i.attempt, n.id, p.place, i.rank,
       tstzrange(t.at, greatest(i.range_end, t.at + interval '1 second')), true, t.at, r.cpu_milli, r.memory_bytes
FROM (SELECT ledger_time(CAST(:counted AS timestamptz)) AS at) AS t
CROSS JOIN unnest(CAST(:ids AS text[]), CAST(:attempts AS integer[]), CAST(:nodes AS text[]),
                  CAST(:ranks AS integer[]), CAST(:range_ends AS timestamptz[]))
     AS i (id, attempt, node, rank, range_end)
JOIN reservations r ON r.id = i.id
JOIN nodes n ON n.name = i.node
CROSS JOIN LATERAL (
    SELECT place FROM generate_series(0, 31) AS place
    WHERE NOT EXISTS (SELECT FROM allocations a
                      WHERE a.node_id = n.id AND a.cpu_slot = place AND a.released_at IS NULL)
    ORDER BY place LIMIT 1
) AS p;

-- name: clear_slots_of_places
-- Slots of waiting jobs without GPUs on the nodes where such pods were found.
WITH cleared AS (
    DELETE FROM allocations a USING nodes n
    WHERE a.planned AND a.node_id = n.id AND n.name = ANY(CAST(:nodes AS text[]))
    RETURNING a.reservation_id
), ids AS (
    SELECT DISTINCT reservation_id AS id FROM cleared
)
SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)))
FROM ids HAVING count(*) > 0;

-- name: record_reservation_events
-- The append-only record of transitions, in the order they were decided.
INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
SELECT i.id, i.at, i.actor, i.kind, i.before, i.after, i.reason_code, i.reason, CAST(i.data AS jsonb)
FROM unnest(
    CAST(:ids AS text[]), CAST(:ats AS timestamptz[]), CAST(:actors AS text[]), CAST(:kinds AS text[]),
    CAST(:befores AS text[]), CAST(:afters AS text[]), CAST(:reason_codes AS text[]), CAST(:reasons AS text[]),
    CAST(:datas AS text[])
) WITH ORDINALITY AS i (id, at, actor, kind, before, after, reason_code, reason, data, place)
ORDER BY i.place;

-- name: due_reservations
-- Running past their end, the longest overdue first.
SELECT id FROM reservations WHERE status = 'running' AND ends_at <= CAST(:now AS timestamptz)
ORDER BY ends_at LIMIT :limit;

-- name: next_end
-- When the next of those that run has to end.
SELECT min(ends_at) AS ends_at FROM reservations WHERE status = 'running';

-- name: warnable_reservations
-- Running, near enough to their end for a warning that was not given yet.
SELECT r.id FROM reservations r
WHERE r.status = 'running' AND r.ends_at <= CAST(:now AS timestamptz) + make_interval(secs => :farthest_s)
  AND EXISTS (
      SELECT 1 FROM unnest(CAST(:thresholds AS integer[])) AS t (before_s)
      WHERE r.ends_at <= CAST(:now AS timestamptz) + make_interval(secs => t.before_s)
        AND (r.warned_s IS NULL OR r.warned_s > t.before_s)
        AND r.duration > make_interval(secs => t.before_s)
  )
ORDER BY r.ends_at LIMIT :limit;

-- name: stuck_reservations
-- Starting or ending for longer than they should, the oldest of each: ends that are stuck for long hide no start.
(SELECT id FROM reservations WHERE status = 'starting' AND changed_at < CAST(:starting_before AS timestamptz)
 ORDER BY changed_at LIMIT :limit)
UNION ALL
(SELECT id FROM reservations WHERE status = 'ending' AND changed_at < CAST(:ending_before AS timestamptz)
 ORDER BY changed_at LIMIT :limit);

-- name: live_reservations
-- All that may have pods.
SELECT r.*, u.name AS user_name FROM reservations r JOIN users u ON u.id = r.user_id
WHERE r.status IN ('starting', 'running', 'ending');

-- name: resend_pod_operations
-- Say again what should happen to the pods of rows that still need it, unless that is in the queue already: however
-- long the cluster is down, the queue holds one such message for each row.
WITH fitting AS (
    SELECT jsonb_build_object('v', 1, 'op', CASE status WHEN 'starting' THEN 'create' ELSE 'delete' END,
                              'id', id, 'attempt', attempt) AS message
    FROM reservations
    WHERE id = ANY(CAST(:ids AS text[])) AND status IN ('starting', 'ending') AND attempt >= 1
)
SELECT pgmq.send_batch('pod_operations', array_agg(message)) FROM fitting
WHERE NOT EXISTS (SELECT FROM pgmq.q_pod_operations q WHERE q.message = fitting.message)
HAVING count(*) > 0;

-- name: move_to_end
-- The last places in the queue for these, as if they were submitted now. Their rows are locked.
UPDATE reservations SET seq = DEFAULT WHERE id = ANY(CAST(:ids AS text[]));
