-- What the views say of starts and of free times is what the planner counts with.

-- == When a card comes free ==
-- The end of the unbroken time from `at` on for which a card is taken: a booking that begins as a job ends follows it.
CREATE FUNCTION card_free_from(card bigint, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce((
        SELECT upper(taken)
        FROM unnest((SELECT range_agg(during) FROM allocations WHERE gpu_id = card AND released_at IS NULL)) AS taken
        WHERE taken @> at
    ), at)
$$;

CREATE OR REPLACE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance'
            WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END      AS state,
       h.id                                                    AS holder,
       h.user_name,
       h.since,
       -- Nobody knows when a pod ends that should have.
       CASE WHEN h.until <= (SELECT ledger_now()) THEN h.until
            ELSE card_free_from(g.id, h.until) END             AS free_at,
       CASE WHEN n.removed_at IS NOT NULL THEN 'removed'
            WHEN n.fenced_at IS NOT NULL THEN 'fenced'
            WHEN NOT n.ready THEN 'not ready'
            WHEN n.cordoned_at IS NOT NULL THEN 'cordoned'
            WHEN NOT n.schedulable THEN 'not schedulable'
            ELSE 'ready' END                                   AS node_state,
       s.detail                                                AS node_detail,
       g.uuid
FROM gpus g
JOIN nodes n ON n.id = g.node_id
JOIN card_conditions c ON c.gpu_id = g.id
JOIN node_conditions s ON s.node_id = n.id
LEFT JOIN LATERAL (
    SELECT r.id, r.kind, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS until
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> (SELECT ledger_now()))
    ORDER BY a.held DESC, a.booking_id IS NULL
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;

-- == Who waits ==
-- The slot in the ledger is what holds; what was told last may be older, or nothing for those far behind.
CREATE OR REPLACE VIEW queue_status AS
WITH nodes_out AS MATERIALIZED (
    SELECT g.gpu_type, n.name || ': ' || coalesce(s.detail, 'It has no card that can be given out.') AS said
    FROM nodes n
    JOIN node_conditions s ON s.node_id = n.id
    JOIN gpus g ON g.node_id = n.id
    JOIN card_conditions c ON c.gpu_id = g.id
    WHERE n.removed_at IS NULL
    GROUP BY n.name, s.available, s.detail, g.gpu_type
    HAVING NOT (s.available AND bool_or(c.condition = 'usable'))
)
SELECT w.position                                              AS place,
       r.id,
       u.name                                                  AS user_name,
       r.name,
       request_text(r.gpus, r.gpu_type, r.nodes)               AS asks_for,
       r.duration,
       r.priority,
       coalesce(w.reason, r.reason)                            AS reason,
       r.created_at                                            AS since,
       date_trunc('second', (SELECT ledger_now()) - r.created_at) AS waited,
       coalesce(slot.start, w.estimated_start_at)              AS estimated_start,
       o.nodes_out
FROM reservations r
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates w ON w.reservation_id = r.id
LEFT JOIN LATERAL (
    SELECT lower(a.during) AS start FROM allocations a WHERE a.reservation_id = r.id AND a.planned LIMIT 1
) slot ON true
LEFT JOIN LATERAL (
    SELECT string_agg(DISTINCT said, E'\n' ORDER BY said) AS nodes_out
    FROM nodes_out WHERE r.gpu_type IS NULL OR nodes_out.gpu_type = r.gpu_type
) o ON true
WHERE r.status = 'queued'
ORDER BY w.position NULLS LAST, -r.priority, r.seq;
