-- A cluster, its present and a long past, written by set-based statements. The past of each GPU is cut into equal slots;
-- each slot has a job, or a booking with a job in it. Statements that keep sums up run afterwards, as in production.

-- name: history_people
-- Users, half of them in projects; user 1 is an administrator.
WITH people AS (
    INSERT INTO users (name, role, created_at)
    SELECT 'person-' || n, CASE n WHEN 1 THEN 'admin' ELSE 'user' END, CAST(:now AS timestamptz) - interval '800 days'
    FROM generate_series(1, CAST(:users AS integer)) n RETURNING id
), teams AS (
    INSERT INTO projects (name, title, created_at)
    SELECT 'project-' || n, 'Project ' || n, CAST(:now AS timestamptz) FROM generate_series(0, 9) n RETURNING name
)
INSERT INTO project_members (project, user_id)
SELECT 'project-' || id % 10, id FROM people WHERE id % 2 = 0 AND (SELECT count(*) FROM teams) > 0;

-- name: history_nodes
-- Nodes of eight GPUs, of two types.
WITH named AS (
    INSERT INTO nodes (name, ready, schedulable, last_seen_at)
    SELECT 'node-' || lpad(CAST(n AS text), 5, '0'), true, true, CAST(:now AS timestamptz)
    FROM generate_series(1, CAST(:nodes AS integer)) n RETURNING id
)
INSERT INTO gpus (node_id, index, gpu_type, updated_at)
SELECT id, i, CASE id % 4 WHEN 0 THEN 'a100' ELSE 'h100' END, CAST(:now AS timestamptz)
FROM named, generate_series(0, 7) i ORDER BY id, i;

-- name: present_running
-- Jobs that run now, one on each of the first GPUs.
WITH placed AS (
    SELECT id AS gpu_id, gpu_type, 'job-r' || lpad(CAST(id AS text), 8, '0') AS id, 1 + id % CAST(:users AS integer) AS user_id
    FROM gpus WHERE id <= :running
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, attempt, range_end, started_at, ends_at)
    SELECT id, 'job', user_id, 'running', 'running', 'Runs.', 1, gpu_type, 1, interval '6 hours', 0,
           '{"command": ["true"]}', CAST(:now AS timestamptz) - interval '2 hours', CAST(:now AS timestamptz) - interval '1 hour',
           1, CAST(:now AS timestamptz) + interval '5 hours', CAST(:now AS timestamptz) - interval '1 hour',
           CAST(:now AS timestamptz) + interval '5 hours'
    FROM placed ORDER BY id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 1, gpu_id, 0, tstzrange(CAST(:now AS timestamptz) - interval '1 hour', CAST(:now AS timestamptz) + interval '5 hours'),
       true, CAST(:now AS timestamptz) - interval '1 hour'
FROM placed;

-- name: present_waiting
-- Jobs that wait, with what they were told; each came in after what runs.
WITH rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at)
    SELECT 'job-w' || lpad(CAST(n AS text), 8, '0'), 'job', 1 + n % CAST(:users AS integer), 'queued', 'submitted', 'Waits.',
           8, CASE n % 3 WHEN 0 THEN 'h100' WHEN 1 THEN 'a100' END, 1, interval '4 hours', n % 5 - 2, '{"command": ["true"]}',
           CAST(:now AS timestamptz) - interval '1 hour', CAST(:now AS timestamptz) - interval '1 hour'
    FROM generate_series(1, CAST(:waiting AS integer)) n ORDER BY n
    RETURNING id, seq
), told AS (
    SELECT id, row_number() OVER (ORDER BY seq) AS place FROM rows
)
INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, estimated_start_at, planned_at)
SELECT id, place, 'waiting_for_gpus', 'Waits for GPUs.', CAST(:now AS timestamptz) + place * interval '1 minute',
       CAST(:now AS timestamptz)
FROM told WHERE place <= 500;

-- name: present_active
-- Bookings whose time it is, on the GPUs after those of the running jobs; two of three are used, by a pod of others.
WITH placed AS (
    SELECT id AS gpu_id, gpu_type, 'bkg-a' || lpad(CAST(id AS text), 8, '0') AS id, 1 + id % CAST(:users AS integer) AS user_id,
           date_trunc('minute', CAST(:now AS timestamptz)) - interval '1 hour' AS starts_at,
           date_trunc('minute', CAST(:now AS timestamptz)) + interval '5 hours' AS ends_at
    FROM gpus WHERE id > :running AND id <= CAST(:running AS bigint) + CAST(:active AS bigint)
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, started_at)
    SELECT id, 'booking', user_id, 'active', 'in_slot', 'Its time has come.', 1, gpu_type, 1, ends_at - starts_at, 0,
           '{}', starts_at - interval '1 day', starts_at, starts_at
    FROM placed ORDER BY id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at, used_at, release_at, user_id, status)
    SELECT id, starts_at, ends_at, CASE WHEN gpu_id % 3 > 0 THEN starts_at END, ends_at, user_id, 'active' FROM placed
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 0, gpu_id, 0, tstzrange(starts_at, ends_at), false, starts_at FROM placed;

