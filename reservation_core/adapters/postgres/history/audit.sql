-- name: events_newest_first
-- The newest matching events within a time and before a place, among `scanned` ones. One bound is where the index scan
-- begins; the others exclude few events, and are written such that they use no index.
SELECT * FROM (
    SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data
    FROM events
    WHERE at >= coalesce(CAST(:from AS timestamptz), '-infinity')
      AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
      AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
      AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
    ORDER BY at DESC, id DESC LIMIT CAST(:scanned AS bigint)
) AS looked_at
WHERE (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
  AND (CAST(:actor AS text) IS NULL OR actor = CAST(:actor AS text))
ORDER BY at DESC, id DESC LIMIT :limit;

-- name: oldest_event_looked_at
-- The last scanned place of such a search; no row at the end of the log.
SELECT at, id FROM events
WHERE at >= coalesce(CAST(:from AS timestamptz), '-infinity')
  AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
  AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
  AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
ORDER BY at DESC, id DESC OFFSET CAST(:scanned AS bigint) - 1 LIMIT 1;

-- name: events_of_subject
-- The same for one subject: a reservation by its id, or another subject by its name, which may have any number of
-- events.
SELECT * FROM (
    SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data FROM events
    WHERE reservation_id = CAST(:subject AS text)
      AND at >= coalesce(CAST(:from AS timestamptz), '-infinity')
      AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
      AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
      AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
    UNION ALL
    (SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data FROM events
     WHERE subject = CAST(:subject AS text)
      AND at >= coalesce(CAST(:from AS timestamptz), '-infinity')
      AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
      AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
      AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
     ORDER BY subject DESC, at DESC, id DESC LIMIT CAST(:scanned AS bigint))
    ORDER BY at DESC, id DESC LIMIT CAST(:scanned AS bigint)
) AS looked_at
WHERE (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
  AND (CAST(:actor AS text) IS NULL OR actor = CAST(:actor AS text))
ORDER BY at DESC, id DESC LIMIT :limit;

-- name: oldest_event_of_subject_looked_at
-- The last scanned place of such a search.
SELECT at, id FROM (
    SELECT at, id FROM events
    WHERE reservation_id = CAST(:subject AS text)
      AND at >= coalesce(CAST(:from AS timestamptz), '-infinity')
      AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
      AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
      AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
    UNION ALL
    (SELECT at, id FROM events
     WHERE subject = CAST(:subject AS text)
      AND at >= coalesce(CAST(:from AS timestamptz), '-infinity')
      AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
      AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
      AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
     ORDER BY subject DESC, at DESC, id DESC LIMIT CAST(:scanned AS bigint))
) AS about
ORDER BY at DESC, id DESC OFFSET CAST(:scanned AS bigint) - 1 LIMIT 1;

-- name: events_oldest_first
-- The oldest matching events within a time and after a place, among `scanned` ones: see `events_newest_first`.
SELECT * FROM (
    SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data
    FROM events
    WHERE at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
      AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
      AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
    ORDER BY at, id LIMIT CAST(:scanned AS bigint)
) AS looked_at
WHERE (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
  AND (CAST(:actor AS text) IS NULL OR actor = CAST(:actor AS text))
ORDER BY at, id LIMIT :limit;

-- name: newest_event_looked_at
-- The last scanned place of such a search; no row at the end of the log.
SELECT at, id FROM events
WHERE at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
  AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
  AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
ORDER BY at, id OFFSET CAST(:scanned AS bigint) - 1 LIMIT 1;

-- name: events_of_subject_oldest_first
-- The same for one subject, as in `events_of_subject`.
SELECT * FROM (
    SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data FROM events
    WHERE reservation_id = CAST(:subject AS text)
      AND at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
      AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
      AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
    UNION ALL
    (SELECT id, reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data FROM events
     WHERE subject = CAST(:subject AS text)
      AND at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
      AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
      AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
     ORDER BY subject, at, id LIMIT CAST(:scanned AS bigint))
    ORDER BY at, id LIMIT CAST(:scanned AS bigint)
) AS looked_at
WHERE (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
  AND (CAST(:actor AS text) IS NULL OR actor = CAST(:actor AS text))
ORDER BY at, id LIMIT :limit;

-- name: newest_event_of_subject_looked_at
-- The last scanned place of such a search.
SELECT at, id FROM (
    SELECT at, id FROM events
    WHERE reservation_id = CAST(:subject AS text)
      AND at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
      AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
      AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
    UNION ALL
    (SELECT at, id FROM events
     WHERE subject = CAST(:subject AS text)
      AND at >= greatest(CAST(:from AS timestamptz), CAST(:after_at AS timestamptz), '-infinity')
      AND at < coalesce(CAST(:to AS timestamptz), 'infinity')
      AND ((at, id) > (coalesce(CAST(:after_at AS timestamptz), '-infinity'), coalesce(CAST(:after_id AS bigint), 0))) IS TRUE
     ORDER BY subject, at, id LIMIT CAST(:scanned AS bigint))
) AS about
ORDER BY at, id OFFSET CAST(:scanned AS bigint) - 1 LIMIT 1;

-- name: subject_is_of_user
-- Whether a reservation, a token or a notification target belongs to a user.
SELECT EXISTS (SELECT FROM reservations WHERE id = :subject AND user_id = :user_id)
    OR EXISTS (SELECT FROM tokens WHERE id = :subject AND user_id = :user_id)
    OR EXISTS (SELECT FROM notice_targets WHERE id = :subject AND user_id = :user_id);
