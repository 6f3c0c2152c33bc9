-- name: calendar_entries
-- What has one of these cards within a time, with these cards of it. Bookings are found by their own times, also those
-- that are over; of all else only what is open.
WITH booked AS MATERIALIZED (
    SELECT b.id, b.starts_at, b.ends_at, b.series_id
    FROM bookings b
    WHERE (CAST(:only_of AS bigint) IS NULL OR b.user_id = CAST(:only_of AS bigint))
      AND b.status IN ('offered', 'confirmed', 'active', 'ended')
      AND tstzrange(b.starts_at, b.ends_at) && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
), had AS (
    SELECT b.id, false AS planned, b.starts_at, b.ends_at, b.series_id,
           array_agg(a.gpu_id ORDER BY a.gpu_id) AS gpu_ids
    FROM booked b JOIN allocations a ON a.reservation_id = b.id
    WHERE a.gpu_id = ANY(CAST(:gpu_ids AS bigint[]))
    GROUP BY b.id, b.starts_at, b.ends_at, b.series_id
    UNION ALL
    SELECT a.reservation_id, bool_or(a.planned), min(lower(a.during)), max(upper(a.during)), NULL,
           array_agg(a.gpu_id ORDER BY a.gpu_id)
    FROM allocations a
    WHERE a.gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND a.released_at IS NULL AND a.booking_id IS NULL
      AND a.during && tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))
      AND a.reservation_id NOT LIKE 'bkg-%'
    GROUP BY a.reservation_id
)
SELECT r.id, r.kind, r.status, h.planned, r.user_id, u.name AS user_name, r.name, r.gpus, r.nodes, h.starts_at,
       h.ends_at, h.series_id, h.gpu_ids
FROM had h
JOIN reservations r ON r.id = h.id
JOIN users u ON u.id = r.user_id
WHERE (CAST(:only_of AS bigint) IS NULL OR r.user_id = CAST(:only_of AS bigint) OR r.kind = 'maintenance')
ORDER BY h.starts_at, r.id;
