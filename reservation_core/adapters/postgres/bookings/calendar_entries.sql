-- name: calendar_entries
-- Reservations of these GPUs within a time, with these GPUs. Bookings are found by their own times, including past
-- ones; of other reservations only open ones. A booking's rows lie within its times: rows within the requested time are
-- found by GPU, and by booking only where it reaches beyond, which is rare. Of one user's, the rows of others' bookings
-- are dropped at once, and so are bookings beyond the limit. Bounds of ranges are compared: see quota_held_now.
WITH booked AS MATERIALIZED (
    SELECT b.id, b.starts_at, b.ends_at, b.series_id, b.status,
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
    UNION
    SELECT reservation_id, gpu_id, during, planned, released_at IS NOT NULL FROM allocations
    WHERE reservation_id = ANY(ARRAY(SELECT id FROM booked WHERE NOT within))
      AND gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
), had AS MATERIALIZED (
    (SELECT b.id, false AS planned, b.starts_at, b.ends_at, b.series_id,
            array_agg(c.gpu_id ORDER BY c.gpu_id) AS gpu_ids
     FROM booked b JOIN cards c ON c.reservation_id = b.id
     GROUP BY b.id, b.starts_at, b.ends_at, b.series_id
     ORDER BY b.starts_at, b.id
     LIMIT CAST(:limit AS bigint))
    UNION ALL
    SELECT reservation_id, bool_or(planned), min(lower(during)), max(upper(during)), NULL,
           array_agg(gpu_id ORDER BY gpu_id)
    FROM cards
    WHERE NOT closed AND reservation_id NOT LIKE 'bkg-%'
    GROUP BY reservation_id
), theirs AS MATERIALIZED (
    SELECT id, kind, status, user_id, name, gpus, nodes FROM reservations
    WHERE id = ANY(ARRAY(SELECT id FROM had))
      AND (CAST(:only_of AS bigint) IS NULL OR user_id = CAST(:only_of AS bigint) OR kind = 'maintenance')
), people AS MATERIALIZED (
    SELECT id, name FROM users WHERE id = ANY(ARRAY(SELECT user_id FROM theirs))
)
SELECT r.id, r.kind, r.status, h.planned, r.user_id, u.name AS user_name, r.name, r.gpus, r.nodes, h.starts_at,
       h.ends_at, h.series_id, h.gpu_ids
FROM had h
JOIN theirs r ON r.id = h.id
JOIN people u ON u.id = r.user_id
ORDER BY h.starts_at, r.id
LIMIT CAST(:limit AS bigint);
