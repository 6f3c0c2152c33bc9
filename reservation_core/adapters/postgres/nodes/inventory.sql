-- name: lock_inventory
-- Serialise updaters: reads, comparisons and writes must not interleave.
SELECT pg_advisory_xact_lock(hashtextextended('inventory', 0));

-- name: known_nodes
-- Every node ever seen.
SELECT name, ready, schedulable, detail, labels, removed_at IS NOT NULL AS removed, zone, logical_name, taints,
       gpu_resource, gpu_links, cpu_milli, memory_bytes, spare_cpu_milli, spare_memory_bytes,
       has_asking_jobs(id) AS is_asked
FROM nodes;

-- name: known_gpus
-- Every GPU ever seen, and whether a reservation has it now.
SELECT n.name AS node, g.index AS card_index, g.gpu_type, g.uuid, g.memory_bytes, g.condition,
       EXISTS (SELECT FROM allocations a WHERE a.gpu_id = g.id AND a.held)
       OR EXISTS (
           SELECT FROM allocations a
           WHERE a.gpu_id = g.id AND a.released_at IS NULL AND lower(a.during) <= CAST(:now AS timestamptz)
             AND upper(a.during) > CAST(:now AS timestamptz)
       ) AS in_use
FROM gpus g JOIN nodes n ON n.id = g.node_id;

-- name: write_nodes
-- Write new and changed nodes. A removed node keeps the time when it was last seen. unnest would flatten an array of
-- arrays, so taints are passed as text.
INSERT INTO nodes (name, ready, schedulable, detail, labels, zone, logical_name, taints, gpu_resource, gpu_links,
                   cpu_milli, memory_bytes, spare_cpu_milli, spare_memory_bytes, last_seen_at, removed_at)
SELECT w.name, w.ready, w.schedulable, w.detail, CAST(w.labels AS jsonb), w.zone, w.logical_name,
       ARRAY(SELECT jsonb_array_elements_text(CAST(w.taints AS jsonb))), w.gpu_resource, w.gpu_links, w.cpu_milli, w.memory_bytes,
       w.spare_cpu_milli, w.spare_memory_bytes, CAST(:now AS timestamptz),
       CASE WHEN w.removed THEN CAST(:now AS timestamptz) END
FROM unnest(CAST(:names AS text[]), CAST(:ready AS boolean[]), CAST(:schedulable AS boolean[]),
            CAST(:details AS text[]), CAST(:labels AS text[]), CAST(:zones AS text[]), CAST(:logical_names AS text[]),
            CAST(:taints AS text[]), CAST(:gpu_resources AS text[]), CAST(:gpu_links AS text[]),
            CAST(:removed AS boolean[]), CAST(:cpus AS bigint[]), CAST(:memory AS bigint[]),
            CAST(:spare_cpus AS bigint[]), CAST(:spare_memory AS bigint[]))
     AS w (name, ready, schedulable, detail, labels, zone, logical_name, taints, gpu_resource, gpu_links, removed,
           cpu_milli, memory_bytes, spare_cpu_milli, spare_memory_bytes)
ON CONFLICT (name) DO UPDATE SET
    ready = excluded.ready, schedulable = excluded.schedulable, detail = excluded.detail, labels = excluded.labels,
    zone = excluded.zone, logical_name = excluded.logical_name, taints = excluded.taints,
    gpu_resource = excluded.gpu_resource, gpu_links = excluded.gpu_links,
    cpu_milli = excluded.cpu_milli, memory_bytes = excluded.memory_bytes,
    spare_cpu_milli = excluded.spare_cpu_milli, spare_memory_bytes = excluded.spare_memory_bytes,
    last_seen_at = CASE WHEN excluded.removed_at IS NULL THEN excluded.last_seen_at ELSE nodes.last_seen_at END,
    removed_at = excluded.removed_at;

-- name: write_gpus
-- Write new and changed GPUs; changes by an administrator stay.
INSERT INTO gpus (node_id, index, gpu_type, uuid, memory_bytes, condition, updated_at)
SELECT n.id, w.index, w.gpu_type, w.uuid, w.memory_bytes, w.condition, CAST(:now AS timestamptz)
FROM unnest(CAST(:nodes AS text[]), CAST(:indices AS integer[]), CAST(:types AS text[]), CAST(:uuids AS text[]),
            CAST(:memory AS bigint[]), CAST(:conditions AS text[]))
     AS w (node, index, gpu_type, uuid, memory_bytes, condition)
