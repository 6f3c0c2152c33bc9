-- What clusters that fail need, in sections that stand by themselves.

-- == Starts that are tried again ==
-- A job whose pods could not start is `ending` with the outcome `queued`: once its pods are gone it waits again, at its
-- old place in line, and goes to the nodes of its former attempts only where no other could ever take it.
ALTER TABLE reservations
    ADD COLUMN avoid_nodes text[] NOT NULL DEFAULT '{}',
    DROP CONSTRAINT reservations_outcome_check,
    ADD CONSTRAINT reservations_outcome_check
        CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'expired', 'queued'));

-- == Kept logs ==
-- The last lines of pods whose cluster forgets their logs with them. `complete`: read after the pod had finished, or
-- given up; such a row is not written again.
CREATE TABLE pod_logs (
    pod            text PRIMARY KEY CHECK (length(pod) BETWEEN 1 AND 253),
    reservation_id text NOT NULL REFERENCES reservations (id),
    tail           bytea NOT NULL CHECK (length(tail) <= 1048576),
    complete       boolean NOT NULL,
    kept_at        timestamptz NOT NULL
);
CREATE INDEX pod_logs_age ON pod_logs (kept_at);


-- == What is known of nodes and of pods that nobody knows ==
-- A fence is an administrator's word that a machine is without power: its pods count as gone. `taints` are written
-- `key=value:effect`; `logical_name` is what administrators call a node where that is not its name.
ALTER TABLE nodes
    ADD COLUMN zone         text CHECK (length(zone) BETWEEN 1 AND 253),
    ADD COLUMN logical_name text CHECK (length(logical_name) BETWEEN 1 AND 253),
    ADD COLUMN taints       text[] NOT NULL DEFAULT '{}',
    ADD COLUMN fenced_at    timestamptz,
    ADD COLUMN fenced_by    text,
    ADD COLUMN fence_reason text CHECK (length(fence_reason) BETWEEN 1 AND 1000),
    ADD CONSTRAINT nodes_fence_check CHECK ((fenced_at IS NULL) = (fenced_by IS NULL)
                                            AND (fence_reason IS NULL OR fenced_at IS NOT NULL));

-- Pods that carry our marks and that no reservation accounts for, as long as they exist. `node` and `gpu_indices` are
-- what the pod says of itself; null: it does not say. `reservation_id` need not be in the ledger.
CREATE TABLE unknown_pods (
    name             text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 253),
    reservation_id   text NOT NULL,
    node             text,
    gpu_indices      integer[],
    detail           text NOT NULL,
    first_seen_at    timestamptz NOT NULL,
    end_requested_at timestamptz,
    end_requested_by text,
    CHECK ((node IS NULL) = (gpu_indices IS NULL)),
    CHECK ((end_requested_at IS NULL) = (end_requested_by IS NULL))
);
CREATE INDEX unknown_pods_node ON unknown_pods (node) WHERE node IS NOT NULL;
CREATE INDEX unknown_pods_reservation ON unknown_pods (reservation_id);

-- What decides over a card, from what is written down once elsewhere: its own condition, a pod that nobody knows, and
-- whether its node answers. A card of a node that is away or fenced is quarantined until the node is back.
CREATE VIEW card_conditions AS
SELECT g.id AS gpu_id, g.node_id, n.name AS node, g.index, g.gpu_type, g.uuid, g.memory_bytes,
       CASE WHEN g.condition <> 'usable' THEN g.condition
            WHEN EXISTS (SELECT FROM unknown_pods u WHERE u.node = n.name AND g.index = ANY (u.gpu_indices))
                THEN 'foreign'
            WHEN n.fenced_at IS NOT NULL OR NOT n.ready THEN 'quarantined'
            ELSE 'usable' END AS condition
FROM gpus g JOIN nodes n ON n.id = g.node_id;
COMMENT ON VIEW card_conditions IS 'Every card''s condition as it counts: only usable cards get new allocations';

-- Whether a node gets anything new, and all that is to be said about why not.
CREATE VIEW node_conditions AS
SELECT n.id AS node_id,
       n.ready AND n.schedulable AND n.removed_at IS NULL AND n.fenced_at IS NULL AS available,
       nullif(concat_ws(' ',
           'Fenced by ' || n.fenced_by || ' at ' || to_char(n.fenced_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || coalesce(' (' || n.fence_reason || ')', '') || ': nothing new is started here until `gpu-dev nodes '
               || 'unfence ' || n.name || '`.',
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND NOT n.ready
                THEN 'It does not answer: its GPUs are quarantined until it is back.' END,
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND n.ready AND NOT n.schedulable
                THEN 'It takes no new pods.' END,
           n.detail,
           (SELECT string_agg('A pod that the ledger does not know holds GPUs ' || array_to_string(u.gpu_indices, ',')
                              || ' here: they are not given out until it ends (operators: `gpu-dev pods`).', ' '
                              ORDER BY u.name)
            FROM unknown_pods u WHERE u.node = n.name)
       ), '') AS detail
FROM nodes n;
COMMENT ON VIEW node_conditions IS 'Every node: whether it gets anything new, and why not';

-- For people: the same words, and beside who waits the nodes of that type that get nothing new.
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
       date_trunc('second', statement_timestamp() - r.created_at) AS waited,
       w.estimated_start_at                                    AS estimated_start,
       o.nodes_out
FROM reservations r
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates w ON w.reservation_id = r.id
LEFT JOIN LATERAL (
    SELECT string_agg(DISTINCT said, E'\n' ORDER BY said) AS nodes_out
    FROM nodes_out WHERE r.gpu_type IS NULL OR nodes_out.gpu_type = r.gpu_type
) o ON true
WHERE r.status = 'queued'
ORDER BY w.position NULLS LAST, -r.priority, r.seq;
COMMENT ON VIEW queue_status IS 'Who waits for GPUs, in the order of the line; no place yet: not planned yet; nodes_out: '
    'the nodes with such GPUs that get nothing new, and why';

CREATE OR REPLACE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN c.condition <> 'usable' THEN c.condition WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id                                                    AS holder,
       h.user_name,
       h.since,
       h.free_at,
       CASE WHEN n.removed_at IS NOT NULL THEN 'removed'
            WHEN n.fenced_at IS NOT NULL THEN 'fenced'
            WHEN NOT n.ready THEN 'not ready'
            WHEN NOT n.schedulable THEN 'not schedulable'
            ELSE 'ready' END                                   AS node_state,
       s.detail                                                AS node_detail,
       g.uuid
FROM gpus g
JOIN nodes n ON n.id = g.node_id
JOIN card_conditions c ON c.gpu_id = g.id
JOIN node_conditions s ON s.node_id = n.id
LEFT JOIN LATERAL (
    SELECT r.id, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS free_at
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> statement_timestamp())
    ORDER BY a.held DESC
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;
