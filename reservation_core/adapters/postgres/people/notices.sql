-- name: lock_whose_notices
-- Serialise changes of a user's notification settings: the next statement's snapshot is newer than the lock.
SELECT id, preferences_version FROM users WHERE id = :user_id FOR NO KEY UPDATE;

-- name: add_notice_target
-- Store a target unless its user has too many.
WITH owner AS (
    SELECT id, name FROM users WHERE id = :user_id
), added AS (
    INSERT INTO notice_targets (id, user_id, channel, name, address, secret, code, created_at, verified_at, tested_at)
    SELECT :id, o.id, CAST(:channel AS text), :name, :address, :secret, CAST(:code AS text),
           CAST(:now AS timestamptz),
           CASE WHEN CAST(:code AS text) IS NULL THEN CAST(:now AS timestamptz) END,
           CASE WHEN CAST(:code AS text) IS NOT NULL THEN CAST(:now AS timestamptz) END
    FROM owner o
    WHERE (SELECT count(*) FROM notice_targets t WHERE t.user_id = o.id AND t.removed_at IS NULL) < :most
      AND (SELECT count(*) FROM notice_targets t
           WHERE t.user_id = o.id AND t.created_at > CAST(:now AS timestamptz) - interval '1 day') < :most_a_day
    RETURNING *
)
SELECT a.id, a.user_id, o.name AS user_name, a.channel, a.name, a.address, a.created_at, a.verified_at, a.delivered_at,
       a.failed_at, a.failure, a.told
FROM added a JOIN owner o ON o.id = a.user_id;

-- name: notice_targets_of_user
-- One user's targets after an id, in order.
SELECT t.id, t.user_id, u.name AS user_name, t.channel, t.name, t.address, t.created_at, t.verified_at, t.delivered_at,
       t.failed_at, t.failure, t.told
FROM notice_targets t JOIN users u ON u.id = t.user_id
WHERE t.user_id = :user_id AND t.removed_at IS NULL AND t.id > :after ORDER BY t.id LIMIT :limit;

-- name: notice_targets_of_everybody
-- All targets after an id, in order.
SELECT t.id, t.user_id, u.name AS user_name, t.channel, t.name, t.address, t.created_at, t.verified_at, t.delivered_at,
       t.failed_at, t.failure, t.told
FROM notice_targets t JOIN users u ON u.id = t.user_id
WHERE t.removed_at IS NULL AND t.id > :after ORDER BY t.id LIMIT :limit;

-- name: notice_target
-- A target of a user (null: of any user).
SELECT t.id, t.user_id, u.name AS user_name, t.channel, t.name, t.address, t.created_at, t.verified_at, t.delivered_at,
       t.failed_at, t.failure, t.told
FROM notice_targets t JOIN users u ON u.id = t.user_id
WHERE t.id = :id AND t.removed_at IS NULL
  AND (CAST(:user_id AS bigint) IS NULL OR t.user_id = CAST(:user_id AS bigint));

-- name: lock_notice_target
-- The same, locked for its removal.
SELECT t.id, t.user_id, u.name AS user_name, t.channel, t.name, t.address, t.created_at, t.verified_at, t.delivered_at,
       t.failed_at, t.failure, t.told
FROM notice_targets t JOIN users u ON u.id = t.user_id
WHERE t.id = :id AND t.removed_at IS NULL
  AND (CAST(:user_id AS bigint) IS NULL OR t.user_id = CAST(:user_id AS bigint))
FOR UPDATE OF t;

-- name: remove_notice_target
-- Remove a target's secrets; the row stays, to count how many a user has made.
UPDATE notice_targets
SET removed_at = CAST(:now AS timestamptz), address = NULL, secret = NULL, code = NULL, failed_at = NULL, failure = NULL
WHERE id = :id;

-- name: verify_notice_target
-- Verify a target with the mailed code.
UPDATE notice_targets SET verified_at = CAST(:now AS timestamptz), code = NULL
WHERE id = :id AND user_id = :user_id AND removed_at IS NULL AND code = :code
RETURNING id;

