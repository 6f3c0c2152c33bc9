-- Public SSH keys of people.

-- name: lock_user_of_keys
-- Serialise changes of a user's keys and shares: the next statement's snapshot is newer than the lock.
SELECT id FROM users WHERE id = :user_id FOR NO KEY UPDATE;

-- name: ssh_key_by_fingerprint
-- A user's key by its fingerprint.
SELECT k.id, u.name AS user_name, k.name, k.fingerprint, k.public_key, k.created_at, k.last_used_at
FROM ssh_keys k JOIN users u ON u.id = k.user_id
WHERE k.user_id = :user_id AND k.fingerprint = :fingerprint;

-- name: add_ssh_key
-- Store a key unless its user has too many.
WITH added AS (
    INSERT INTO ssh_keys (id, user_id, name, fingerprint, public_key, created_at)
    SELECT :id, :user_id, CAST(:name AS text), :fingerprint, :public_key, CAST(:now AS timestamptz)
    WHERE (SELECT count(*) FROM ssh_keys k WHERE k.user_id = :user_id) < :most
    RETURNING *
)
SELECT a.id, u.name AS user_name, a.name, a.fingerprint, a.public_key, a.created_at, a.last_used_at
FROM added a JOIN users u ON u.id = a.user_id;

-- name: ssh_keys_of_user
-- One user's keys after an id, in order.
SELECT k.id, u.name AS user_name, k.name, k.fingerprint, k.public_key, k.created_at, k.last_used_at
FROM ssh_keys k JOIN users u ON u.id = k.user_id
WHERE k.user_id = :user_id AND k.id > :after ORDER BY k.id LIMIT :limit;

-- name: ssh_keys_of_everybody
-- All keys after an id, in order.
SELECT k.id, u.name AS user_name, k.name, k.fingerprint, k.public_key, k.created_at, k.last_used_at
FROM ssh_keys k JOIN users u ON u.id = k.user_id
WHERE k.id > :after ORDER BY k.id LIMIT :limit;

-- name: remove_ssh_key
-- Remove a key of a user (null: of any user).
WITH removed AS (
    DELETE FROM ssh_keys
    WHERE id = :id AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint))
    RETURNING *
)
SELECT r.id, u.name AS user_name, r.name, r.fingerprint, r.public_key, r.created_at, r.last_used_at
FROM removed r JOIN users u ON u.id = r.user_id;

-- name: owners_of_ssh_key
-- The enabled users with a key.
SELECT k.id, k.user_id, u.name AS user_name
FROM ssh_keys k JOIN users u ON u.id = k.user_id
WHERE k.fingerprint = :fingerprint AND u.disabled_at IS NULL
ORDER BY k.user_id LIMIT :limit;

-- name: touch_ssh_key
-- Update when a key was last used, unless it was a moment ago; a locked row is skipped, so that nobody waits.
UPDATE ssh_keys SET last_used_at = CAST(:now AS timestamptz)
WHERE id = (
    SELECT id FROM ssh_keys
    WHERE id = :id AND (last_used_at IS NULL OR last_used_at <= CAST(:now AS timestamptz) - CAST(:pause AS interval))
    FOR NO KEY UPDATE SKIP LOCKED
);
