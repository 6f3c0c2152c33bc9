-- name: calendar_entries
-- Reservations of these GPUs within a time, with these GPUs. Bookings are found by their own times, including past
-- ones; of other reservations only open ones. A booking's rows lie within its times: rows within the requested time are
-- found by GPU, and by booking only where it reaches beyond, which is rare. Of one user's, the rows of others' bookings
-- are dropped at once. A row can be found in both ways. Bounds of ranges are compared: see quota_held_now.
-- A full join is never a loop over all bookings for each row, however few of either are expected; bookings without a row
-- have no place.
-- More than `merged_above` reservations are merged: those of a kind that begin in one step on one row of GPUs are one
-- line with their number, and only the first few of them are read whole. Otherwise each is a line, up to the limit.
-- One user may have 80,000: rows are joined and sorted once. The integer of a merged line has its step, row, owner,
-- length and kind, in the order of the answer. The first rows usually show that there are too many reservations. Ids are
-- lowercase, so comparing their bytes gives the same order as a language would, in less time.
WITH booked AS MATERIALIZED (
    SELECT b.id, b.user_id, b.starts_at, b.ends_at, b.status,
           b.starts_at >= CAST(:start AS timestamptz) AND b.ends_at <= CAST(:end AS timestamptz) AS within
    FROM bookings b
    WHERE (CAST(:only_of AS bigint) IS NULL OR b.user_id = CAST(:only_of AS bigint))
      AND b.status IN ('offered', 'confirmed', 'active', 'ended')
      AND tstzrange(b.starts_at, b.ends_at) && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
), cards AS (
    SELECT reservation_id, gpu_id, during, planned FROM allocations
    WHERE gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND booking_id IS NULL AND released_at IS NULL
      AND CAST(:start AS timestamptz) < CAST(:end AS timestamptz)
      AND lower(during) < CAST(:end AS timestamptz) AND upper(during) > CAST(:start AS timestamptz)
    UNION ALL
    SELECT reservation_id, gpu_id, during, planned FROM allocations
    WHERE gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND released_at IS NOT NULL AND reservation_id LIKE 'bkg-%'
      AND during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
      AND EXISTS (SELECT FROM booked WHERE within AND status = 'ended')
    UNION ALL
    SELECT reservation_id, gpu_id, during, planned FROM allocations
    WHERE reservation_id = ANY(ARRAY(SELECT id FROM booked WHERE NOT within))
      AND gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
), spots AS MATERIALIZED (
    SELECT c.id, s.place, c.user_id, c.starts_at, c.ends_at, c.planned
    FROM (SELECT c.reservation_id AS id, c.gpu_id, b.user_id, coalesce(b.starts_at, lower(c.during)) AS starts_at,
                 coalesce(b.ends_at, upper(c.during)) AS ends_at, c.planned
          FROM cards c FULL JOIN booked b ON b.id = c.reservation_id
          WHERE b.id IS NOT NULL OR c.reservation_id NOT LIKE 'bkg-%'
          OFFSET 0) AS c
    JOIN unnest(CAST(:gpu_ids AS bigint[]), CAST(:places AS integer[])) AS s (gpu_id, place) ON s.gpu_id = c.gpu_id
), others AS MATERIALIZED (
    SELECT r.id, r.user_id, r.kind, bool_or(s.planned) AS planned, min(s.starts_at) AS starts_at,
           max(s.ends_at) AS ends_at
    FROM reservations r JOIN spots s ON s.id = r.id
    WHERE r.id = ANY(ARRAY(SELECT id FROM spots WHERE user_id IS NULL))
      AND (CAST(:only_of AS bigint) IS NULL OR r.user_id = CAST(:only_of AS bigint) OR r.kind = 'maintenance')
    GROUP BY r.id, r.user_id, r.kind
), had AS NOT MATERIALIZED (
    SELECT id, place, user_id, 0 AS kind, starts_at, ends_at FROM spots WHERE user_id IS NOT NULL
    UNION ALL
    SELECT o.id, s.place, o.user_id, CASE o.kind WHEN 'job' THEN 1 ELSE 2 END, o.starts_at, o.ends_at
    FROM others o JOIN spots s ON s.id = o.id
), counted AS MATERIALIZED (
    SELECT (SELECT count(DISTINCT id) FROM (SELECT id FROM had LIMIT 10 * (CAST(:merged_above AS bigint) + 1)) AS first)
               > CAST(:merged_above AS bigint)
           OR (SELECT count(DISTINCT id) FROM had WHERE CAST(:merged_above AS bigint) IS NOT NULL)
               > CAST(:merged_above AS bigint) AS are_merged
), merged AS (
    SELECT DISTINCT ON (line, starts_at, id)
           (CAST(greatest(width_bucket(starts_at, CAST(:steps AS timestamptz[])), 1) AS bigint) << 32)
               + (CAST(place AS bigint) << 4)
               + CASE WHEN user_id = CAST(:viewer AS bigint) AND kind <> 2 THEN 8 ELSE 0 END
               + CASE WHEN ends_at - starts_at > (SELECT make_interval(secs => CAST(:step_s AS double precision)))
                      THEN 4 ELSE 0 END
               + kind AS line,
           starts_at, ends_at, id COLLATE "C" AS id
    FROM had
    WHERE (SELECT are_merged FROM counted)
    ORDER BY line, starts_at, id
), lines AS MATERIALIZED (
    SELECT line, count(*) AS entries, min(starts_at) AS starts_at, max(ends_at) AS ends_at,
           (array_agg(id ORDER BY starts_at, id))[1 : CAST(:named AS integer)] AS ids
    FROM merged
    GROUP BY line
    UNION ALL
    (SELECT NULL, 1, starts_at, ends_at, ARRAY[id]
     FROM (SELECT DISTINCT id COLLATE "C" AS id, starts_at, ends_at FROM had WHERE (SELECT are_merged FROM counted) IS NOT TRUE) AS single
     ORDER BY starts_at, id
     LIMIT CAST(:limit AS bigint))
), named AS MATERIALIZED (
    SELECT reservation_id, array_agg(DISTINCT gpu_id ORDER BY gpu_id) AS gpu_ids
    FROM allocations
    WHERE reservation_id = ANY(ARRAY(SELECT unnest(ids) COLLATE "default" FROM lines)) AND gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
      AND (reservation_id LIKE 'bkg-%'
           OR booking_id IS NULL AND released_at IS NULL
              AND lower(during) < CAST(:end AS timestamptz) AND upper(during) > CAST(:start AS timestamptz))
    GROUP BY reservation_id
), theirs AS MATERIALIZED (
    SELECT r.id, r.kind, r.status, r.user_id, r.name, r.gpus, r.nodes, b.starts_at, b.ends_at, r.ends_at AS own_end, b.series_id
    FROM reservations r LEFT JOIN bookings b ON b.id = r.id
    WHERE r.id = ANY(ARRAY(SELECT reservation_id FROM named))
), people AS MATERIALIZED (
    SELECT id, name FROM users WHERE id = ANY(ARRAY(SELECT user_id FROM theirs))
)
SELECT CAST((l.line >> 4) & 268435455 AS integer) AS place, CAST(l.line >> 32 AS integer) AS step,
       l.line & 8 <> 0 AS mine, l.line & 4 <> 0 AS long,
       (ARRAY['booking', 'job', 'maintenance'])[CAST(l.line & 3 AS integer) + 1] AS line_kind,
       l.entries, l.starts_at AS first_start, l.ends_at AS last_end,
       r.id, r.kind, r.status, coalesce(o.planned, false) AS planned, r.user_id, u.name AS user_name, r.name, r.gpus,
       r.nodes, coalesce(r.starts_at, o.starts_at) AS starts_at, coalesce(r.ends_at, o.ends_at) AS ends_at, r.series_id,
       n.gpu_ids, r.own_end
FROM lines l
CROSS JOIN LATERAL unnest(l.ids) AS i (id)
JOIN theirs r ON r.id = i.id COLLATE "default"
JOIN named n ON n.reservation_id = r.id
JOIN people u ON u.id = r.user_id
LEFT JOIN others o ON o.id = r.id
ORDER BY l.line, starts_at, r.id;