JOIN nodes n ON n.name = w.node
ON CONFLICT (node_id, index) DO UPDATE SET
    gpu_type = excluded.gpu_type, uuid = excluded.uuid, memory_bytes = excluded.memory_bytes,
    condition = CASE WHEN gpus.condition IN ('quarantined', 'maintenance') THEN gpus.condition
                     ELSE excluded.condition END,
    updated_at = excluded.updated_at;

-- name: touch_nodes
-- Update when nodes were seen, if the stored time is older than a minute.
UPDATE nodes SET last_seen_at = CAST(:now AS timestamptz)
WHERE name = ANY(CAST(:names AS text[])) AND last_seen_at <= CAST(:now AS timestamptz) - interval '1 minute';

-- name: record_inventory_events
-- Record an event for every change.
INSERT INTO events (subject, at, actor, kind, before, after, data)
SELECT w.subject, CAST(:now AS timestamptz), CAST(:actor AS text), w.kind, w.before, w.after, CAST(w.data AS jsonb)
FROM unnest(CAST(:subjects AS text[]), CAST(:kinds AS text[]), CAST(:befores AS text[]), CAST(:afters AS text[]),
            CAST(:datas AS text[])) WITH ORDINALITY AS w (subject, kind, before, after, data, place)
ORDER BY w.place;

-- name: node_links
-- Links between GPUs, with the nodes that have them: most nodes are alike.
SELECT gpu_links, array_agg(name) AS names FROM nodes WHERE gpu_links IS NOT NULL AND removed_at IS NULL GROUP BY gpu_links;

-- name: gpu_views
-- GPUs with their holder, by node and index, and when a free one is taken, if within so many seconds. GPUs of removed
-- nodes are included while a reservation holds them.
SELECT n.name AS node, g.index AS card_index, g.uuid, g.gpu_type, g.memory_bytes,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance' WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id AS holder_id, h.user_name AS holder_user, h.user_id AS holder_user_id,
       -- The end of an overrunning pod is unknown.
       CASE WHEN h.until <= (SELECT ledger_now()) THEN h.until ELSE card_free_from(g.id, h.until) END AS free_at,
       CASE WHEN h.id IS NULL AND c.condition = 'usable' THEN (
           SELECT min(lower(a.during)) FROM allocations a
           WHERE a.gpu_id = g.id AND a.released_at IS NULL AND lower(a.during) > (SELECT ledger_now())
             AND lower(a.during) < (SELECT ledger_now()) + make_interval(secs => :within_s)
       ) END AS taken_at,
       g.quarantined_at, g.quarantined_by, g.quarantine_reason, g.slow_since, g.slow_reason
FROM nodes n
JOIN gpus g ON g.node_id = n.id
JOIN card_conditions c ON c.gpu_id = g.id
LEFT JOIN LATERAL (
    SELECT r.id, r.kind, r.user_id, u.name AS user_name, upper(a.during) AS until
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> (SELECT ledger_now()))
    ORDER BY a.held DESC, a.booking_id IS NULL
    LIMIT 1
) h ON true
WHERE n.name >= :after_node AND (n.name, g.index) > (:after_node, CAST(:after_index AS integer))
  AND (n.removed_at IS NULL OR h.id IS NOT NULL)
ORDER BY n.name, g.index LIMIT :limit;

