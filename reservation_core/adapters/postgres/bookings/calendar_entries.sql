-- name: calendar_entries
-- Reservations of these GPUs within a time, with these GPUs. Bookings are found by their own times, including past
-- ones; of other reservations only open ones. A booking's rows lie within its times: rows within the requested time are
-- found by GPU, and by booking only where it reaches beyond, which is rare. Of one user's, the rows of others' bookings
-- are dropped at once. A row can be found in both ways. Bounds of ranges are compared: see quota_held_now.
-- More than `merged_above` reservations are merged: those of a kind that begin in one step on one row of GPUs are one
-- line with their number, and only the first few of them are read whole. Otherwise each is a line, up to the limit.
WITH booked AS MATERIALIZED (
    SELECT b.id, b.user_id, b.starts_at, b.ends_at, b.series_id, b.status,
           b.starts_at >= CAST(:start AS timestamptz) AND b.ends_at <= CAST(:end AS timestamptz) AS within
    FROM bookings b
    WHERE (CAST(:only_of AS bigint) IS NULL OR b.user_id = CAST(:only_of AS bigint))
      AND b.status IN ('offered', 'confirmed', 'active', 'ended')
      AND tstzrange(b.starts_at, b.ends_at) && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
), cards AS MATERIALIZED (
    SELECT reservation_id, gpu_id, during, planned, false AS closed FROM allocations
    WHERE gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND booking_id IS NULL AND released_at IS NULL
      AND CAST(:start AS timestamptz) < CAST(:end AS timestamptz)
      AND lower(during) < CAST(:end AS timestamptz) AND upper(during) > CAST(:start AS timestamptz)
      AND (CAST(:only_of AS bigint) IS NULL OR reservation_id NOT LIKE 'bkg-%'
           OR reservation_id IN (SELECT id FROM booked))
    UNION ALL
    SELECT reservation_id, gpu_id, during, planned, true FROM allocations
    WHERE gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND released_at IS NOT NULL AND reservation_id LIKE 'bkg-%'
      AND during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
      AND EXISTS (SELECT FROM booked WHERE within AND status = 'ended')
    UNION ALL
    SELECT reservation_id, gpu_id, during, planned, released_at IS NOT NULL FROM allocations
    WHERE reservation_id = ANY(ARRAY(SELECT id FROM booked WHERE NOT within))
      AND gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
), others AS MATERIALIZED (
    SELECT id, user_id, kind FROM reservations
    WHERE id = ANY(ARRAY(SELECT reservation_id FROM cards WHERE NOT closed AND reservation_id NOT LIKE 'bkg-%'))
      AND (CAST(:only_of AS bigint) IS NULL OR user_id = CAST(:only_of AS bigint) OR kind = 'maintenance')
), had AS MATERIALIZED (
    SELECT b.id, b.user_id, 'booking' AS kind, false AS planned, b.starts_at, b.ends_at, b.series_id
    FROM booked b WHERE b.id IN (SELECT reservation_id FROM cards)
    UNION ALL
    SELECT o.id, o.user_id, o.kind, bool_or(c.planned), min(lower(c.during)), max(upper(c.during)), NULL
    FROM others o JOIN cards c ON c.reservation_id = o.id AND NOT c.closed
    GROUP BY o.id, o.user_id, o.kind
), counted AS MATERIALIZED (
    SELECT count(*) > CAST(:merged_above AS bigint) AS are_merged FROM had
), spots AS (
    SELECT DISTINCT c.reservation_id, s.place
    FROM cards c
    JOIN unnest(CAST(:gpu_ids AS bigint[]), CAST(:places AS integer[])) AS s (gpu_id, place) ON s.gpu_id = c.gpu_id
), lines AS MATERIALIZED (
    SELECT s.place, greatest(width_bucket(h.starts_at, CAST(:steps AS timestamptz[])), 1) AS step,
           h.user_id = CAST(:viewer AS bigint) AND h.kind <> 'maintenance' AS mine,
           h.ends_at - h.starts_at > make_interval(secs => CAST(:step_s AS double precision)) AS long,
           h.kind, count(*) AS entries, min(h.starts_at) AS starts_at, max(h.ends_at) AS ends_at,
           (array_agg(h.id ORDER BY h.starts_at, h.id))[1 : CAST(:named AS integer)] AS ids
    FROM had h JOIN spots s ON s.reservation_id = h.id
    WHERE (SELECT are_merged FROM counted)
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    (SELECT NULL, NULL, NULL, NULL, NULL, 1, starts_at, ends_at, ARRAY[id]
     FROM had
     WHERE (SELECT are_merged FROM counted) IS NOT TRUE
     ORDER BY starts_at, id
     LIMIT CAST(:limit AS bigint))
), named AS MATERIALIZED (
    SELECT c.reservation_id, array_agg(DISTINCT c.gpu_id ORDER BY c.gpu_id) AS gpu_ids
    FROM cards c WHERE c.reservation_id IN (SELECT unnest(ids) FROM lines)
    GROUP BY c.reservation_id
), theirs AS MATERIALIZED (
    SELECT id, kind, status, user_id, name, gpus, nodes FROM reservations
    WHERE id = ANY(ARRAY(SELECT reservation_id FROM named))
), people AS MATERIALIZED (
    SELECT id, name FROM users WHERE id = ANY(ARRAY(SELECT user_id FROM theirs))
)
SELECT l.place, l.step, l.mine, l.long, l.kind AS line_kind, l.entries, l.starts_at AS first_start, l.ends_at AS last_end,
       r.id, r.kind, r.status, h.planned, r.user_id, u.name AS user_name, r.name, r.gpus, r.nodes, h.starts_at,
       h.ends_at, h.series_id, n.gpu_ids
FROM lines l
CROSS JOIN LATERAL unnest(l.ids) AS i (id)
JOIN had h ON h.id = i.id
JOIN named n ON n.reservation_id = h.id
JOIN theirs r ON r.id = h.id
JOIN people u ON u.id = r.user_id
ORDER BY l.step, l.place, l.mine, l.long, l.kind, h.starts_at, r.id;
