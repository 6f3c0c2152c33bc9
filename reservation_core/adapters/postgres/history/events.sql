-- name: events_of_reservation
-- A reservation's events after an id, in order.
SELECT id, reservation_id, at, actor, kind, before, after, reason_code, reason, data
FROM events
WHERE reservation_id = :reservation_id AND id > :after_id
ORDER BY id LIMIT :limit;

-- name: append_event
-- Record an event about something else than a reservation.
INSERT INTO events (subject, at, actor, kind, data)
VALUES (:subject, :at, :actor, :kind, CAST(:data AS jsonb));

-- name: events_after
-- Events after an id in order, with their subjects, and visible ones of `late`, which are smaller.
SELECT id, kind, coalesce(reservation_id, subject) AS subject
FROM events WHERE id = ANY (CAST(:late AS bigint[])) AND id <= :after_id
UNION ALL (
    SELECT id, kind, coalesce(reservation_id, subject) FROM events WHERE id > :after_id ORDER BY id LIMIT :limit
)
ORDER BY id;

-- name: events_standing
-- A mark that changes with every new event, also with late ones whose ids are smaller than the newest.
SELECT n.newest, (SELECT count(*) FROM events WHERE id > n.newest - 2000) AS lately, w.waiting, w.planned_at
FROM (SELECT coalesce(max(id), 0) AS newest FROM events) n,
     (SELECT count(*) AS waiting, max(planned_at) AS planned_at FROM wait_estimates) w;

-- name: newest_event
-- The newest event's id; 0 without events.
SELECT coalesce(max(id), 0) FROM events;

-- name: estimates_as_of
-- The last change of estimates and their number, which differ whenever the queue does.
SELECT count(*) AS waiting, max(planned_at) AS planned_at FROM wait_estimates;