-- name: node_views
-- Nodes with their numbers of GPUs, by name; with `only` that one. Removed nodes are included while a reservation holds
-- their GPUs, while they are fenced, or when requested.
SELECT n.name, n.ready, n.schedulable, s.detail, n.labels, n.zone, n.logical_name, n.taints, n.fenced_at, n.fenced_by,
       n.cordoned_at, n.cordoned_by, n.cordon_reason, n.gpu_links, n.last_seen_at, n.removed_at, c.gpu_types, c.gpus, c.quarantined, CASE WHEN s.available THEN c.free ELSE 0 END AS free,
       CASE WHEN s.available THEN c.taken_soon ELSE 0 END AS taken_soon,
       n.cpu_milli, n.memory_bytes,
       CAST(n.cpu_milli - t.cpu_milli - t.cpu_gpus * n.cpu_milli / greatest(c.gpus, 1) AS bigint) AS cpu_milli_free,
       CAST(n.memory_bytes - t.memory_bytes - t.memory_gpus * n.memory_bytes / greatest(c.gpus, 1) AS bigint)
           AS memory_bytes_free,
       n.spare_cpu_milli, n.spare_memory_bytes, n.spare_cpu_milli - p.cpu_milli AS spare_cpu_milli_free,
       n.spare_memory_bytes - p.memory_bytes AS spare_memory_bytes_free
FROM nodes n
JOIN node_conditions s ON s.node_id = n.id
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(DISTINCT g.gpu_type), '{}') AS gpu_types, count(*) AS gpus,
           count(*) FILTER (WHERE g.condition = 'usable' AND NOT g.in_use) AS free,
           count(*) FILTER (WHERE g.condition = 'usable' AND NOT g.in_use AND EXISTS (
               SELECT FROM allocations a
               WHERE a.gpu_id = g.id AND a.released_at IS NULL AND lower(a.during) > (SELECT ledger_now())
                 AND lower(a.during) < (SELECT ledger_now()) + make_interval(secs => :within_s)
           )) AS taken_soon,
           coalesce(bool_or(g.in_use), false) AS in_use,
           coalesce(array_agg(g.index ORDER BY g.index) FILTER (WHERE g.quarantined_at IS NOT NULL), '{}') AS quarantined
    FROM (
        SELECT gpus.id, gpus.gpu_type, conditions.condition, gpus.index, gpus.quarantined_at,
               EXISTS (SELECT FROM allocations a WHERE a.gpu_id = gpus.id AND a.held)
               OR EXISTS (
                   SELECT FROM allocations a
                   WHERE a.gpu_id = gpus.id AND a.released_at IS NULL AND lower(a.during) <= (SELECT ledger_now())
                     AND upper(a.during) > (SELECT ledger_now())
               ) AS in_use
        FROM gpus JOIN card_conditions conditions ON conditions.gpu_id = gpus.id WHERE gpus.node_id = n.id
    ) g
) c
CROSS JOIN LATERAL (
    -- As the ledger adds up (see refuse_beyond_shares).
    SELECT coalesce(sum(cpu_milli), 0) AS cpu_milli, coalesce(sum(memory_bytes), 0) AS memory_bytes,
           coalesce(sum(cpu_gpus), 0) AS cpu_gpus, coalesce(sum(memory_gpus), 0) AS memory_gpus
    FROM (
        SELECT a.cpu_milli, a.memory_bytes,
               count(DISTINCT a.gpu_id) FILTER (WHERE a.cpu_milli IS NULL) AS cpu_gpus,
               count(DISTINCT a.gpu_id) FILTER (WHERE a.memory_bytes IS NULL) AS memory_gpus
        FROM gpus CROSS JOIN LATERAL (
            -- Apart: an index has the rows that are held, another one the open rows by their beginning.
            SELECT * FROM allocations WHERE gpu_id = gpus.id AND held
            UNION ALL
            SELECT * FROM allocations
            WHERE gpu_id = gpus.id AND released_at IS NULL AND NOT held
              AND lower(during) <= (SELECT ledger_now()) AND upper(during) > (SELECT ledger_now())
        ) a
        WHERE gpus.node_id = n.id AND a.reservation_id NOT LIKE 'mnt-%'
        GROUP BY CASE WHEN num_nonnulls(a.cpu_milli, a.memory_bytes) > 0 THEN a.reservation_id END, a.cpu_milli,
                 a.memory_bytes
    ) AS jobs
) t
CROSS JOIN LATERAL (
    SELECT CAST(coalesce(sum(a.cpu_milli), 0) AS bigint) AS cpu_milli,
           CAST(coalesce(sum(a.memory_bytes), 0) AS bigint) AS memory_bytes, count(*) > 0 AS in_use
    FROM allocations a
    WHERE a.node_id = n.id AND a.released_at IS NULL
      AND (a.held OR lower(a.during) <= (SELECT ledger_now()) AND upper(a.during) > (SELECT ledger_now()))
) p
WHERE n.name > :after AND (CAST(:only AS text) IS NULL OR n.name = :only)
  AND (n.removed_at IS NULL OR c.in_use OR p.in_use OR n.fenced_at IS NOT NULL OR n.name = :only)
