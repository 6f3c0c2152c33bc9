-- name: report_unknown_pods
-- New ones, and those of which something else is true now. Who is new was never inserted before: its xmax is 0.
INSERT INTO unknown_pods AS u (name, reservation_id, node, gpu_indices, detail, first_seen_at)
SELECT i.name, i.reservation_id, i.node,
       CASE WHEN i.node IS NOT NULL
            THEN ARRAY(SELECT CAST(x.value AS integer) FROM jsonb_array_elements_text(CAST(i.gpu_indices AS jsonb)) AS x)
       END, i.detail, i.first_seen_at
FROM unnest(CAST(:names AS text[]), CAST(:reservation_ids AS text[]), CAST(:nodes AS text[]),
            CAST(:gpu_indices AS text[]), CAST(:details AS text[]), CAST(:first_seen_ats AS timestamptz[]))
     AS i (name, reservation_id, node, gpu_indices, detail, first_seen_at)
ON CONFLICT (name) DO UPDATE
SET node = excluded.node, gpu_indices = excluded.gpu_indices, detail = excluded.detail
WHERE (u.node, u.gpu_indices, u.detail) IS DISTINCT FROM (excluded.node, excluded.gpu_indices, excluded.detail)
RETURNING u.name, u.xmax = 0 AS is_new;

-- name: forget_unknown_pods
-- They are gone, or accounted for.
DELETE FROM unknown_pods WHERE name = ANY(CAST(:names AS text[])) RETURNING name, reservation_id;

-- name: request_end_of_unknown_pod
-- Somebody wants its end; the first word stands.
UPDATE unknown_pods
SET end_requested_at = coalesce(end_requested_at, CAST(:now AS timestamptz)),
    end_requested_by = coalesce(end_requested_by, CAST(:by AS text))
WHERE name = :name RETURNING *;

-- name: count_unknown_pods
-- How many there are.
SELECT count(*) FROM unknown_pods;

-- name: unknown_pods_page
-- By name.
SELECT * FROM unknown_pods WHERE name > :after ORDER BY name LIMIT :limit;

-- name: unknown_pods_of
-- Those of these reservations.
SELECT * FROM unknown_pods WHERE reservation_id = ANY(CAST(:reservation_ids AS text[]));

-- name: cards_for_unknown_pod
-- The cards of a node, in the order in which they are counted for a pod that does not say which it holds: those that
-- were before, those that nobody has, the others.
SELECT g.index
FROM gpus g
JOIN nodes n ON n.id = g.node_id
CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(u.name = :name), false) AS by_it, coalesce(bool_or(u.name <> :name), false) AS by_others
    FROM unknown_pods u WHERE u.node = n.name AND g.index = ANY (u.gpu_indices)
) claimed
WHERE n.name = :node
ORDER BY NOT claimed.by_it,
         claimed.by_others OR g.condition <> 'usable'
             OR EXISTS (SELECT FROM allocations a WHERE a.gpu_id = g.id AND a.released_at IS NULL),
         g.index DESC;
