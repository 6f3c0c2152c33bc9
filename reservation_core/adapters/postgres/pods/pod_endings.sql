-- The state of ending foreign pods, and the data for decisions about them.

-- name: take_turn_at_ending_pods
-- Serialise processes: one reads what the previous one has written.
SELECT pg_advisory_xact_lock(hashtextextended('pod endings', 0));

-- name: remembered_pods
-- The state of all pods.
SELECT pod_uid, namespace, name, seen_at, owner, preemptible, booking_id, ends_at, warned_at, asked_at, refused_at, told_at
FROM pod_endings;

-- name: booked_times
-- Status and slots of bookings.
SELECT r.id, u.name AS user_name, r.status, b.starts_at, b.ends_at
FROM bookings b JOIN reservations r ON r.id = b.id JOIN users u ON u.id = r.user_id
WHERE b.id = ANY(CAST(:ids AS text[]));

-- name: booked_cards
-- The current GPUs of bookings, and the GPUs of their jobs, by job and since when.
SELECT a.reservation_id AS id, CAST(NULL AS text) AS job, count(DISTINCT a.gpu_id) AS cards, min(lower(a.during)) AS began
FROM allocations a
WHERE a.reservation_id = ANY(CAST(:ids AS text[])) AND a.released_at IS NULL AND NOT a.planned
  AND a.during @> (SELECT ledger_now())
GROUP BY a.reservation_id
UNION ALL
SELECT a.booking_id, a.reservation_id, count(DISTINCT a.gpu_id), min(lower(a.during))
FROM allocations a
WHERE a.booking_id = ANY(CAST(:ids AS text[])) AND a.released_at IS NULL AND NOT a.planned
  AND (a.held OR a.during @> (SELECT ledger_now()))
GROUP BY a.booking_id, a.reservation_id
ORDER BY id, job;

-- name: needed_cards
-- The GPUs of nodes and their current or next holders, without slots of waiting jobs and maintenance windows. Jobs
-- within a booking count as the booking.
SELECT n.name AS node, g.index AS card, g.gpu_type,
       (SELECT min(a.reservation_id) FROM allocations a JOIN reservations r ON r.id = a.reservation_id
        WHERE a.gpu_id = g.id AND a.released_at IS NULL AND NOT a.planned AND a.booking_id IS NULL
          AND r.kind <> 'maintenance'
          AND lower(a.during) <= (SELECT ledger_now()) + CAST(:lead AS interval)
          AND (a.held OR upper(a.during) > (SELECT ledger_now()))) AS needed_by
FROM gpus g JOIN nodes n ON n.id = g.node_id AND n.removed_at IS NULL
WHERE n.name = ANY(CAST(:nodes AS text[])) AND g.condition IN ('usable', 'foreign')
ORDER BY n.name, g.index;

-- name: remember_pods
-- Replace the state of pods.
INSERT INTO pod_endings (pod_uid, namespace, name, seen_at, owner, preemptible, booking_id, ends_at, warned_at, asked_at,
                         refused_at, told_at)
SELECT * FROM unnest(
    CAST(:uids AS text[]), CAST(:namespaces AS text[]), CAST(:names AS text[]), CAST(:seen_ats AS timestamptz[]),
    CAST(:owners AS text[]), CAST(:preemptibles AS boolean[]), CAST(:booking_ids AS text[]),
    CAST(:ends AS timestamptz[]), CAST(:warned_ats AS timestamptz[]), CAST(:asked_ats AS timestamptz[]),
    CAST(:refused_ats AS timestamptz[]), CAST(:told_ats AS timestamptz[]))
ON CONFLICT (pod_uid) DO UPDATE SET
    owner = excluded.owner, preemptible = excluded.preemptible, booking_id = excluded.booking_id,
    ends_at = excluded.ends_at, warned_at = excluded.warned_at, asked_at = excluded.asked_at,
    refused_at = excluded.refused_at, told_at = excluded.told_at;

-- name: forget_pods
-- Delete the state of pods that are gone.
DELETE FROM pod_endings WHERE pod_uid = ANY(CAST(:uids AS text[]));

-- name: record_pod_endings
-- Record events about the booking, or else about the pod.
INSERT INTO events (reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data)
SELECT r.id, CASE WHEN r.id IS NULL THEN i.subject END, CAST(:now AS timestamptz), 'system', i.kind, r.status, r.status,
       r.reason_code, CASE WHEN r.id IS NOT NULL THEN i.reason END, CAST(i.data AS jsonb)
FROM unnest(CAST(:booking_ids AS text[]), CAST(:subjects AS text[]), CAST(:kinds AS text[]), CAST(:reasons AS text[]),
            CAST(:datas AS text[]))
     WITH ORDINALITY AS i (booking_id, subject, kind, reason, data, place)
LEFT JOIN reservations r ON r.id = i.booking_id
ORDER BY i.place;
