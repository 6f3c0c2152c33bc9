-- Maintenance windows. A window is a reservation with GPUs in the calendar, like a booking.

-- name: cards_for_maintenance
-- All GPUs of nodes, and GPUs by node and index.
SELECT g.id AS gpu_id, n.name AS node, g.index AS card_index
FROM gpus g JOIN nodes n ON n.id = g.node_id
WHERE n.name = ANY(CAST(:nodes AS text[]))
   OR (n.name, g.index) IN (SELECT * FROM unnest(CAST(:gpu_nodes AS text[]), CAST(:gpu_indices AS integer[])))
ORDER BY n.name, g.index;

-- name: taken_by_others
-- Open ledger rows of GPUs within a time, in both layers.
SELECT a.reservation_id, r.kind, a.planned, a.booking_id, upper(a.during) AS ends_at
FROM allocations a JOIN reservations r ON r.id = a.reservation_id
WHERE a.released_at IS NULL AND a.gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
  AND a.during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
ORDER BY a.reservation_id;

-- name: live_jobs_within
-- Jobs that hold GPUs within bookings.
SELECT id FROM reservations
WHERE booking_id = ANY(CAST(:ids AS text[])) AND status IN ('starting', 'running', 'ending') ORDER BY id;

-- name: drop_slots_for_maintenance
-- Drop the slots of waiting jobs, record why, and notify the planner.
WITH dropped AS (
    DELETE FROM allocations WHERE reservation_id = ANY(CAST(:ids AS text[])) AND planned RETURNING reservation_id
), affected AS (
    SELECT r.id, r.status, r.reason_code, r.reason, u.name AS user_name
    FROM reservations r JOIN users u ON u.id = r.user_id
    WHERE r.id IN (SELECT reservation_id FROM dropped)
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT id, CAST(:now AS timestamptz), :actor, :kind, status, status, reason_code, reason, CAST(:data AS jsonb)
    FROM affected ORDER BY id
), sent AS (
    SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)))
    FROM affected HAVING count(*) > 0
)
SELECT id, user_name, (SELECT count(*) FROM sent) AS sent FROM affected ORDER BY id;

-- name: add_window
-- Store a window with its ledger rows, event and message, in one statement.
WITH stored AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, workload,
                              created_at, changed_at)
    VALUES (:id, 'maintenance', :user_id, :status, 'maintenance', :reason, :gpus, 1,
            CAST(:end AS timestamptz) - CAST(:start AS timestamptz), 0, '{}', :now, :now)
    RETURNING id
), opened AS (
    INSERT INTO maintenance_windows (id, gpu_ids, starts_at, ends_at, reason, affected, whole_nodes)
    VALUES (:id, CAST(:gpu_ids AS bigint[]), :start, :end, :reason, CAST(:affected AS jsonb),
            CAST(:whole_nodes AS text[]))
), placed AS (
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
    SELECT s.id, 0, c.gpu_id, 0, tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz)), false, :now
    FROM stored s CROSS JOIN unnest(CAST(:gpu_ids AS bigint[])) AS c (gpu_id) ORDER BY c.gpu_id
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT id, :now, :actor, 'maintenance_planned', NULL, :status, 'maintenance', :reason,
           jsonb_build_object('start', CAST(:start AS timestamptz), 'end', CAST(:end AS timestamptz), 'gpus', :gpus)
    FROM stored
)
SELECT pgmq.send('gpu_jobs', jsonb_build_object('v', 1, 'kind', 'changed', 'id', CAST(:id AS text))) FROM stored;

-- name: joined_cards
-- New GPUs of nodes of open windows, except those in another window, as windows don't overlap.
SELECT m.id, g.id AS gpu_id, n.name AS node, g.index AS card_index
FROM maintenance_windows m
JOIN reservations r ON r.id = m.id AND r.kind <> 'job' AND r.status IN ('confirmed', 'active')
JOIN nodes n ON n.name = ANY (m.whole_nodes)
JOIN gpus g ON g.node_id = n.id AND g.id <> ALL (m.gpu_ids)
WHERE m.ends_at > CAST(:now AS timestamptz)
  AND NOT EXISTS (
    SELECT FROM allocations a JOIN reservations w ON w.id = a.reservation_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND a.during && tstzrange(m.starts_at, m.ends_at)
      AND w.kind = 'maintenance')
ORDER BY m.id, n.name, g.index;

