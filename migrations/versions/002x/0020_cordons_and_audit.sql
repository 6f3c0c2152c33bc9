-- Administrators' cordons, and reading the record.

-- == Cordons ==
-- An administrator's word that nothing new is to be placed on a node: what is there goes on. It has nothing to do with
-- the cluster's own cordons (`schedulable`), with fences or with maintenance, and stands until it is taken back.
ALTER TABLE nodes
    ADD COLUMN cordoned_at   timestamptz,
    ADD COLUMN cordoned_by   text,
    ADD COLUMN cordon_reason text CHECK (length(cordon_reason) BETWEEN 1 AND 200),
    ADD CONSTRAINT nodes_cordon_check CHECK ((cordoned_at IS NULL) = (cordoned_by IS NULL)
                                             AND (cordon_reason IS NULL OR cordoned_at IS NOT NULL));

-- Whether a node gets anything new, and all that is to be said about why not.
CREATE OR REPLACE VIEW node_conditions AS
SELECT n.id AS node_id,
       n.ready AND n.schedulable AND n.removed_at IS NULL AND n.fenced_at IS NULL AND n.cordoned_at IS NULL AS available,
       nullif(concat_ws(' ',
           'Fenced by ' || n.fenced_by || ' at ' || to_char(n.fenced_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || coalesce(' (' || n.fence_reason || ')', '') || ': nothing new is started here until `gpu-dev nodes '
               || 'unfence ' || n.name || '`.',
           'Cordoned by an administrator (' || n.cordoned_by || coalesce(': ' || n.cordon_reason, '') || ') at '
               || to_char(n.cordoned_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || ': what is here goes on, and nothing new is placed here until `gpu-dev nodes uncordon ' || n.name || '`.',
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
       h.free_at,
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
    SELECT r.id, r.kind, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS free_at
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> statement_timestamp())
    ORDER BY a.held DESC, a.booking_id IS NULL
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;

-- == The record, newest first ==
-- By time, which grows as lines are written: this index is written at its end, and costs writers next to nothing. What
-- is about no reservation is found by its subject.
CREATE INDEX events_time ON events (at, id);
CREATE INDEX events_subject ON events (subject, at, id) WHERE subject IS NOT NULL;
