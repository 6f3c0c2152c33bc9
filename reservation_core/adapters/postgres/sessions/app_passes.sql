-- name: add_app_ticket
-- Store a ticket, and delete some passes that have expired.
WITH expired AS (
    DELETE FROM app_passes WHERE digest IN (
        SELECT digest FROM app_passes WHERE expires_at < :now ORDER BY expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO app_passes (digest, reservation_id, user_id, token_id, port, expires_at)
VALUES (:digest, :job_id, :user_id, :credential, :port, :expires_at);

-- name: use_app_ticket
-- Turn a ticket into a pass: of two that use it at once, one finds it used.
UPDATE app_passes SET digest = :passed, used_at = :now, expires_at = :until
WHERE digest = :ticket AND reservation_id = :job_id AND port = :port AND used_at IS NULL AND expires_at > :now
RETURNING 1 AS used;

-- name: app_pass
-- The pass of a cookie, unless its user is disabled or its token is no longer valid.
SELECT p.user_id, u.name AS user_name, p.token_id
FROM app_passes p JOIN users u ON u.id = p.user_id JOIN tokens t ON t.id = p.token_id
WHERE p.digest = :digest AND p.reservation_id = :job_id AND p.port = :port AND p.used_at IS NOT NULL
  AND p.expires_at > :now AND u.disabled_at IS NULL AND t.revoked_at IS NULL
  AND (t.expires_at IS NULL OR t.expires_at > :now);
