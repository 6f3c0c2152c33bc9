-- name: lock_calendar
-- Serialise bookings that lost too many races for GPUs.
SELECT pg_advisory_xact_lock(hashtextextended('bookings', 0));

-- name: bookable_cards
-- Every GPU of existing nodes, with the starts and the ends of its open ranges in the requested time, in one order, each
-- concatenated in the server's binary form: parsing 20,000 of them as text would dominate the cost on both sides. Jobs
-- within a booking lie in its ranges and are not read, except overrunning pods. Overlaps are found by the function, not
-- by its operator: the operator's index holds the whole history, and comparing the bounds costs twice as much for each
-- of 20,000 ranges.
WITH crowded AS (
    -- Jobs with more CPUs or memory than their GPUs are of the node: what is left may be no share of a booking there.
    SELECT n.id AS node_id, a.reservation_id, min(lower(a.during)) AS begins, max(upper(a.during)) AS ends
    FROM allocations a
    JOIN gpus g ON g.id = a.gpu_id
    JOIN nodes n ON n.id = g.node_id
    CROSS JOIN LATERAL (SELECT count(*) AS gpus FROM gpus WHERE node_id = n.id) AS whole
    WHERE a.released_at IS NULL AND (a.cpu_milli IS NOT NULL OR a.memory_bytes IS NOT NULL)
    GROUP BY n.id, a.reservation_id, whole.gpus
    HAVING max(a.cpu_milli) * whole.gpus > max(n.cpu_milli) * count(DISTINCT a.gpu_id)
        OR max(a.memory_bytes) * whole.gpus > max(n.memory_bytes) * count(DISTINCT a.gpu_id)
), ranges AS (
    SELECT gpu_id, string_agg(timestamptz_send(begins), '') AS begins, string_agg(timestamptz_send(ends), '') AS ends
    FROM (
        SELECT gpu_id, lower(during) AS begins, upper(during) AS ends
        FROM allocations
        WHERE released_at IS NULL AND booking_id IS NULL AND CAST(:start AS timestamptz) < CAST(:end AS timestamptz)
          AND range_overlaps(during, (SELECT tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))))
          AND reservation_id <> ALL (CAST(:without AS text[]))
        UNION ALL
        SELECT g.id, w.begins, w.ends
        FROM crowded w JOIN gpus g ON g.node_id = w.node_id
        WHERE w.begins < CAST(:end AS timestamptz) AND w.ends > CAST(:start AS timestamptz)
          AND NOT EXISTS (SELECT FROM allocations a
                          WHERE a.gpu_id = g.id AND a.released_at IS NULL AND a.reservation_id = w.reservation_id)
    ) AS taken
    GROUP BY gpu_id
), overruns AS (
    SELECT gpu_id FROM allocations
    WHERE held AND upper(during) <= (SELECT ledger_now()) AND coalesce(booking_id, '') <> ALL (CAST(:without AS text[]))
)
SELECT c.gpu_id, c.node, c.index AS card_index, c.gpu_type,
       s.available AND g.condition IN ('usable', 'foreign') AS bookable,
       c.condition = 'usable' AS usable_now,
       o.gpu_id IS NOT NULL AS overrun,
       n.cordoned_at IS NOT NULL AS cordoned,
       r.begins,
       r.ends
FROM card_conditions c
JOIN gpus g ON g.id = c.gpu_id
JOIN nodes n ON n.id = c.node_id
JOIN node_conditions s ON s.node_id = c.node_id
LEFT JOIN ranges r ON r.gpu_id = c.gpu_id
LEFT JOIN overruns o ON o.gpu_id = c.gpu_id
WHERE n.removed_at IS NULL;

-- name: add_series
-- Store a series.
INSERT INTO booking_series (id, user_id, rule, time_zone, created_at)
VALUES (:id, :user_id, :rule, :time_zone, :created_at);

