-- name: feed_bookings
-- A user's own bookings that end after a time, the latest first: where there are too many, the oldest are left out.
SELECT b.id
FROM bookings b
WHERE b.user_id = :user_id AND b.status = ANY(CAST(:statuses AS text[])) AND b.ends_at > CAST(:from AS timestamptz)
  AND b.starts_at > CAST(:from AS timestamptz) - make_interval(secs => :longest_s) - interval '1 day'
ORDER BY b.starts_at DESC, b.id DESC LIMIT :limit;
