-- name: events_newest_first
-- Of the newest events within a time and before a place those that are asked for. Only `scanned` are looked at. One
-- bound says where the walk along the index begins; what the others leave out is little, and they are kept from the index.
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
-- The last place that such a search looked at; nothing where there was nothing left to look at.
SELECT at, id FROM events
WHERE at >= coalesce(CAST(:from AS timestamptz), '-infinity')
  AND at <= least(CAST(:to AS timestamptz), CAST(:before_at AS timestamptz), 'infinity')
  AND (at < coalesce(CAST(:to AS timestamptz), 'infinity')) IS TRUE
  AND ((at, id) < (coalesce(CAST(:before_at AS timestamptz), 'infinity'), coalesce(CAST(:before_id AS bigint), 0))) IS TRUE
ORDER BY at DESC, id DESC OFFSET CAST(:scanned AS bigint) - 1 LIMIT 1;

-- name: events_of_subject
-- The same of everything about one thing: a reservation by its id, or what else has a name. A node that comes and goes has
-- as many events as it likes.
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
-- The last place that such a search looked at.
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

-- name: subject_is_of_user
-- Whether a reservation, a token or a place for notices is this user's.
SELECT EXISTS (SELECT FROM reservations WHERE id = :subject AND user_id = :user_id)
    OR EXISTS (SELECT FROM tokens WHERE id = :subject AND user_id = :user_id)
    OR EXISTS (SELECT FROM notice_targets WHERE id = :subject AND user_id = :user_id);