-- name: add_to_window
-- Add GPUs to a window, with an event and a message, in one statement.
WITH grown AS (
    UPDATE reservations
    SET gpus = gpus + cardinality(CAST(:gpu_ids AS bigint[])), version = version + 1,
        changed_at = CAST(:now AS timestamptz)
    WHERE id = :id AND version = :version
    RETURNING id, status, reason_code, reason
), written AS (
    UPDATE maintenance_windows m
    SET gpu_ids = m.gpu_ids || CAST(:gpu_ids AS bigint[]), affected = m.affected || CAST(:affected AS jsonb)
    FROM grown WHERE m.id = grown.id
), placed AS (
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
    SELECT g.id, 0, c.gpu_id, 0, tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz)), false, :now
    FROM grown g CROSS JOIN unnest(CAST(:gpu_ids AS bigint[])) AS c (gpu_id) ORDER BY c.gpu_id
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT id, :now, :actor, 'maintenance_cards_joined', status, status, reason_code, reason,
           jsonb_build_object('gpus', cardinality(CAST(:gpu_ids AS bigint[])))
    FROM grown
), sent AS (
    SELECT pgmq.send('gpu_jobs', jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)) FROM grown
)
SELECT (SELECT count(*) FROM grown) AS windows, (SELECT count(*) FROM sent) AS sent;

-- name: lock_window
-- Lock a window.
SELECT id FROM reservations WHERE id = :id AND kind = 'maintenance' FOR NO KEY UPDATE;

-- name: due_windows
-- Windows whose start or end is due.
SELECT r.id FROM reservations r JOIN maintenance_windows m ON m.id = r.id
WHERE r.kind <> 'job' AND r.kind = 'maintenance'
  AND ((r.status = 'confirmed' AND m.starts_at <= CAST(:now AS timestamptz))
       OR (r.status IN ('confirmed', 'active') AND m.ends_at <= CAST(:now AS timestamptz)))
ORDER BY r.id;

-- name: window_views
-- Windows with their GPUs, newest first.
SELECT r.id, r.seq, r.user_id, u.name AS user_name, r.status, r.created_at, r.version, r.finished_at,
       m.starts_at, m.ends_at, m.reason, m.affected, m.whole_nodes, c.gpu_ids, c.nodes, c.indices
FROM reservations r
JOIN maintenance_windows m ON m.id = r.id
JOIN users u ON u.id = r.user_id
LEFT JOIN LATERAL (
    SELECT array_agg(g.id ORDER BY n.name, g.index) AS gpu_ids, array_agg(n.name ORDER BY n.name, g.index) AS nodes,
           array_agg(g.index ORDER BY n.name, g.index) AS indices
    FROM gpus g JOIN nodes n ON n.id = g.node_id
    WHERE g.id = ANY (m.gpu_ids)
) c ON true
WHERE r.kind = 'maintenance' AND (CAST(:only AS text) IS NULL OR r.id = :only)
  AND (CAST(:before_seq AS bigint) IS NULL OR r.seq < CAST(:before_seq AS bigint))
  AND (NOT :open_only OR r.status IN ('confirmed', 'active'))
ORDER BY r.seq DESC LIMIT :limit;

-- name: update_window
-- Update a window whose version must be the one that was read, with an event and a message.
WITH written AS (
    UPDATE reservations
    SET status = :status, finished_at = CAST(:finished_at AS timestamptz), version = version + 1,
        changed_at = CAST(:now AS timestamptz)
    WHERE id = :id AND version = :version
    RETURNING id, reason_code, reason
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT id, :now, :actor, :kind, :before, :status, reason_code, reason, CAST(:data AS jsonb) FROM written
), sent AS (
    SELECT pgmq.send('gpu_jobs', jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)) FROM written
)
SELECT (SELECT count(*) FROM written) AS windows, (SELECT count(*) FROM sent) AS sent;

-- name: close_window
-- Free the rest of a window's time; rows that have not begun are deleted.
WITH unbegun AS (
    DELETE FROM allocations
    WHERE reservation_id = :id AND released_at IS NULL AND lower(during) >= CAST(:now AS timestamptz)
)
UPDATE allocations
SET released_at = CAST(:now AS timestamptz),
    during = tstzrange(lower(during), least(upper(during), CAST(:now AS timestamptz)))
WHERE reservation_id = :id AND released_at IS NULL AND lower(during) < CAST(:now AS timestamptz);

-- name: late_on_window
-- Reservations whose pods still hold GPUs of a window.
SELECT DISTINCT h.reservation_id FROM allocations c JOIN allocations h ON h.gpu_id = c.gpu_id AND h.held
WHERE c.reservation_id = :id AND c.released_at IS NULL ORDER BY 1;
