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

-- name: events_after
-- What was recorded after an event, in order: about what.
SELECT id, kind, coalesce(reservation_id, subject) AS subject FROM events WHERE id > :after_id ORDER BY id LIMIT :limit;

-- name: newest_event
-- The newest event's id; 0 when there is none.
SELECT coalesce(max(id), 0) FROM events;

-- name: estimates_as_of
-- When estimates last changed, and of how many: differs whenever the line does.
SELECT count(*) AS waiting, max(planned_at) AS planned_at FROM wait_estimates;