-- name: add_bookings
-- Store bookings with their GPUs, events and messages in one statement. GPUs are taken in the order of their ids; taken
-- ones are left out without an error: the caller counts, and rolls back if one is missing. Bookings that begin in this
-- minute have their GPUs from now on, as another reservation may have had them until a moment ago.
WITH input AS (
    SELECT * FROM json_to_recordset(CAST(:bookings AS json)) AS i (
        id text, user_id bigint, name text, status text, reason_code text, reason text, gpus integer, gpu_type text,
        nodes integer, project text, workload jsonb, created_at timestamptz, starts_at timestamptz,
        ends_at timestamptz, node text, series_id text, occurrence integer, auto_accept boolean,
        waits_until timestamptz, actor text, kind text
    )
), stored AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, project, created_at, changed_at)
    SELECT id, 'booking', user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, ends_at - starts_at, 0,
           workload, project, created_at, created_at
    FROM input ORDER BY starts_at
    RETURNING id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at, node_id, series_id, occurrence, auto_accept, waits_until, user_id, status)
    SELECT i.id, i.starts_at, i.ends_at, n.id, i.series_id, i.occurrence, i.auto_accept, i.waits_until, i.user_id, i.status
    FROM input i LEFT JOIN nodes n ON n.name = i.node
), placed AS (
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
    SELECT i.id, 0, c.gpu_id, c.rank, tstzrange(greatest(i.starts_at, i.created_at), i.ends_at), false, i.created_at
    FROM unnest(CAST(:owners AS text[]), CAST(:gpu_ids AS bigint[]), CAST(:ranks AS integer[]))
         AS c (id, gpu_id, rank)
    JOIN input i ON i.id = c.id
    ORDER BY c.gpu_id, i.starts_at
    ON CONFLICT DO NOTHING
    RETURNING gpu_id
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    SELECT i.id, i.created_at, i.actor, i.kind, NULL, i.status, i.reason_code, i.reason,
           jsonb_build_object('start', i.starts_at, 'end', i.ends_at)
    FROM input i ORDER BY i.starts_at
), sent AS (
    SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id)))
    FROM input HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM placed) AS cards, (SELECT count(*) FROM stored) AS bookings,
       (SELECT count(*) FROM sent) AS sent;

-- name: lock_bookings
-- Lock bookings, always in the same order.
SELECT id FROM reservations WHERE id = ANY(CAST(:ids AS text[])) AND kind = 'booking' ORDER BY id FOR NO KEY UPDATE;

-- name: booking_views
-- Whole bookings, with all their jobs.
SELECT r.id, r.seq, r.user_id, u.name AS user_name, r.name, r.project, r.status, r.reason_code, r.reason, r.gpus,
       r.gpu_type, r.nodes, r.workload, r.created_at, r.version, b.starts_at, b.ends_at, n.name AS node, b.series_id,
       b.occurrence, b.auto_accept, b.waits_until, b.offer_until, b.used_at, b.release_at, b.started_job,
       r.started_at, r.finished_at, b.start_warned_at, b.end_warned_at, b.no_show_warned_at,
       ARRAY(SELECT j.id FROM reservations j WHERE j.booking_id = r.id ORDER BY j.seq LIMIT 1000) AS jobs
FROM reservations r
JOIN bookings b ON b.id = r.id
JOIN users u ON u.id = r.user_id
LEFT JOIN nodes n ON n.id = b.node_id
WHERE r.id = ANY(CAST(:ids AS text[]));

-- name: project_of_booking
-- The project of a user's booking, which never changes.
SELECT project FROM reservations WHERE id = :id AND user_id = :user_id AND kind = 'booking';

-- name: booking_cards
-- The GPUs of bookings, by rank and index, with what their nodes have.
SELECT a.reservation_id, a.gpu_id, n.name AS node, g.index AS card_index, g.uuid, a.rank, lower(a.during) AS starts_at,
       upper(a.during) AS ends_at, a.held, n.cpu_milli, n.memory_bytes, whole.gpus AS gpus_of_node
FROM allocations a
JOIN gpus g ON g.id = a.gpu_id
JOIN nodes n ON n.id = g.node_id
CROSS JOIN LATERAL (SELECT count(*) AS gpus FROM gpus WHERE node_id = n.id) AS whole
WHERE a.reservation_id = ANY(CAST(:ids AS text[]))
ORDER BY a.reservation_id, a.rank, g.index;

