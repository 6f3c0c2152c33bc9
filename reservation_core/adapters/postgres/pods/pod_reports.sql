-- Foreign pods that use bookings.

-- name: take_reports_in_turn
-- Serialise reports, which are compared with stored admissions.
SELECT pg_advisory_xact_lock(hashtextextended('admissions', 0));

-- name: hold_bookings_of_pods
-- Lock named bookings, and current or recent bookings of users.
SELECT r.id FROM reservations r
WHERE r.kind = 'booking' AND r.id = ANY (ARRAY(
    SELECT unnest(CAST(:ids AS text[]))
    UNION
    SELECT b.id FROM users u JOIN bookings b ON b.user_id = u.id
    WHERE u.name = ANY(CAST(:users AS text[]))
      AND tstzrange(b.starts_at, b.ends_at) &&
          tstzrange(least(CAST(:earliest AS timestamptz), CAST(:now AS timestamptz)), CAST(:now AS timestamptz), '[]')))
ORDER BY r.id FOR SHARE;

-- name: booked_slots
-- The slots of bookings in the ledger.
SELECT r.id, u.name AS user_name, g.gpu_type, count(DISTINCT a.gpu_id) AS gpus, min(lower(a.during)) AS begins,
       max(upper(a.during)) AS ends
FROM reservations r
JOIN users u ON u.id = r.user_id
JOIN allocations a ON a.reservation_id = r.id
JOIN gpus g ON g.id = a.gpu_id
WHERE r.id = ANY(CAST(:ids AS text[])) AND r.status NOT IN ('waiting', 'offered')
GROUP BY r.id, u.name, g.gpu_type;

-- name: admissions_of_pods
-- The admissions of pods.
SELECT booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, node FROM admissions
WHERE pod_uid = ANY(CAST(:uids AS text[]));

-- name: end_admissions
-- End admissions.
UPDATE admissions a SET ended_at = i.ended_at
FROM unnest(CAST(:booking_ids AS text[]), CAST(:uids AS text[]), CAST(:ended_ats AS timestamptz[]))
     AS i (booking_id, pod_uid, ended_at)
WHERE a.booking_id = i.booking_id AND a.pod_uid = i.pod_uid;

-- name: add_admissions
-- Store admissions.
INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, node, recorded_at)
SELECT i.booking_id, i.pod_uid, i.namespace, i.name, i.gpus, i.admitted_at, i.ended_at, i.node,
       CAST(:now AS timestamptz)
FROM unnest(CAST(:booking_ids AS text[]), CAST(:uids AS text[]), CAST(:namespaces AS text[]), CAST(:names AS text[]),
            CAST(:gpus AS integer[]), CAST(:admitted_ats AS timestamptz[]), CAST(:ended_ats AS timestamptz[]),
            CAST(:nodes AS text[]))
     AS i (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, node);

-- name: record_admissions
-- Record events about bookings, in order.
INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
SELECT r.id, CAST(:now AS timestamptz), :actor, i.kind, r.status, r.status, r.reason_code, r.reason,
       CAST(i.data AS jsonb)
FROM unnest(CAST(:booking_ids AS text[]), CAST(:kinds AS text[]), CAST(:datas AS text[]))
     WITH ORDINALITY AS i (id, kind, data, place)
JOIN reservations r ON r.id = i.id
ORDER BY i.place;
