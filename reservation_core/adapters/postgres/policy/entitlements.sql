-- name: entitlements_of_user
-- A user's bookings in their slot, by type, and the GPUs that their jobs and foreign pods (except one) use. By the
-- database's clock, as the caller's may be off.
SELECT r.id, g.gpu_type, count(*) AS gpus, upper(a.during) AS until,
       (SELECT count(DISTINCT n.gpu_id) FROM allocations n
        WHERE n.booking_id = r.id AND n.released_at IS NULL AND NOT n.planned
          AND (n.held OR n.during @> (SELECT ledger_now())))
       + (SELECT coalesce(sum(m.gpus), 0) FROM admissions m
          WHERE m.booking_id = r.id AND m.ended_at IS NULL
            AND m.pod_uid IS DISTINCT FROM CAST(:but_for AS text)) AS used
FROM reservations r
JOIN allocations a ON a.reservation_id = r.id AND a.released_at IS NULL AND NOT a.planned
JOIN gpus g ON g.id = a.gpu_id
WHERE r.user_id = :user_id AND r.kind = 'booking' AND r.status IN ('confirmed', 'active') AND r.finished_at IS NULL
  AND a.during @> (SELECT ledger_now())
GROUP BY r.id, g.gpu_type, upper(a.during)
ORDER BY until DESC, r.id;

-- name: nodes_of_booking
-- A booking's GPUs of a type by node, and the number of unused ones: without a job in the booking, an overrunning pod,
-- or a known foreign pod (except one).
SELECT c.name, c.gpus, greatest(0, c.unused - coalesce(p.gpus, 0)) AS unused
FROM (
    SELECT n.name, count(*) AS gpus,
           count(*) FILTER (WHERE NOT EXISTS (
               SELECT 1 FROM allocations j
               WHERE j.gpu_id = a.gpu_id AND j.reservation_id <> a.reservation_id AND j.released_at IS NULL
                 AND NOT j.planned AND (j.held OR j.during @> (SELECT ledger_now())))) AS unused
    FROM allocations a
    JOIN gpus g ON g.id = a.gpu_id AND g.gpu_type = :gpu_type
    JOIN nodes n ON n.id = g.node_id
    WHERE a.reservation_id = :booking_id AND a.released_at IS NULL AND NOT a.planned AND a.during @> (SELECT ledger_now())
    GROUP BY n.name
) c
LEFT JOIN (
    SELECT m.node, sum(m.gpus) AS gpus FROM admissions m
    WHERE m.booking_id = :booking_id AND m.ended_at IS NULL AND m.pod_uid IS DISTINCT FROM CAST(:but_for AS text)
    GROUP BY m.node
) p ON p.node = c.name
ORDER BY c.name;

-- name: free_of_types
-- By type: the number of GPUs, of free GPUs by the calendar, and until when the requested number stays free. Unknown
-- pods don't count, as one may be the caller's own.
WITH taken AS (
    SELECT a.gpu_id,
           bool_or(a.held OR (a.booking_id IS NULL AND a.during @> (SELECT ledger_now()))) AS now,
           min(lower(a.during)) FILTER (WHERE a.booking_id IS NULL AND lower(a.during) > (SELECT ledger_now())) AS next
    FROM allocations a WHERE a.released_at IS NULL
    GROUP BY a.gpu_id
)
SELECT g.gpu_type, count(*) AS cards, count(*) FILTER (WHERE t.now IS NOT TRUE) AS free,
       (array_agg(t.next ORDER BY t.next DESC NULLS FIRST) FILTER (WHERE t.now IS NOT TRUE))[CAST(:gpus AS integer)] AS until
FROM gpus g
JOIN nodes n ON n.id = g.node_id AND n.removed_at IS NULL
JOIN node_conditions s ON s.node_id = n.id AND s.available
LEFT JOIN taken t ON t.gpu_id = g.id
WHERE g.condition IN ('usable', 'foreign') AND (CAST(:gpu_type AS text) IS NULL OR g.gpu_type = CAST(:gpu_type AS text))
GROUP BY g.gpu_type
ORDER BY g.gpu_type;

-- name: promised_cards
-- The GPUs that the ledger has assigned, without slots of waiting jobs. Jobs within a booking count as the booking
-- while it lasts; overrunning pods always count.
SELECT n.name AS node, g.index AS card, coalesce(a.booking_id, a.reservation_id) AS id, lower(a.during) AS starts_at, upper(a.during) AS ends_at, a.held
FROM allocations a
JOIN gpus g ON g.id = a.gpu_id
JOIN nodes n ON n.id = g.node_id AND n.removed_at IS NULL
WHERE a.released_at IS NULL AND NOT a.planned AND (a.held OR (a.booking_id IS NULL AND upper(a.during) > (SELECT ledger_now())))
ORDER BY n.name, g.index, lower(a.during);
