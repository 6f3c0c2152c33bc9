-- name: find_jobs
-- Jobs whose name holds `text` or whose id begins with `start`, best first; a null user sees everybody's. It looks at the
-- newest `open` that are not over, at the newest `scanned` of each way to be over, at the last `shares` that were shared
-- with the user, which follow the user's own, and at the one with just this id.
WITH seen AS (
    (SELECT id, seq, name, status, user_id, finished_at FROM reservations
     WHERE CAST(:user_id AS bigint) IS NULL AND kind = 'job' AND array_id IS NULL AND finished_at IS NULL
     ORDER BY seq DESC LIMIT :open)
    UNION ALL
    (SELECT id, seq, name, status, user_id, finished_at FROM reservations
     WHERE user_id = CAST(:user_id AS bigint) AND kind = 'job' AND array_id IS NULL AND finished_at IS NULL
     ORDER BY seq DESC LIMIT :open)
    UNION ALL
    (SELECT r.* FROM unnest(ARRAY['succeeded', 'failed', 'cancelled', 'expired']) AS s (status) CROSS JOIN LATERAL (
         SELECT id, seq, name, status, user_id, finished_at FROM reservations
         WHERE CAST(:user_id AS bigint) IS NULL AND kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL
           AND status >= s.status AND (status, seq) < (s.status, CAST(:last_seq AS bigint))
         ORDER BY status DESC, seq DESC LIMIT :scanned) r)
    UNION ALL
    (SELECT r.* FROM unnest(ARRAY['succeeded', 'failed', 'cancelled', 'expired']) AS s (status) CROSS JOIN LATERAL (
         SELECT id, seq, name, status, user_id, finished_at FROM reservations
         WHERE user_id = CAST(:user_id AS bigint) AND kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL
           AND status >= s.status AND (status, seq) < (s.status, CAST(:last_seq AS bigint))
         ORDER BY status DESC, seq DESC LIMIT :scanned) r)
    UNION ALL
    (SELECT r.id, r.seq, r.name, r.status, r.user_id, r.finished_at
     FROM (SELECT reservation_id FROM job_shares WHERE user_id = CAST(:user_id AS bigint)
           ORDER BY created_at DESC, reservation_id DESC LIMIT :shares) s
     CROSS JOIN LATERAL (SELECT * FROM reservations WHERE id = s.reservation_id LIMIT 1) r)
    UNION ALL
    (SELECT id, seq, name, status, user_id, finished_at FROM reservations
     WHERE id = CAST(:start AS text) AND kind = 'job'
       AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint)
            OR EXISTS (SELECT FROM job_shares s WHERE s.reservation_id = id AND s.user_id = CAST(:user_id AS bigint))))
), matched AS (
    SELECT DISTINCT id, seq, name, status, user_id, finished_at,
           CASE WHEN id = CAST(:start AS text) OR lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))) = CAST(:text AS text) THEN 0
                WHEN starts_with(id, CAST(:start AS text)) OR starts_with(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) THEN 1
                ELSE 2 END AS rank
    FROM seen
    WHERE starts_with(id, CAST(:start AS text)) OR strpos(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0
)
SELECT m.id, m.name, m.status, u.name AS user_name
FROM matched m JOIN users u ON u.id = m.user_id
ORDER BY m.rank, m.user_id <> CAST(:user_id AS bigint), m.finished_at IS NOT NULL, m.seq DESC LIMIT :limit;

-- name: find_bookings
-- The same for bookings: of those that are not over it looks at the first `scanned` of each status by their start, of
-- those that are over at the last.
WITH seen AS (
    (SELECT b.id FROM unnest(ARRAY['waiting', 'offered', 'confirmed', 'active']) AS s (status) CROSS JOIN LATERAL (
         SELECT id FROM bookings WHERE CAST(:user_id AS bigint) IS NULL AND status = s.status
         ORDER BY starts_at, id LIMIT :scanned) b)
    UNION ALL
    (SELECT b.id FROM unnest(ARRAY['waiting', 'offered', 'confirmed', 'active']) AS s (status) CROSS JOIN LATERAL (
         SELECT id FROM bookings WHERE user_id = CAST(:user_id AS bigint) AND status = s.status
         ORDER BY starts_at, id LIMIT :scanned) b)
    UNION ALL
    (SELECT b.id FROM unnest(ARRAY['ended', 'released', 'cancelled', 'expired']) AS s (status) CROSS JOIN LATERAL (
         SELECT id FROM bookings WHERE CAST(:user_id AS bigint) IS NULL AND status = s.status
         ORDER BY starts_at DESC, id DESC LIMIT :scanned) b)
    UNION ALL
    (SELECT b.id FROM unnest(ARRAY['ended', 'released', 'cancelled', 'expired']) AS s (status) CROSS JOIN LATERAL (
         SELECT id FROM bookings WHERE user_id = CAST(:user_id AS bigint) AND status = s.status
         ORDER BY starts_at DESC, id DESC LIMIT :scanned) b)
    UNION ALL
    (SELECT id FROM bookings
     WHERE id = CAST(:start AS text) AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint)))
), matched AS (
    SELECT id, seq, name, status, user_id, finished_at,
           CASE WHEN id = CAST(:start AS text) OR lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))) = CAST(:text AS text) THEN 0
                WHEN starts_with(id, CAST(:start AS text)) OR starts_with(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) THEN 1
                ELSE 2 END AS rank
    FROM reservations
    WHERE id = ANY(ARRAY(SELECT id FROM seen))
      AND (starts_with(id, CAST(:start AS text)) OR strpos(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0)
    ORDER BY rank, finished_at IS NOT NULL, seq DESC LIMIT :limit
)
SELECT m.id, m.name, m.status, u.name AS user_name, b.starts_at
FROM matched m JOIN users u ON u.id = m.user_id JOIN bookings b ON b.id = m.id
ORDER BY m.rank, m.finished_at IS NOT NULL, m.seq DESC;

-- name: find_nodes
-- Nodes of which a name or the zone holds `text`, best first.
SELECT name, nullif(logical_name, name) AS logical_name
FROM nodes
WHERE removed_at IS NULL AND (strpos(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0
      OR strpos(lower(translate(logical_name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0 OR strpos(lower(translate(zone, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0)
ORDER BY lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))) <> CAST(:text AS text), NOT starts_with(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)), name LIMIT :limit;

-- name: find_users
-- Users whose name holds `text`, best first.
SELECT name, CASE WHEN disabled_at IS NULL THEN role ELSE 'disabled' END AS status
FROM users
WHERE strpos(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)) > 0
ORDER BY lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))) <> CAST(:text AS text), disabled_at IS NOT NULL,
         NOT starts_with(lower(translate(name, CAST(:capitals AS text), CAST(:smalls AS text))), CAST(:text AS text)), name LIMIT :limit;