-- name: present_bookings
-- Bookings ahead, spread over all GPUs and the next 80 days; few are near.
WITH slots AS (
    SELECT 'bkg-l' || lpad(CAST(n AS text), 8, '0') AS id, g.id AS gpu_id, g.gpu_type,
           1 + n % CAST(:users AS integer) AS user_id,
           date_trunc('hour', CAST(:now AS timestamptz)) + interval '1 day'
               + (n / CAST(:gpus AS integer)) * (interval '79 days' / (CAST(:bookings AS integer) / CAST(:gpus AS integer) + 1)) AS starts_at,
           interval '79 days' / (CAST(:bookings AS integer) / CAST(:gpus AS integer) + 1) AS slot
    FROM generate_series(0, CAST(:bookings AS integer) - 1) n JOIN gpus g ON g.id = 1 + n % CAST(:gpus AS integer)
), timed AS (
    SELECT id, gpu_id, gpu_type, user_id, date_trunc('minute', starts_at) AS starts_at,
           date_trunc('minute', starts_at + least(slot * 0.6, interval '20 hours')) AS ends_at
    FROM slots
), rows AS (
    INSERT INTO reservations (id, kind, user_id, project, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at)
    SELECT id, 'booking', user_id, CASE user_id % 2 WHEN 0 THEN 'project-' || user_id % 10 END, 'confirmed', 'booked',
           'Booked.', 1, gpu_type, 1, ends_at - starts_at, 0, '{}',
           CAST(:now AS timestamptz) - interval '1 hour', CAST(:now AS timestamptz) - interval '1 hour'
    FROM timed ORDER BY id
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at, user_id, status) SELECT id, starts_at, ends_at, user_id, 'confirmed' FROM timed
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT id, 0, gpu_id, 0, tstzrange(starts_at, ends_at), false, CAST(:now AS timestamptz) - interval '1 hour' FROM timed;

-- name: present_ended
-- Jobs that ended in the last two hours, after all of the past, on the GPUs that are free: of each status a page of
-- everybody's and one each of users 2 and 3. Nobody's list is empty without a history.
WITH free AS (
    SELECT id, gpu_type, row_number() OVER (ORDER BY id) - 1 AS place, count(*) OVER () AS gpus
    FROM gpus WHERE id > CAST(:running AS bigint) + CAST(:active AS bigint)
), placed AS (
    SELECT f.id AS gpu_id, f.gpu_type, 'job-e' || lpad(CAST(n AS text), 8, '0') AS id,
           CASE n % 3 WHEN 0 THEN 2 WHEN 1 THEN 3 ELSE 1 + n % CAST(:users AS integer) END AS user_id,
           (ARRAY['succeeded', 'failed', 'cancelled', 'expired'])[1 + n / 3 % 4] AS status,
           CAST(:now AS timestamptz) - interval '110 minutes' + (n / f.gpus) * slot AS starts_at,
           CAST(:now AS timestamptz) - interval '110 minutes' + (n / f.gpus + 1) * slot AS ends_at
    FROM generate_series(0, CAST(:ended AS integer) - 1) n JOIN free f ON f.place = n % f.gpus
    CROSS JOIN LATERAL (SELECT interval '100 minutes' / (CAST(:ended AS integer) / f.gpus + 1) AS slot) s
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, attempt, range_end, started_at, ends_at, finished_at)
    SELECT id, 'job', user_id, status, 'completed', 'It has ended.', 1, gpu_type, 1, ends_at - starts_at, 0,
           '{"command": ["true"]}', starts_at, ends_at, 1, ends_at, starts_at, ends_at, ends_at
    FROM placed ORDER BY id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at)
SELECT id, 1, gpu_id, 0, tstzrange(starts_at, ends_at), false, starts_at, ends_at FROM placed;

