-- name: principal_of_digest
-- The owner of a valid token, if enabled.
SELECT t.id AS token_id, t.expires_at, t.method, t.session_from, t.session, t.scopes, t.budget_id, u.id AS user_id,
       u.name AS user_name, u.role
FROM tokens t JOIN users u ON u.id = t.user_id
WHERE t.digest = :digest AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
  AND u.disabled_at IS NULL;

-- name: principal_of_token
-- The same by the token's id.
SELECT t.id AS token_id, t.expires_at, t.method, t.session_from, t.session, t.scopes, t.budget_id, u.id AS user_id,
       u.name AS user_name, u.role
FROM tokens t JOIN users u ON u.id = t.user_id
WHERE t.id = :id AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
  AND u.disabled_at IS NULL;

-- name: create_user
-- Store a new user; no row when the name is taken.
INSERT INTO users (name, role, created_at) VALUES (:name, :role, :now)
ON CONFLICT (name) DO NOTHING
RETURNING id, name, role, created_at, disabled_at;

-- name: user_by_name
-- One user.
SELECT id, name, role, created_at, disabled_at FROM users WHERE name = :name;

-- name: users_by_name
-- Users after a name, in order.
SELECT id, name, role, created_at, disabled_at FROM users
WHERE name > :after ORDER BY name LIMIT :limit;

-- name: disable_user
-- Disable a user; the first time stays.
UPDATE users SET disabled_at = coalesce(disabled_at, :now) WHERE name = :name
RETURNING id, name, role, created_at, disabled_at;

-- name: enable_user
-- Enable a disabled user.
UPDATE users SET disabled_at = NULL, settled_at = NULL WHERE name = :name
RETURNING id, name, role, created_at, disabled_at;

-- name: unsettled_users
-- Disabled users whose jobs and bookings may not all be settled.
SELECT id, name, role, created_at, disabled_at FROM users WHERE disabled_at IS NOT NULL AND settled_at IS NULL ORDER BY id;

-- name: settle_user
-- Mark a disabled user as settled.
UPDATE users SET settled_at = :now WHERE id = :id AND disabled_at <= CAST(:now AS timestamptz)
  AND NOT EXISTS (
      SELECT FROM reservations r WHERE r.user_id = :id AND r.finished_at IS NULL AND r.kind = 'job' AND r.status = 'queued'
  );

-- name: unsettle_users
-- Mark disabled ones of these users as unsettled, as a job of theirs waits again.
UPDATE users SET settled_at = NULL WHERE id = ANY(CAST(:ids AS bigint[])) AND disabled_at IS NOT NULL;

-- name: create_token
-- Store a token's digest.
WITH stored AS (
    INSERT INTO tokens (id, user_id, name, digest, created_at, expires_at, method, session, session_from, made_with, scopes,
                        budget_id)
    VALUES (:id, :user_id, :name, :digest, :now, :expires_at, :method, :session, :session_from, :made_with,
            CAST(:scopes AS text[]), CAST(:budget_id AS text))
    RETURNING *
)
SELECT s.id, s.user_id, u.name AS user_name, s.name, s.created_at, s.expires_at, s.revoked_at, s.last_used_at,
       s.scopes, s.made_with, s.session, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM stored s JOIN users u ON u.id = s.user_id LEFT JOIN token_budgets_now b ON b.id = s.budget_id;

-- name: forget_tokens
-- Delete some of a user's long-ended tokens without dependent tokens; locked ones are left to the next time.
DELETE FROM tokens WHERE id IN (
    SELECT id FROM tokens WHERE id IN (
        (SELECT t.id FROM tokens t
         WHERE t.user_id = :user_id AND t.revoked_at IS NULL
           AND coalesce(t.expires_at, 'infinity') < CAST(:before AS timestamptz)
           AND NOT EXISTS (SELECT FROM tokens c WHERE c.made_with = t.id)
           AND NOT EXISTS (SELECT FROM tokens c WHERE c.session_from = t.id)
         LIMIT 100)
        UNION ALL
        (SELECT t.id FROM tokens t
         WHERE t.user_id = :user_id AND t.revoked_at < CAST(:before AS timestamptz)
           AND NOT EXISTS (SELECT FROM tokens c WHERE c.made_with = t.id)
           AND NOT EXISTS (SELECT FROM tokens c WHERE c.session_from = t.id)
         LIMIT 100)
    ) FOR UPDATE SKIP LOCKED
);

