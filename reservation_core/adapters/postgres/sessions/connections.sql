-- name: jobs_to_enter
-- The job of an id, and running jobs of a name, as far as a user may enter them: the owner, and users it is shared with.
SELECT r.id, r.name, r.status, r.attempt, r.nodes, r.ends_at, r.user_id = :user_id AS own,
    CASE WHEN r.array_id IS NULL THEN r.array_size END AS elements, r.workload ->> 'working_dir' IS NULL AS folder_goes, (
    SELECT json_agg(json_build_array(a.rank, n.name, g.gpu_type, g.index) ORDER BY a.rank, g.index)
    FROM allocations a LEFT JOIN gpus g ON g.id = a.gpu_id JOIN nodes n ON n.id = coalesce(g.node_id, a.node_id)
    WHERE a.reservation_id = r.id AND a.held
) AS gpus FROM (
    SELECT * FROM reservations WHERE id = :reference
    UNION ALL
    SELECT * FROM reservations WHERE status IN ('starting', 'running') AND name = :reference
) r
WHERE r.kind = 'job' AND (
    r.user_id = :user_id
    OR EXISTS (SELECT 1 FROM job_shares s WHERE s.reservation_id = r.id AND s.user_id = :user_id)
)
ORDER BY r.seq LIMIT 20;

-- name: lock_connections_of_user
-- A lock of its own: a statement counts what was committed before it began, so the lock comes before it.
SELECT pg_advisory_xact_lock(hashtextextended('connections of ' || CAST(:user_id AS bigint), 0));

-- name: open_connection
-- Store a connection of a locked user; no row if the user has :most already. `first`: the user has no other one to this
-- job in this way.
INSERT INTO connections (reservation_id, user_id, token_id, way, address, opened_at, last_byte_at, refreshed_at)
SELECT :job_id, :user_id, :credential, :way, :address, :now, :now, :now
WHERE (SELECT count(*) FROM connections WHERE user_id = :user_id AND refreshed_at > :alive_since) < :most
RETURNING id, NOT EXISTS (
    SELECT 1 FROM connections c
    WHERE c.reservation_id = :job_id AND c.user_id = :user_id AND c.way = :way AND c.refreshed_at > :alive_since
) AS first;

-- name: refresh_connections
-- Note that connections are open; returns those that may go on, with the end of their job. One ends with its job's
-- attempt, and when its user is disabled, its credential is revoked, or the share is withdrawn. One whose row is gone was
-- forgotten by another process while this one could not reach the database, and is stored again.
WITH allowed AS (
    SELECT given.*, r.ends_at
    FROM unnest(
        CAST(:ids AS bigint[]), CAST(:job_ids AS text[]), CAST(:attempts AS integer[]), CAST(:user_ids AS bigint[]),
        CAST(:credentials AS text[]), CAST(:ways AS text[]), CAST(:addresses AS text[]), CAST(:opened AS timestamptz[]),
        CAST(:last_bytes AS timestamptz[])
    ) AS given (id, job_id, attempt, user_id, token_id, way, address, opened_at, last_byte_at)
    JOIN reservations r ON r.id = given.job_id AND r.status = 'running' AND r.attempt = given.attempt
    JOIN users u ON u.id = given.user_id AND u.disabled_at IS NULL
    WHERE (r.user_id = given.user_id
           OR EXISTS (SELECT 1 FROM job_shares s WHERE s.reservation_id = r.id AND s.user_id = given.user_id))
      AND (given.token_id IS NULL
           OR EXISTS (SELECT 1 FROM tokens t WHERE t.id = given.token_id AND t.revoked_at IS NULL
                      AND (t.expires_at IS NULL OR t.expires_at > :now))
           OR EXISTS (SELECT 1 FROM ssh_keys k WHERE k.id = given.token_id))
), noted AS (
    INSERT INTO connections AS c
        (id, reservation_id, user_id, token_id, way, address, opened_at, last_byte_at, refreshed_at)
    OVERRIDING SYSTEM VALUE
    SELECT id, job_id, user_id, token_id, way, address, opened_at, last_byte_at, :now FROM allowed ORDER BY id
    ON CONFLICT (id) DO UPDATE
    SET refreshed_at = excluded.refreshed_at, last_byte_at = greatest(c.last_byte_at, excluded.last_byte_at)
)
SELECT id, ends_at FROM allowed;

-- name: close_connections
-- Delete connections that were closed, and note when somebody was last connected to their jobs.
WITH closed AS (
    DELETE FROM connections WHERE id = ANY(CAST(:ids AS bigint[])) RETURNING reservation_id
)
INSERT INTO session_activity AS s (reservation_id, last_connected_at)
SELECT DISTINCT reservation_id, CAST(:now AS timestamptz) FROM closed
ON CONFLICT (reservation_id) DO UPDATE SET last_connected_at = greatest(s.last_connected_at, excluded.last_connected_at);

-- name: forget_connections
-- Delete some connections that are not refreshed, as of processes that ended without deleting them; the same notes.
WITH closed AS (
    DELETE FROM connections WHERE id IN (
        SELECT id FROM connections WHERE refreshed_at < :alive_since
        ORDER BY refreshed_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) RETURNING reservation_id, refreshed_at
)
INSERT INTO session_activity AS s (reservation_id, last_connected_at)
SELECT reservation_id, max(refreshed_at) FROM closed GROUP BY reservation_id
ON CONFLICT (reservation_id) DO UPDATE SET last_connected_at = greatest(s.last_connected_at, excluded.last_connected_at);

-- name: sessions_left_alone
-- Running sessions to which nobody has been connected for as long as they may stay so.
SELECT r.id FROM reservations r LEFT JOIN session_activity s ON s.reservation_id = r.id
WHERE r.status = 'running' AND r.inactivity IS NOT NULL
  AND greatest(r.started_at, s.last_connected_at) + r.inactivity <= :now
  AND NOT EXISTS (
      -- Also connections of a process that was killed, which nobody has forgotten yet.
      SELECT 1 FROM connections c WHERE c.reservation_id = r.id AND c.refreshed_at + r.inactivity > :now
  )
ORDER BY r.id LIMIT :limit;

-- name: connections_of_job
-- The open connections of a job, oldest first.
SELECT u.name AS user_name, c.way, c.address, c.opened_at, c.last_byte_at
FROM connections c JOIN users u ON u.id = c.user_id
WHERE c.reservation_id = :job_id AND c.refreshed_at > :alive_since
ORDER BY c.opened_at, c.id LIMIT :limit;