-- name: past_slots
-- What was on each GPU and when, oldest first. Every so many slots is a booking; some jobs never had a GPU. User 2 had half
-- of all: what is asked of one user must not be a walk through all that they ever had.
CREATE TEMPORARY TABLE past_slots ON COMMIT DROP AS
SELECT s.n, s.gpu_id, s.gpu_type, s.user_id, CASE s.user_id % 2 WHEN 0 THEN 'project-' || s.user_id % 10 END AS project,
       s.n % CAST(:one_in AS bigint) = 0 AS booked, s.starts_at, date_trunc('minute', s.starts_at + s.length) AS ends_at,
       lpad(CAST(s.n AS text), 9, '0') AS digits,
       CASE WHEN s.n % 20 = 1 THEN 'cancelled' WHEN s.n % 50 = 7 THEN 'failed' WHEN s.n % 40 = 3 THEN 'expired'
            ELSE 'succeeded' END AS status
FROM (
    SELECT n, 1 + n % CAST(:gpus AS integer) AS gpu_id, g.gpu_type,
           CASE WHEN n / 7 % 2 = 0 THEN 2 ELSE 1 + (n * 7919) % CAST(:users AS integer) END AS user_id,
           date_trunc('minute', CAST(:from AS timestamptz) + (n / CAST(:gpus AS integer)) * CAST(:slot AS interval)
                      + (n * 31 % 11) * CAST(:slot AS interval) / 100) AS starts_at,
           CAST(:slot AS interval) * (0.2 + (n * 17 % 13) * 0.05) AS length
    FROM generate_series(0, CAST(:jobs AS bigint) - 1) n JOIN gpus g ON g.id = 1 + n % CAST(:gpus AS integer)
) s;

-- name: past_bookings
-- Bookings that are over, with their GPUs; every tenth was used by a pod of others, every fourth by nobody.
WITH rows AS (
    INSERT INTO reservations (id, kind, user_id, project, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, version, started_at, finished_at)
    SELECT 'bkg-h' || digits, 'booking', user_id, project, 'ended', 'slot_over', 'Its time is over.', 1, gpu_type, 1,
           ends_at - starts_at, 0, '{}', starts_at - interval '1 day', ends_at, 3, starts_at, ends_at
    FROM past_slots WHERE booked ORDER BY n
), booked AS (
    INSERT INTO bookings (id, starts_at, ends_at, used_at, user_id, status)
    SELECT 'bkg-h' || digits, starts_at, ends_at, CASE WHEN n % 4 <> 0 THEN starts_at + interval '1 minute' END, user_id,
           'ended'
    FROM past_slots WHERE booked ORDER BY n
), admitted AS (
    INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, recorded_at)
    SELECT 'bkg-h' || digits, 'uid-' || digits, 'team', 'pod-' || n, 1, starts_at + interval '5 minutes', ends_at, ends_at
    FROM past_slots WHERE booked AND n % 10 = 0 ORDER BY n
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at)
SELECT 'bkg-h' || digits, 0, gpu_id, 0, tstzrange(starts_at, ends_at), false, starts_at - interval '1 day', ends_at
FROM past_slots WHERE booked ORDER BY n;

-- name: past_jobs
-- Jobs that are over: one in each slot; those of booked slots ran within the booking, but for every fourth, cancelled before.
WITH timed AS (
    SELECT *, starts_at - (1 + n % 50) * interval '1 minute' AS queued_at,
           status <> 'cancelled' AND (NOT booked OR n % 4 <> 0) AS had_gpus,
           status IN ('succeeded', 'expired') AND (NOT booked OR n % 4 <> 0) AS ran
    FROM past_slots
), rows AS (
    INSERT INTO reservations (id, kind, user_id, project, status, reason_code, reason, gpus, gpu_type, nodes, duration, priority,
                              workload, created_at, changed_at, version, attempt, booking_id, range_end, started_at, ends_at,
                              finished_at, exit_code)
    SELECT 'job-h' || digits, 'job', user_id, project, CASE WHEN had_gpus THEN status ELSE 'cancelled' END,
           CASE WHEN ran THEN 'completed' WHEN status = 'failed' THEN 'start_failed' ELSE 'cancelled_by_user' END,
           'It has ended.', 1, gpu_type, 1, ends_at - starts_at, 0,
           jsonb_build_object('command', jsonb_build_array('python', 'train.py', '--seed', CAST(n AS text))), queued_at, ends_at,
           4, CAST(had_gpus AS integer), CASE WHEN booked THEN 'bkg-h' || digits END, ends_at,
           CASE WHEN ran THEN starts_at + interval '20 seconds' END, CASE WHEN ran THEN ends_at END, ends_at,
           CASE WHEN ran THEN 0 END
    FROM timed ORDER BY n
), promised AS (
    INSERT INTO start_promises (reservation_id, promised_start_at, made_at)
    SELECT 'job-h' || digits, starts_at, queued_at FROM timed WHERE n % 3 = 0 ORDER BY n
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at, booking_id)
SELECT 'job-h' || digits, 1, gpu_id, 0, tstzrange(starts_at, ends_at), false, starts_at, ends_at,
       CASE WHEN booked THEN 'bkg-h' || digits END
