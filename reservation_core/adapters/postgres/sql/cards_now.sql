-- name: cards_now
-- Every card by node and index: its state and holder as in gpu_views, and who has it next within so many seconds. All
-- open rows are read in one go, and not card by card: with many cards that is a third of the time.
WITH touching AS MATERIALIZED (
    SELECT a.gpu_id, a.booking_id, a.held, lower(a.during) AS starts_at, upper(a.during) AS ends_at,
           a.held OR a.during @> statement_timestamp() AS has_it,
           r.id, r.kind, r.user_id, u.name AS user_name
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.released_at IS NULL
      AND (a.held OR a.during && tstzrange(statement_timestamp(),
                                           statement_timestamp() + make_interval(secs => :within_s)))
), holders AS (
    SELECT DISTINCT ON (gpu_id) * FROM touching WHERE has_it ORDER BY gpu_id, held DESC, booking_id IS NULL
), followers AS (
    SELECT DISTINCT ON (gpu_id) * FROM touching WHERE NOT has_it AND booking_id IS NULL ORDER BY gpu_id, starts_at
)
SELECT n.name AS node, c.index AS card_index, c.uuid, c.gpu_type, c.memory_bytes,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance' WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id AS holder_id, h.kind AS holder_kind, h.user_id AS holder_user_id, h.user_name AS holder_user,
       h.starts_at AS holder_starts_at, h.ends_at AS holder_ends_at,
       f.id AS next_id, f.kind AS next_kind, f.user_id AS next_user_id, f.user_name AS next_user,
       f.starts_at AS next_starts_at, f.ends_at AS next_ends_at
FROM nodes n
JOIN card_conditions c ON c.node_id = n.id
LEFT JOIN holders h ON h.gpu_id = c.gpu_id
LEFT JOIN followers f ON f.gpu_id = c.gpu_id
WHERE n.removed_at IS NULL OR h.id IS NOT NULL
ORDER BY n.name, c.index;

-- name: nodes_now
-- Every node by name: whether it gets anything new, and why not. Removed nodes are there while somebody holds a card of
-- theirs.
SELECT n.name, s.available, s.detail
FROM nodes n
JOIN node_conditions s ON s.node_id = n.id
WHERE n.removed_at IS NULL OR EXISTS (
    SELECT FROM gpus g JOIN allocations a ON a.gpu_id = g.id AND a.released_at IS NULL
    WHERE g.node_id = n.id AND (a.held OR a.during @> statement_timestamp())
)
ORDER BY n.name;
