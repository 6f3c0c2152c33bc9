-- Chunks and folders that users have sent. Every statement is about one user's, but those that remove what is old.

-- name: lock_user_of_files
-- Serialise what a user sends: the next statement's snapshot is newer than the lock.
SELECT id FROM users WHERE id = :user_id FOR NO KEY UPDATE;

-- name: add_sent_chunks
-- Store those of the chunks that the user does not have.
INSERT INTO sent_chunks (user_id, digest, data, used_at)
SELECT :user_id, c.digest, c.data, CAST(:now AS timestamptz)
FROM unnest(CAST(:digests AS bytea[]), CAST(:chunks AS bytea[])) AS c (digest, data)
ORDER BY c.digest
ON CONFLICT DO NOTHING;

-- name: sent_bytes_of
-- The bytes that a user's files take, and those of all users.
SELECT coalesce(sum(bytes) FILTER (WHERE user_id = :user_id), 0) AS own, coalesce(sum(bytes), 0) AS everybody
FROM sent_bytes;

-- name: sent_chunk_sizes
-- Which of these chunks the user has, their bytes, and whether they were not used for long.
SELECT digest, bytes, used_at < CAST(:long_ago AS timestamptz) AS is_unused FROM sent_chunks WHERE user_id = :user_id AND digest = ANY(CAST(:digests AS bytea[]));

-- name: use_sent_chunks
-- Note the use of chunks, and return those that are still there.
UPDATE sent_chunks SET used_at = greatest(used_at, CAST(:now AS timestamptz))
WHERE user_id = :user_id AND digest = ANY(CAST(:digests AS bytea[])) RETURNING digest;

-- name: put_sent_folder
-- Store a folder, or note its use.
INSERT INTO sent_folders (user_id, digest, content, used_at)
VALUES (:user_id, :digest, :content, CAST(:now AS timestamptz))
ON CONFLICT (user_id, digest) DO UPDATE SET used_at = greatest(sent_folders.used_at, excluded.used_at);

-- name: use_sent_folder
-- Note the use of a folder of the user unless that was done lately, and return what is in it, and whether it was noted.
UPDATE sent_folders SET used_at = CASE WHEN used_at < CAST(:long_ago AS timestamptz) THEN CAST(:now AS timestamptz) ELSE used_at END
WHERE user_id = :user_id AND digest = :digest RETURNING content, used_at = CAST(:now AS timestamptz) AS is_noted;

-- name: sent_folder
-- What is in a folder of the user.
SELECT content FROM sent_folders WHERE user_id = :user_id AND digest = :digest;

-- name: sent_chunk_data
-- These chunks of the user.
SELECT digest, data FROM sent_chunks WHERE user_id = :user_id AND digest = ANY(CAST(:digests AS bytea[]));

-- name: put_job_results
-- Keep a folder as the results of an attempt of a job, unless a later attempt has some.
INSERT INTO job_results (reservation_id, attempt, user_id, digest) VALUES (:job_id, :attempt, :user_id, :digest)
ON CONFLICT (reservation_id) DO UPDATE SET attempt = excluded.attempt, digest = excluded.digest
WHERE job_results.attempt <= excluded.attempt;

-- name: job_results_of
-- The folder that a job has kept.
SELECT r.digest, f.content FROM job_results r JOIN sent_folders f USING (user_id, digest)
WHERE r.reservation_id = :job_id;

-- name: oldest_sent_folders
-- The folders that were not used since a time, the oldest first; those that somebody uses now are skipped. `is_needed`:
-- an open job of the user begins with it.
SELECT f.user_id, f.digest, EXISTS (
    SELECT FROM reservations r WHERE r.user_id = f.user_id AND r.finished_at IS NULL
      AND r.workload -> 'sync' ->> 'folder' = encode(f.digest, 'hex')
) AS is_needed
FROM sent_folders f WHERE f.used_at < CAST(:before AS timestamptz)
ORDER BY f.used_at LIMIT :limit FOR UPDATE OF f SKIP LOCKED;

-- name: remove_sent_folders
-- Remove folders, and that jobs have kept them.
DELETE FROM sent_folders f USING unnest(CAST(:user_ids AS bigint[]), CAST(:digests AS bytea[])) AS o (user_id, digest)
WHERE f.user_id = o.user_id AND f.digest = o.digest;

-- name: remove_sent_chunks
-- Remove some of the chunks that were not used since a time; those that somebody uses now are skipped.
WITH old AS (
    SELECT user_id, digest FROM sent_chunks WHERE used_at < CAST(:before AS timestamptz)
    ORDER BY used_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM sent_chunks c USING old o WHERE c.user_id = o.user_id AND c.digest = o.digest;
