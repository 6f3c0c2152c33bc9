-- name: events_of_reservation
-- A reservation's events after an id, in order.
SELECT id, reservation_id, at, actor, kind, before, after, reason_code, reason, data
FROM events
WHERE reservation_id = :reservation_id AND id > :after_id
ORDER BY id LIMIT :limit;

-- name: append_event
-- Record something that is not about a reservation.
INSERT INTO events (subject, at, actor, kind, data)
VALUES (:subject, :at, :actor, :kind, CAST(:data AS jsonb));
