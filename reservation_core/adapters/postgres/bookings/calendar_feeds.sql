-- name: feed_bookings
-- A user's bookings that end after a time, the latest first, so that the limit drops the oldest.
SELECT v.id
FROM unnest(CAST(:statuses AS text[])) AS s (status) CROSS JOIN LATERAL (
    SELECT b.id, b.starts_at FROM bookings b
    WHERE b.user_id = :user_id AND b.status = s.status AND b.ends_at > CAST(:from AS timestamptz)
      AND b.starts_at > CAST(:from AS timestamptz) - make_interval(secs => :longest_s) - interval '1 day'
    ORDER BY b.starts_at DESC, b.id DESC LIMIT :limit
) v
ORDER BY v.starts_at DESC, v.id DESC LIMIT :limit;