ORDER BY n.name LIMIT :limit;

-- name: gpu_counts
-- The number of GPUs by type and state, without free GPUs of removed nodes. All current rows are read at once, not by
-- GPU.
WITH taken AS (
    SELECT gpu_id, bool_and(reservation_id LIKE 'mnt-%') AS maintained FROM (
        SELECT gpu_id, reservation_id FROM allocations WHERE held
        UNION ALL
        SELECT gpu_id, reservation_id FROM allocations
        WHERE released_at IS NULL AND NOT held AND lower(during) <= (SELECT ledger_now())
          AND upper(during) > (SELECT ledger_now())
    ) AS now GROUP BY gpu_id
)
SELECT g.gpu_type, g.state, count(*) AS cards
FROM (
    SELECT gpus.gpu_type, nodes.removed_at, t.gpu_id IS NOT NULL AS in_use,
           CASE WHEN t.maintained THEN 'maintenance' WHEN c.condition <> 'usable' THEN c.condition
                WHEN t.gpu_id IS NOT NULL THEN 'held' ELSE 'free' END AS state
    FROM gpus JOIN nodes ON nodes.id = gpus.node_id
    JOIN card_conditions c ON c.gpu_id = gpus.id
    LEFT JOIN taken t ON t.gpu_id = gpus.id
) g
WHERE g.removed_at IS NULL OR g.in_use
GROUP BY g.gpu_type, g.state ORDER BY g.gpu_type, g.state;

-- name: gpu_types_ever
-- Every type of GPU, of removed nodes, too.
SELECT DISTINCT gpu_type FROM gpus;

-- name: lock_node
-- Lock a node until the transaction ends.
SELECT name, ready, removed_at, last_seen_at, fenced_at, fenced_by, cordoned_by, cordon_reason
FROM nodes WHERE name = :name FOR NO KEY UPDATE;

-- name: fence_node
-- Fence a node: an administrator confirms that it is powered off.
UPDATE nodes SET fenced_at = CAST(:now AS timestamptz), fenced_by = :by, fence_reason = :reason WHERE name = :name;

-- name: unfence_node
-- Remove a fence.
UPDATE nodes SET fenced_at = NULL, fenced_by = NULL, fence_reason = NULL WHERE name = :name;

-- name: cordon_node
-- Cordon a node. The time of a cordon that gets another reason stays.
UPDATE nodes SET cordoned_at = coalesce(cordoned_at, :at), cordoned_by = :by, cordon_reason = :reason WHERE name = :name;

-- name: uncordon_node
-- Remove a cordon.
UPDATE nodes SET cordoned_at = NULL, cordoned_by = NULL, cordon_reason = NULL WHERE name = :name;

-- name: nodes_without_power
-- The fenced ones of these nodes that don't answer.
SELECT name, fenced_by, fence_reason FROM nodes
WHERE name = ANY(CAST(:names AS text[])) AND fenced_at IS NOT NULL AND NOT ready;

-- name: reservations_without_power
-- Reservations that hold GPUs of a fenced node which does not answer, with one such node.
SELECT DISTINCT ON (id) id, node, fenced_by, fence_reason FROM (
    SELECT a.reservation_id AS id, n.name AS node, n.fenced_by, n.fence_reason
    FROM nodes n
    JOIN gpus g ON g.node_id = n.id
    JOIN allocations a ON a.gpu_id = g.id AND a.released_at IS NULL AND a.held
    WHERE n.fenced_at IS NOT NULL AND NOT n.ready
    UNION ALL
    SELECT a.reservation_id, n.name, n.fenced_by, n.fence_reason
    FROM nodes n
    JOIN allocations a ON a.node_id = n.id AND a.released_at IS NULL AND a.held
    WHERE n.fenced_at IS NOT NULL AND NOT n.ready
) AS found
ORDER BY id, node;
