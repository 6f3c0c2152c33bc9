-- What is remembered of pods that people made, and what their ends are decided by.

-- name: take_turn_at_ending_pods
-- One after the other: what one has noted the next one reads.
SELECT pg_advisory_xact_lock(hashtextextended('pod endings', 0));

-- name: remembered_pods
-- All that is remembered.
SELECT pod_uid, namespace, name, seen_at, owner, preemptible, booking_id, ends_at, warned_at, asked_at, refused_at, told_at
FROM pod_endings;

-- name: booked_times
-- How bookings stand, and their slots.
SELECT r.id, u.name AS user_name, r.status, b.starts_at, b.ends_at
FROM bookings b JOIN reservations r ON r.id = b.id JOIN users u ON u.id = r.user_id
WHERE b.id = ANY(CAST(:ids AS text[]));

-- name: booked_cards
-- The cards that some bookings have now, and those of them that jobs are on, each job by itself and since when.
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
-- The cards of some nodes, and who has them now or soon: but for what waiting jobs were promised, and maintenance, which
-- wants nobody's cards. What is within a booking is the booking's.
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
-- What is remembered of some pods, anew.
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
-- Pods that are gone.
DELETE FROM pod_endings WHERE pod_uid = ANY(CAST(:uids AS text[]));

-- name: record_pod_endings
-- Lines of the record: of the booking where there is such a one, else of the pod.
INSERT INTO events (reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data)
SELECT r.id, CASE WHEN r.id IS NULL THEN i.subject END, CAST(:now AS timestamptz), 'system', i.kind, r.status, r.status,
       r.reason_code, CASE WHEN r.id IS NOT NULL THEN i.reason END, CAST(i.data AS jsonb)
FROM unnest(CAST(:booking_ids AS text[]), CAST(:subjects AS text[]), CAST(:kinds AS text[]), CAST(:reasons AS text[]),
            CAST(:datas AS text[]))
     WITH ORDINALITY AS i (booking_id, subject, kind, reason, data, place)
LEFT JOIN reservations r ON r.id = i.booking_id
ORDER BY i.place;