-- name: claim_notice_test
-- Claim a test, which is rate-limited, as the address need not be the user's own.
UPDATE notice_targets SET tested_at = CAST(:now AS timestamptz)
WHERE id = :id AND removed_at IS NULL AND (tested_at IS NULL OR tested_at <= CAST(:not_since AS timestamptz))
RETURNING id;

-- name: notice_preferences
-- A user's preferences with defaults, and their version in the same statement; a row of nulls for no notifications at
-- all.
SELECT u.preferences_version AS version, w.kind, w.channel
FROM users u
LEFT JOIN (
    SELECT k.kind, c.channel
    FROM notice_kinds k
    CROSS JOIN unnest(CAST(:channels AS text[])) AS c (channel)
    LEFT JOIN notice_preferences p ON p.user_id = :user_id AND p.kind = k.kind AND p.channel = c.channel
    WHERE coalesce(p.wanted, k.by_default)
) w ON true
WHERE u.id = :user_id;

-- name: count_preferences_up
-- Increment the version of a user's preferences; concurrent changes wait.
UPDATE users SET preferences_version = preferences_version + 1 WHERE id = :user_id;

-- name: forget_notice_preferences
-- Reset preferences to their defaults.
DELETE FROM notice_preferences WHERE user_id = :user_id;

-- name: add_notice_preferences
-- Store a user's preferences.
INSERT INTO notice_preferences (user_id, kind, channel, wanted)
SELECT :user_id, i.kind, i.channel, i.wanted
FROM unnest(CAST(:kinds AS text[]), CAST(:channels AS text[]), CAST(:wanted AS boolean[])) AS i (kind, channel, wanted);

-- name: notice_destination
-- A target with the data for deliveries.
SELECT t.id, t.user_id, u.name AS user_name, t.channel, t.name, t.address, t.created_at, t.verified_at, t.delivered_at,
       t.failed_at, t.failure, t.told, t.secret, t.code
FROM notice_targets t JOIN users u ON u.id = t.user_id
WHERE t.id = :id AND t.removed_at IS NULL AND u.disabled_at IS NULL;

-- name: notice_occasion
-- An event with notifications, and the current state of its reservation; nulls without one.
SELECT n.kind AS notice_kind, e.kind AS event, e.at, e.actor, e.reason AS why, e.data, e.subject,
       r.id, r.kind, r.name, r.status, r.gpus, r.nodes, r.gpu_type,
       coalesce(b.starts_at, r.started_at) AS starts_at, coalesce(b.ends_at, r.ends_at) AS ends_at,
       b.offer_until, b.release_at
FROM events e
JOIN notice_events n ON n.event = e.kind
LEFT JOIN reservations r ON r.id = e.reservation_id
LEFT JOIN bookings b ON b.id = r.id
WHERE e.id = :event_id;

-- name: note_notice_delivered
-- Store a successful delivery.
UPDATE notice_targets SET delivered_at = CAST(:now AS timestamptz), failed_at = NULL, failure = NULL, lost = 0
WHERE id = :id AND removed_at IS NULL;

-- name: note_notice_failed
-- Store a failed delivery.
UPDATE notice_targets SET failed_at = CAST(:now AS timestamptz), failure = :why,
       lost = lost + CASE WHEN CAST(:lost AS boolean) THEN 1 ELSE 0 END
WHERE id = :id AND removed_at IS NULL;

-- name: notice_routes
-- Where notifications can go, as the processor that started last has it.
SELECT mail, allow, public FROM notice_routes;

-- name: set_notice_routes
-- Replace where notifications can go.
INSERT INTO notice_routes (mail, allow, public) VALUES (:mail, CAST(:allow AS text[]), :public)
ON CONFLICT (only_one) DO UPDATE SET mail = excluded.mail, allow = excluded.allow, public = excluded.public
WHERE (notice_routes.mail, notice_routes.allow, notice_routes.public)
      IS DISTINCT FROM (excluded.mail, excluded.allow, excluded.public);
