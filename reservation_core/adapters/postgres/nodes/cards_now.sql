-- name: nodes_now
-- Every node by name: whether it takes new work and why not, its rack label, and its GPUs, as JSON that is parsed only
-- where it has changed: index, UUID, type, memory, state, holder (as in gpu_views), and the next holder within so many
-- seconds (id, kind, user, from and to in microseconds since 1970; a job's end, not the later one of its pod's time to
-- end). All open rows are read at once, not by GPU. Removed
-- nodes and their GPUs are included while a reservation holds them.
WITH touching AS MATERIALIZED (
    SELECT a.gpu_id, a.booking_id, a.held, lower(a.during) AS starts_at,
           a.held OR a.during @> (SELECT ledger_now()) AS has_it, r.kind,
           json_build_array(r.id, r.kind, r.user_id, u.name,
                            CAST(extract(epoch FROM lower(a.during)) * 1000000 AS bigint),
                            CAST(extract(epoch FROM least(upper(a.during), r.ends_at)) * 1000000 AS bigint)) AS hold
    FROM (
        SELECT * FROM allocations WHERE held
        UNION ALL
        SELECT * FROM allocations
        WHERE released_at IS NULL AND NOT held AND upper(during) > (SELECT ledger_now())
          AND lower(during) < (SELECT ledger_now()) + make_interval(secs => :within_s)
    ) a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
), holders AS (
    SELECT DISTINCT ON (gpu_id) gpu_id, kind, hold FROM touching
    WHERE has_it ORDER BY gpu_id, held DESC, booking_id IS NULL
), followers AS (
    SELECT DISTINCT ON (gpu_id) gpu_id, hold FROM touching
    WHERE NOT has_it AND booking_id IS NULL ORDER BY gpu_id, starts_at
), cards AS (
    SELECT c.node_id, CAST(json_agg(json_build_array(
               c.index, c.uuid, c.gpu_type, c.memory_bytes,
               CASE WHEN h.kind = 'maintenance' THEN 'maintenance' WHEN c.condition <> 'usable' THEN c.condition
                    WHEN h.gpu_id IS NULL THEN 'free' ELSE 'held' END,
               h.hold, f.hold
           ) ORDER BY c.index) AS text) AS cards
    FROM card_conditions c
    JOIN nodes n ON n.id = c.node_id
    LEFT JOIN holders h ON h.gpu_id = c.gpu_id
    LEFT JOIN followers f ON f.gpu_id = c.gpu_id
    WHERE n.removed_at IS NULL OR h.gpu_id IS NOT NULL
    GROUP BY c.node_id
)
SELECT n.name, s.available, s.detail, coalesce(c.cards, '[]') AS cards,
       coalesce(n.labels ->> 'topology.kubernetes.io/rack', n.labels ->> 'rack') AS rack
FROM nodes n
JOIN node_conditions s ON s.node_id = n.id
LEFT JOIN cards c ON c.node_id = n.id
WHERE n.removed_at IS NULL OR c.node_id IS NOT NULL
ORDER BY n.name;
