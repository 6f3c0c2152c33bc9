-- name: feed_bookings
-- A user's own bookings that end after a time, the latest first: where there are too many, the oldest are left out.
SELECT r.id
FROM reservations r JOIN bookings b ON b.id = r.id
WHERE r.user_id = :user_id AND r.kind = 'booking' AND b.ends_at > CAST(:from AS timestamptz)
  AND r.status = ANY(CAST(:statuses AS text[]))
ORDER BY b.starts_at DESC, r.id DESC LIMIT :limit;