FROM timed WHERE had_gpus ORDER BY n;

-- name: past_events
-- What was recorded of jobs and bookings, and as many events of nodes as are missing, in the order of their times; half
-- of these are about one node, which comes and goes.
INSERT INTO events (reservation_id, subject, at, actor, kind, before, after, reason_code, reason, data)
SELECT reservation_id, subject, at, actor, kind, before, after, reason_code, reason, '{}'
FROM (
    SELECT 'job-h' || digits AS reservation_id, CAST(NULL AS text) AS subject, e.at, e.actor, e.kind, e.before, e.after,
           'completed' AS reason_code, 'A reason.' AS reason
    FROM past_slots CROSS JOIN LATERAL (VALUES
        (starts_at - (1 + n % 50) * interval '1 minute', 'person-' || user_id, 'submitted', CAST(NULL AS text), 'queued'),
        (starts_at, 'planner', 'allocated', 'queued', 'starting'),
        (starts_at + interval '20 seconds', 'system', 'started', 'starting', 'running'),
        (ends_at, 'system', status, 'running', status)
    ) AS e (at, actor, kind, before, after)
    UNION ALL
    SELECT 'bkg-h' || digits, NULL, e.at, e.actor, e.kind, e.before, e.after, 'booked', 'A reason.'
    FROM past_slots CROSS JOIN LATERAL (VALUES
        (starts_at - interval '1 day', 'person-' || user_id, 'booking_confirmed', CAST(NULL AS text), 'confirmed'),
        (starts_at, 'system', 'booking_started', 'confirmed', 'active'),
        (ends_at, 'system', 'booking_ended', 'active', 'ended')
    ) AS e (at, actor, kind, before, after)
    WHERE booked
    UNION ALL
    SELECT NULL, 'node-' || lpad(CAST(CASE n % 2 WHEN 0 THEN 1 ELSE 1 + n % 100 END AS text), 5, '0'),
           CAST(:from AS timestamptz) + n * (CAST(:until AS timestamptz) - CAST(:from AS timestamptz)) / greatest(:of_nodes, 1),
           'system', 'node_changed', NULL, NULL, NULL, NULL
    FROM generate_series(0, CAST(:of_nodes AS bigint) - 1) n
) AS all_of_it
ORDER BY at;

-- name: past_event_chain
-- Links of all but the newest events, with any digests.
INSERT INTO event_chain (position, event_id, at, chained_at, content, digest)
SELECT row_number() OVER (ORDER BY id), id, at, at, sha256('event'), sha256('link')
FROM events WHERE id <= (SELECT max(id) FROM events) - 400 ORDER BY id;

-- name: past_given_back
-- What triggers would have noted of the time that was given back, and have noted of what ended lately: sums are made of it.
INSERT INTO given_back (allocation_id, user_id, project)
SELECT a.id, r.user_id, r.project FROM allocations a JOIN reservations r ON r.id = a.reservation_id
WHERE a.released_at <= CAST(:until AS timestamptz) AND a.booking_id IS NULL;

-- name: past_usage_pending
-- The same of usage.
INSERT INTO usage_pending (reservation_id)
SELECT DISTINCT reservation_id FROM allocations WHERE released_at <= CAST(:until AS timestamptz) AND booking_id IS NULL;

-- name: past_shares
-- All jobs of user 2 are shared with user 3.
INSERT INTO job_shares (reservation_id, user_id, created_at)
SELECT id, 3, created_at FROM reservations WHERE user_id = 2 AND kind = 'job';

-- name: past_tokens
-- Tokens of sign-ins, and of what was asked lately the keys.
WITH signed_in AS (
    INSERT INTO tokens (id, user_id, digest, created_at, expires_at, method)
    SELECT 'tok-h' || n, CASE n % 2 WHEN 0 THEN 2 ELSE 1 + n % CAST(:users AS bigint) END, sha256(CAST(CAST(n AS text) AS bytea)), at, at + interval '12 hours', 'oidc'
    FROM (SELECT n, CAST(:from AS timestamptz) + n * (CAST(:until AS timestamptz) - CAST(:from AS timestamptz)) / 20000 AS at
          FROM generate_series(1, 20000) n) AS numbered
)
INSERT INTO idempotency_keys (user_id, key, request_hash, status, answer, created_at)
SELECT 1 + n % CAST(:users AS bigint), 'key-h' || n, sha256(CAST(CAST(n AS text) AS bytea)), 202, '', CAST(:until AS timestamptz)
FROM generate_series(1, 20000) n;
