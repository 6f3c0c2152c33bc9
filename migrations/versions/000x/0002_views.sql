-- Views for people with `psql`. Programs don't read them, so their words may become better at any time.
-- The owner's column is `user_name`: `user` would silently be PostgreSQL's own word for the connected role.

CREATE FUNCTION request_text(gpus integer, gpu_type text, nodes integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT gpus || ' x ' || coalesce(gpu_type, 'any type') || CASE WHEN nodes > 1 THEN ' on each of ' || nodes || ' nodes' ELSE '' END
$$;
COMMENT ON FUNCTION request_text IS 'What a reservation asks for, as people say it';

CREATE VIEW queue_status AS
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
       w.estimated_start_at                                    AS estimated_start
FROM reservations r
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates w ON w.reservation_id = r.id
WHERE r.status = 'queued'
ORDER BY w.position NULLS LAST, -r.priority, r.seq;
COMMENT ON VIEW queue_status IS 'Who waits for GPUs, in the order of the line; no place yet: not planned yet';

-- A card can be planned for one reservation while another still holds it: the one whose pod may exist is shown.
CREATE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN g.condition <> 'usable' THEN g.condition WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id                                                    AS holder,
       h.user_name,
       h.since,
       h.free_at,
       CASE WHEN n.removed_at IS NOT NULL THEN 'removed'
            WHEN NOT n.ready THEN 'not ready'
            WHEN NOT n.schedulable THEN 'not schedulable'
            ELSE 'ready' END                                   AS node_state,
       n.detail                                                AS node_detail,
       g.uuid
FROM gpus g
JOIN nodes n ON n.id = g.node_id
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
COMMENT ON VIEW gpu_status IS 'Every card ever seen, its state and who holds it; free_at in the past: its holder overruns';

CREATE VIEW reservation_history AS
SELECT r.id,
       u.name                                                  AS user_name,
       r.kind,
       r.name,
       request_text(r.gpus, r.gpu_type, r.nodes)               AS asked_for,
       c.cards                                                 AS gpus,
       r.created_at                                            AS queued_at,
       r.started_at,
       r.finished_at,
       date_trunc('second', coalesce(r.started_at, r.finished_at, statement_timestamp()) - r.created_at) AS waited,
       date_trunc('second', coalesce(r.finished_at, statement_timestamp()) - r.started_at)               AS ran,
       r.status                                                AS outcome,
       r.exit_code,
       r.reason
FROM reservations r
JOIN users u ON u.id = r.user_id
LEFT JOIN LATERAL (
    SELECT string_agg(s.node || ':' || s.indices, ' ' ORDER BY s.node) AS cards
    FROM (
        SELECT n.name AS node, string_agg(CAST(g.index AS text), ',' ORDER BY g.index) AS indices
        FROM allocations a
        JOIN gpus g ON g.id = a.gpu_id
        JOIN nodes n ON n.id = g.node_id
        WHERE a.reservation_id = r.id AND a.attempt = r.attempt
        GROUP BY n.name
    ) s
) c ON true
ORDER BY r.seq DESC;
COMMENT ON VIEW reservation_history IS 'Every reservation, newest first: what was asked, given, waited, run, and how it ended';