-- name: list_bookings
-- Ids of bookings by start and id: the user's own, and other users' bookings with GPUs. Bookings that had begun before
-- are found by their times, others in order by user or status.
WITH asked AS (
    SELECT (SELECT id FROM users WHERE name = CAST(:user AS text)) AS named,
           CASE WHEN CAST(:user AS text) IS NOT NULL THEN coalesce((SELECT id FROM users WHERE name = CAST(:user AS text)), 0)
                WHEN :only_own THEN CAST(:user_id AS bigint) END AS whose,
           greatest(CAST(:from AS timestamptz), CAST(:after_start AS timestamptz)) AS beyond
), visible AS NOT MATERIALIZED (
    SELECT b.id, b.starts_at, b.ends_at, b.user_id, b.status
    FROM bookings b
    WHERE (CAST(:after_start AS timestamptz) IS NULL OR (b.starts_at, b.id) > (CAST(:after_start AS timestamptz), :after_id))
      AND (CAST(:to AS timestamptz) IS NULL OR b.starts_at < CAST(:to AS timestamptz))
      AND (CAST(:user_id AS bigint) IS NULL OR b.user_id = CAST(:user_id AS bigint)
           OR (NOT :only_own AND b.status IN ('offered', 'confirmed', 'active', 'ended')))
      AND (CAST(:user AS text) IS NULL OR b.user_id = (SELECT named FROM asked))
      AND (CAST(:statuses AS text[]) IS NULL OR b.status = ANY(CAST(:statuses AS text[])))
)
SELECT id FROM (
    SELECT id, starts_at FROM visible
    WHERE tstzrange(starts_at, ends_at) @> CAST(:from AS timestamptz)
    UNION ALL
    (SELECT id, starts_at FROM visible
     WHERE CAST(:statuses AS text[]) IS NULL AND (SELECT whose FROM asked) IS NULL
       AND starts_at > CAST(:from AS timestamptz) AND starts_at >= (SELECT beyond FROM asked)
     ORDER BY starts_at, id LIMIT :limit)
    UNION ALL
    (SELECT v.id, v.starts_at FROM unnest(CAST(:statuses AS text[])) AS s (status) CROSS JOIN LATERAL (
         SELECT id, starts_at FROM visible
         WHERE status = s.status AND (SELECT whose FROM asked) IS NULL
           AND starts_at > CAST(:from AS timestamptz) AND starts_at >= (SELECT beyond FROM asked)
         ORDER BY starts_at, id LIMIT :limit) v)
    UNION ALL
    (SELECT v.id, v.starts_at
     FROM unnest(coalesce(CAST(:statuses AS text[]), CAST(:every_status AS text[]))) AS s (status) CROSS JOIN LATERAL (
         SELECT id, starts_at FROM visible
         WHERE user_id = (SELECT whose FROM asked) AND status = s.status
           AND starts_at > CAST(:from AS timestamptz) AND starts_at >= (SELECT beyond FROM asked)
         ORDER BY starts_at, id LIMIT :limit) v)
) AS found
ORDER BY starts_at, id LIMIT :limit;

-- name: bookings_of_series
-- Open bookings of a series, from an occurrence on.
SELECT b.id FROM bookings b JOIN reservations r ON r.id = b.id
WHERE b.series_id = :series_id AND b.occurrence >= CAST(:occurrence AS integer)
  AND r.status IN ('waiting', 'offered', 'confirmed', 'active')
ORDER BY b.id;

-- name: jobs_within
-- Unended jobs of these bookings.
SELECT id FROM reservations
WHERE booking_id = ANY(CAST(:ids AS text[])) AND status IN ('queued', 'starting', 'running', 'ending')
ORDER BY id;

-- name: taken_within
-- Jobs that hold GPUs within a booking, and until when.
SELECT reservation_id, max(upper(during)) AS until FROM allocations
WHERE booking_id = :id AND released_at IS NULL AND NOT planned
GROUP BY reservation_id ORDER BY reservation_id;

-- name: write_booking
-- Update a booking whose version must be the one that was read.
UPDATE reservations
SET name = CAST(:name AS text), status = :status, reason_code = :reason_code, reason = :reason,
    gpu_type = CAST(:gpu_type AS text), duration = CAST(:end AS timestamptz) - CAST(:start AS timestamptz),
    version = version + 1,
    changed_at = CASE WHEN status = :status THEN changed_at ELSE CAST(:now AS timestamptz) END,
    finished_at = CAST(:finished_at AS timestamptz)
WHERE id = :id AND version = :version;