-- name: tokens_of_user
-- One user's tokens after an id, in order.
SELECT t.id, t.user_id, u.name AS user_name, t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
       t.scopes, t.made_with, t.session, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM tokens t JOIN users u ON u.id = t.user_id LEFT JOIN token_budgets_now b ON b.id = t.budget_id
WHERE t.user_id = :user_id AND t.id > :after ORDER BY t.id LIMIT :limit;

-- name: tokens_of_everybody
-- All tokens after an id, in order.
SELECT t.id, t.user_id, u.name AS user_name, t.name, t.created_at, t.expires_at, t.revoked_at, t.last_used_at,
       t.scopes, t.made_with, t.session, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM tokens t JOIN users u ON u.id = t.user_id LEFT JOIN token_budgets_now b ON b.id = t.budget_id
WHERE t.id > :after ORDER BY t.id LIMIT :limit;

-- name: revoke_token
-- Revoke a token of a user (null: of any user); the first time stays.
WITH revoked AS (
    UPDATE tokens SET revoked_at = coalesce(revoked_at, :now)
    WHERE id = :id AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint))
    RETURNING *
)
SELECT r.id, r.user_id, u.name AS user_name, r.name, r.created_at, r.expires_at, r.revoked_at, r.last_used_at,
       r.scopes, r.made_with, r.session, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM revoked r JOIN users u ON u.id = r.user_id LEFT JOIN token_budgets_now b ON b.id = r.budget_id;

-- name: token_reach
-- The reach of a valid token.
SELECT t.scopes, t.expires_at, t.generation, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM tokens t LEFT JOIN token_budgets_now b ON b.id = t.budget_id
WHERE t.id = :id AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > CAST(:now AS timestamptz));

-- name: renew_token
-- Replace the secret of a valid token, if it is the shown one and no token has the new one.
WITH renewed AS (
    UPDATE tokens SET digest = :digest
    WHERE id = :id AND digest = :shown AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > CAST(:now AS timestamptz))
      AND NOT EXISTS (SELECT FROM tokens t WHERE t.digest = :digest AND t.id <> :id)
    RETURNING *
)
SELECT r.id, r.user_id, u.name AS user_name, r.name, r.created_at, r.expires_at, r.revoked_at, r.last_used_at,
       r.scopes, r.made_with, r.session, b.id AS budget, b.gpu_us, b.until, b.charged_us
FROM renewed r JOIN users u ON u.id = r.user_id LEFT JOIN token_budgets_now b ON b.id = r.budget_id;

-- name: revoke_tokens
-- Revoke a user's valid tokens, except one and those that it was made with; returns their ids.
WITH RECURSIVE kept (id) AS (
    SELECT CAST(:kept AS text)
    UNION
    SELECT coalesce(t.made_with, t.session_from) FROM kept k JOIN tokens t ON t.id = k.id
), mine AS MATERIALIZED (
    -- In the order in which a revocation cascades to dependent tokens.
    SELECT id FROM tokens
    WHERE user_id = :user_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > CAST(:now AS timestamptz))
      AND NOT EXISTS (SELECT FROM kept k WHERE k.id = tokens.id)
    ORDER BY generation, id FOR NO KEY UPDATE
)
UPDATE tokens SET revoked_at = :now FROM mine WHERE tokens.id = mine.id AND revoked_at IS NULL
RETURNING tokens.id;

-- name: touch_tokens
-- Update when tokens were last used; locked rows are skipped, so that nobody waits.
WITH used AS (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:times AS timestamptz[])) AS used (id, at)
), mine AS (
    SELECT t.id FROM tokens t WHERE t.id = ANY(CAST(:ids AS text[])) ORDER BY t.id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE tokens t SET last_used_at = used.at
FROM used JOIN mine USING (id)
WHERE t.id = used.id AND (t.last_used_at IS NULL OR t.last_used_at < used.at);
