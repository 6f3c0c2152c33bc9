-- Secrets of users. Values are sealed before they come here, and the table refuses others.

-- name: lock_user_of_secrets
-- Serialise changes of a user's secrets: the next statement's snapshot is newer than the lock.
SELECT id FROM users WHERE id = :user_id FOR NO KEY UPDATE;

-- name: replace_user_secret
-- Replace the value of a secret that the user has.
UPDATE user_secrets SET sealed = :sealed, updated_at = greatest(created_at, CAST(:now AS timestamptz))
WHERE user_id = :user_id AND name = :name
RETURNING name, created_at, updated_at;

-- name: add_user_secret
-- Store a new secret unless its user has too many.
INSERT INTO user_secrets (user_id, name, sealed, created_at, updated_at)
SELECT :user_id, :name, :sealed, CAST(:now AS timestamptz), CAST(:now AS timestamptz)
WHERE (SELECT count(*) FROM user_secrets s WHERE s.user_id = :user_id) < :most
RETURNING name, created_at, updated_at;

-- name: user_secrets_of
-- One user's secrets after a name, in order, without values.
SELECT name, created_at, updated_at FROM user_secrets
WHERE user_id = :user_id AND name COLLATE "C" > :after ORDER BY name COLLATE "C" LIMIT :limit;

-- name: remove_user_secret
-- Remove a user's secret.
DELETE FROM user_secrets WHERE user_id = :user_id AND name = :name RETURNING name, created_at, updated_at;

-- name: user_secrets_named
-- Which of these names are secrets of the user.
SELECT name FROM user_secrets WHERE user_id = :user_id AND name = ANY(CAST(:names AS text[]));

-- name: sealed_user_secrets
-- The sealed values of these secrets of the user.
SELECT name, sealed FROM user_secrets WHERE user_id = :user_id AND name = ANY(CAST(:names AS text[]));

-- name: user_secrets_of_former_keys
-- Some secrets that are sealed with one of these keys, locked; those that somebody changes are skipped.
SELECT user_id, name, sealed FROM user_secrets
WHERE split_part(sealed, ':', 4) = ANY(CAST(:keys AS text[])) AND (user_id, name) > (:user_id, :name)
ORDER BY user_id, name LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: reseal_user_secret
-- Replace the sealed form of a secret whose value stays.
UPDATE user_secrets SET sealed = :sealed WHERE user_id = :user_id AND name = :name;