-- name: write_booking_times
-- Update a booking's times and pinned node.
UPDATE bookings
SET starts_at = :start, ends_at = :end, node_id = (SELECT id FROM nodes WHERE name = CAST(:node AS text)),
    waits_until = CAST(:waits_until AS timestamptz)
WHERE id = :id;

-- name: drop_plans_within
-- Drop slots of bookings' waiting jobs outside a time (null: all slots), and notify the planner.
WITH dropped AS (
    DELETE FROM allocations
    WHERE booking_id = ANY(CAST(:ids AS text[])) AND planned
      AND (CAST(:start AS timestamptz) IS NULL
           OR NOT during <@ tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz)))
    RETURNING reservation_id
)
SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', reservation_id)))
FROM (SELECT DISTINCT reservation_id FROM dropped) AS each HAVING count(*) > 0;

-- name: move_booked_cards
-- Change the time of a booking's GPUs; once it has begun, its start stays. Quotas count from now.
UPDATE allocations
SET created_at = CAST(:now AS timestamptz),
    during = tstzrange(CASE WHEN CAST(:begun AS boolean) THEN lower(during)
                            ELSE greatest(CAST(:start AS timestamptz), CAST(:now AS timestamptz)) END,
                       CAST(:end AS timestamptz))
WHERE reservation_id = :id AND released_at IS NULL;

-- name: drop_booked_cards
-- Delete the GPUs of bookings that have not begun.
DELETE FROM allocations WHERE reservation_id = ANY(CAST(:ids AS text[])) AND released_at IS NULL;

-- name: place_booked_cards
-- Assign other GPUs to a booking; taken ones are left out (see add_bookings).
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT CAST(:id AS text), 0, c.gpu_id, c.rank,
       tstzrange(greatest(CAST(:start AS timestamptz), CAST(:now AS timestamptz)), CAST(:end AS timestamptz)), false,
       CAST(:now AS timestamptz)
FROM unnest(CAST(:gpu_ids AS bigint[]), CAST(:ranks AS integer[])) AS c (gpu_id, rank)
ORDER BY c.gpu_id
ON CONFLICT DO NOTHING;

-- name: cut_within
-- End all jobs within these bookings in the calendar; existing pods keep their hold.
UPDATE allocations
SET during = tstzrange(lower(during), greatest(CAST(:now AS timestamptz), lower(during) + interval '1 microsecond'))
WHERE booking_id = ANY(CAST(:ids AS text[])) AND released_at IS NULL AND upper(during) > CAST(:now AS timestamptz);

-- name: close_booked_cards
-- Free the rest of the GPUs' time of bookings that have begun.
UPDATE allocations
SET released_at = CAST(:now AS timestamptz),
    during = tstzrange(lower(during), least(upper(during),
                       greatest(CAST(:now AS timestamptz), lower(during) + interval '1 microsecond')))
WHERE reservation_id = ANY(CAST(:ids AS text[])) AND released_at IS NULL;

-- name: record_booking
-- Record an event, and notify the planner.
WITH recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after, reason_code, reason, data)
    VALUES (:id, :now, :actor, :kind, :before, :after, :reason_code, :reason, CAST(:data AS jsonb))
)
SELECT pgmq.send('gpu_jobs', jsonb_build_object('v', 1, 'kind', 'changed', 'id', CAST(:id AS text)));

-- name: put_feed
-- Create or replace a user's calendar address.
INSERT INTO calendar_feeds (user_id, digest, created_at, made_with) VALUES (:user_id, :digest, :now, :made_with)
ON CONFLICT (user_id) DO UPDATE
SET digest = excluded.digest, created_at = excluded.created_at, made_with = excluded.made_with;

-- name: remove_feed
-- Delete a calendar address.
DELETE FROM calendar_feeds WHERE user_id = :user_id;

-- name: feed_owner
-- The owner of a calendar address, if enabled and if the token that it was made with is valid.
SELECT u.id, u.name, f.digest, f.made_with
FROM calendar_feeds f JOIN users u ON u.id = f.user_id LEFT JOIN tokens t ON t.id = f.made_with
WHERE f.digest = :digest AND u.disabled_at IS NULL
  AND t.revoked_at IS NULL AND coalesce(t.expires_at, 'infinity') > CAST(:now AS timestamptz);

-- name: check_deferred_constraints
-- Check deferred constraints now.
SET CONSTRAINTS ALL IMMEDIATE;
