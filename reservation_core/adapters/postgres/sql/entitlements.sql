-- name: entitlements_of_user
-- A user's bookings whose slot it is, by type. The database's clock: whoever asks may be slow or fast.
SELECT r.id, g.gpu_type, count(*) AS gpus, upper(a.during) AS until
FROM reservations r
JOIN allocations a ON a.reservation_id = r.id AND a.released_at IS NULL AND NOT a.planned
JOIN gpus g ON g.id = a.gpu_id
WHERE r.user_id = :user_id AND r.kind = 'booking' AND r.status IN ('confirmed', 'active')
  AND a.during @> clock_timestamp()
GROUP BY r.id, g.gpu_type, upper(a.during)
ORDER BY until DESC, r.id;
