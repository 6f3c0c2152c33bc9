-- name: policy_revision
-- The number of the last change.
SELECT revision FROM policy_state;

-- name: policy_rules
-- Every rule.
SELECT * FROM policies;

-- name: lock_policy_rule
-- Lock the rule of a scope.
SELECT * FROM policies
WHERE user_name IS NOT DISTINCT FROM CAST(:user_name AS text) AND project IS NOT DISTINCT FROM CAST(:project AS text)
  AND gpu_type IS NOT DISTINCT FROM CAST(:gpu_type AS text)
FOR UPDATE;

-- name: put_policy_rule
-- Replace the rules of a scope.
INSERT INTO policies AS p (user_name, project, gpu_type, max_gpus, max_gpu_hours_per_week, max_duration, max_advance,
                           min_notice, max_open_bookings, cooldown, priority, no_show_grace, inactivity,
                           cost_per_gpu_hour, "order", idle_below, idle_window, idle_grace, idle_then, booking_required, relaxed, lifted, from_file, changed_at, changed_by)
VALUES (:user_name, :project, :gpu_type, :max_gpus, :max_gpu_hours_per_week, :max_duration, :max_advance, :min_notice,
        :max_open_bookings, :cooldown, :priority, :no_show_grace, :inactivity, :cost_per_gpu_hour, :order, :idle_below,
        :idle_window, :idle_grace, :idle_then, :booking_required,
        CAST(:relaxed AS jsonb), CAST(:lifted AS text[]), :from_file, :now, :by)
ON CONFLICT (user_name, project, gpu_type) DO UPDATE
SET max_gpus = excluded.max_gpus, max_gpu_hours_per_week = excluded.max_gpu_hours_per_week,
    max_duration = excluded.max_duration, max_advance = excluded.max_advance, min_notice = excluded.min_notice,
    max_open_bookings = excluded.max_open_bookings, cooldown = excluded.cooldown, priority = excluded.priority,
    no_show_grace = excluded.no_show_grace, inactivity = excluded.inactivity, cost_per_gpu_hour = excluded.cost_per_gpu_hour,
    "order" = excluded."order", idle_below = excluded.idle_below, idle_window = excluded.idle_window,
    idle_grace = excluded.idle_grace, idle_then = excluded.idle_then, booking_required = excluded.booking_required, relaxed = excluded.relaxed, lifted = excluded.lifted, from_file = excluded.from_file, version = p.version + 1,
    changed_at = excluded.changed_at, changed_by = excluded.changed_by
RETURNING *;

-- name: delete_policy_rules
-- Delete all rules of these scopes.
DELETE FROM policies p
USING unnest(CAST(:user_names AS text[]), CAST(:projects AS text[]), CAST(:gpu_types AS text[]))
      AS s (user_name, project, gpu_type)
WHERE p.user_name IS NOT DISTINCT FROM s.user_name AND p.project IS NOT DISTINCT FROM s.project
  AND p.gpu_type IS NOT DISTINCT FROM s.gpu_type;

-- name: lock_policy_file
-- Lock the digest of the last applied file.
SELECT file_digest FROM policy_state FOR UPDATE;

-- name: keep_policy_file
-- Store the digest of the applied file.
UPDATE policy_state SET file_digest = :digest;

-- name: lock_quota_users
-- Serialise decisions about these users' quotas, and keep them from being disabled. The lock allows foreign keys to
-- them.
SELECT id, disabled_at IS NOT NULL AS disabled FROM users WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR NO KEY UPDATE;

-- name: lock_quota_projects
-- The same for projects.
SELECT name FROM projects WHERE name = ANY(CAST(:names AS text[])) ORDER BY name FOR NO KEY UPDATE;

-- name: quota_holdings
-- Present and past holdings of a user and a project in the common layer of the calendar: jobs within a booking count as
-- the booking. Slots of waiting jobs count, as a later booking of their owner would otherwise take their turn.
-- Preemptible jobs don't count. Overrunning pods count a while longer. Summed holdings of jobs are one row per week.
WITH theirs AS (
    SELECT id, kind, user_id, project FROM reservations
    WHERE user_id = :user_id AND finished_at IS NULL AND kind IN ('job', 'booking') AND preemptible IS NOT TRUE
    UNION
    SELECT id, kind, user_id, project FROM reservations
    WHERE project = CAST(:project AS text) AND finished_at IS NULL AND kind IN ('job', 'booking')
      AND preemptible IS NOT TRUE
    UNION
    SELECT id, kind, user_id, project FROM reservations
    WHERE user_id = :user_id AND kind = 'booking' AND finished_at > CAST(:known_from AS timestamptz)
    UNION
    SELECT id, kind, user_id, project FROM reservations
    WHERE project = CAST(:project AS text) AND kind = 'booking' AND finished_at > CAST(:known_from AS timestamptz)
), rows AS MATERIALIZED (
    -- By an array of ids: for a join, the planner would read the whole ledger.
    SELECT t.*, a.gpu_id, a.during, a.held, a.planned, a.created_at
    FROM allocations a JOIN theirs t ON t.id = a.reservation_id
    WHERE a.reservation_id = ANY(ARRAY(SELECT id FROM theirs))
      AND a.booking_id IS NULL AND (a.released_at IS NULL OR t.kind = 'booking')
    UNION ALL
    SELECT r.id, r.kind, r.user_id, r.project, a.gpu_id, a.during, a.held, a.planned, a.created_at
    FROM given_back b JOIN allocations a ON a.id = b.allocation_id
    JOIN reservations r ON r.id = a.reservation_id
    WHERE r.kind = 'job' AND (b.user_id = :user_id OR b.project = CAST(:project AS text))
), cards AS MATERIALIZED (
    SELECT id, gpu_type FROM gpus WHERE id = ANY(ARRAY(SELECT DISTINCT gpu_id FROM rows))
), people AS MATERIALIZED (
    SELECT id, name FROM users WHERE id = ANY(ARRAY(SELECT DISTINCT user_id FROM rows))
)
SELECT a.id, a.kind, u.name AS user_name, a.project, g.gpu_type, lower(a.during) AS starts_at,
       CASE WHEN a.held THEN greatest(upper(a.during), CAST(:now AS timestamptz) + interval '1 minute')
            ELSE upper(a.during) END AS ends_at,
       count(*) AS gpus, CAST(NULL AS bigint) AS gpu_us, a.planned, min(a.created_at) AS made_at
FROM rows a
JOIN people u ON u.id = a.user_id
JOIN cards g ON g.id = a.gpu_id
WHERE a.held OR upper(a.during) > CAST(:known_from AS timestamptz)
GROUP BY a.id, a.kind, u.name, a.project, g.gpu_type, a.during, a.held, a.planned
UNION ALL
SELECT '', s.kind, u.name, s.project, s.gpu_type, s.week, s.week + interval '168 hours', 0, s.gpu_us, false, NULL
FROM gpu_time_given_back s JOIN users u ON u.id = s.user_id
WHERE s.kind = 'job' AND s.gpu_us > 0 AND s.week > CAST(:known_from AS timestamptz) - interval '168 hours'
  AND (s.user_id = :user_id OR s.project = CAST(:project AS text));

-- name: quota_open_of_all
-- Present and future holdings of all users, with the slots of waiting jobs if requested. Owners are read from running
-- jobs and bookings as a whole, and by row only for slots: an index search for every row would cost ten times as much.
WITH open AS MATERIALIZED (
    SELECT a.reservation_id, g.gpu_type, a.during, a.held, a.planned, count(*) AS gpus, min(a.created_at) AS made_at
    FROM allocations a JOIN gpus g ON g.id = a.gpu_id
    WHERE a.released_at IS NULL AND a.booking_id IS NULL AND (CAST(:promised AS boolean) OR NOT a.planned)
    GROUP BY a.reservation_id, g.gpu_type, a.during, a.held, a.planned
), lasting AS MATERIALIZED (
    SELECT id, kind, user_id, project, preemptible FROM reservations WHERE status IN ('starting', 'running', 'ending')
    UNION ALL
    SELECT id, kind, user_id, project, false FROM reservations WHERE kind <> 'job' AND status IN ('offered', 'confirmed', 'active')
), owners AS MATERIALIZED (
    SELECT * FROM lasting
    UNION ALL
    SELECT id, kind, user_id, project, preemptible FROM reservations
    WHERE id = ANY(ARRAY(SELECT reservation_id FROM open EXCEPT SELECT id FROM lasting))
)
SELECT r.id, r.kind, u.name AS user_name, r.project, a.gpu_type, lower(a.during) AS starts_at,
       CASE WHEN a.held THEN greatest(upper(a.during), CAST(:now AS timestamptz) + interval '1 minute')
            ELSE upper(a.during) END AS ends_at,
       a.gpus, a.planned, a.made_at
FROM open a
JOIN owners r ON r.id = a.reservation_id
JOIN users u ON u.id = r.user_id
WHERE r.kind IN ('job', 'booking') AND r.preemptible IS NOT TRUE;

-- name: quota_open_of_these
-- The same for these users and projects, in a separate statement like `quota_spent_of_these`, as every start runs it.
-- Ended reservations have no open rows, and queued jobs only slots: the rows of a long queue are not searched.
WITH slotted AS MATERIALIZED (
    SELECT DISTINCT reservation_id FROM allocations WHERE planned AND CAST(:promised AS boolean)
), theirs AS (
    SELECT id, kind, user_id, project FROM reservations
    WHERE user_id = ANY(CAST(:user_ids AS bigint[])) AND finished_at IS NULL AND kind IN ('job', 'booking')
      AND preemptible IS NOT TRUE
      AND (status <> 'queued' OR id IN (SELECT reservation_id FROM slotted))
    UNION
    SELECT id, kind, user_id, project FROM reservations
    WHERE project = ANY(CAST(:projects AS text[])) AND finished_at IS NULL AND kind IN ('job', 'booking')
      AND preemptible IS NOT TRUE
      AND (status <> 'queued' OR id IN (SELECT reservation_id FROM slotted))
), rows AS MATERIALIZED (
    SELECT t.*, a.gpu_id, a.during, a.held, a.planned, a.created_at
    FROM allocations a JOIN theirs t ON t.id = a.reservation_id
    WHERE a.reservation_id = ANY(ARRAY(SELECT id FROM theirs))
      AND a.released_at IS NULL AND a.booking_id IS NULL AND (CAST(:promised AS boolean) OR NOT a.planned)
), cards AS MATERIALIZED (
    SELECT id, gpu_type FROM gpus WHERE id = ANY(ARRAY(SELECT DISTINCT gpu_id FROM rows))
), people AS MATERIALIZED (
    SELECT id, name FROM users WHERE id = ANY(ARRAY(SELECT DISTINCT user_id FROM rows))
)
SELECT a.id, a.kind, u.name AS user_name, a.project, g.gpu_type, lower(a.during) AS starts_at,
       CASE WHEN a.held THEN greatest(upper(a.during), CAST(:now AS timestamptz) + interval '1 minute')
            ELSE upper(a.during) END AS ends_at,
       count(*) AS gpus, a.planned, min(a.created_at) AS made_at
FROM rows a
JOIN people u ON u.id = a.user_id
JOIN cards g ON g.id = a.gpu_id
GROUP BY a.id, a.kind, u.name, a.project, g.gpu_type, a.during, a.held, a.planned;

-- name: open_reservations
-- Open jobs and bookings, without jobs within bookings, with the type of their GPUs. Their GPUs and the bookings' times
-- are read as a whole (see quota_open_of_all). Jobs and bookings have an index each: with the index of all open
-- reservations, a page would be read for each of them.
WITH unended AS MATERIALIZED (
    SELECT id, kind, user_id, project, gpus * nodes AS gpus, priority, duration, gpu_type FROM reservations
    WHERE (kind = 'job' AND finished_at IS NULL AND booking_id IS NULL)
       OR (kind <> 'job' AND kind = 'booking' AND status IN ('waiting', 'offered', 'confirmed', 'active'))
), cards AS MATERIALIZED (
    SELECT a.reservation_id, min(g.gpu_type) AS gpu_type, min(lower(a.during)) AS starts_at
    FROM allocations a JOIN gpus g ON g.id = a.gpu_id
    WHERE a.released_at IS NULL AND NOT a.planned
    GROUP BY a.reservation_id
), booked AS MATERIALIZED (
    SELECT id, starts_at FROM bookings WHERE status IN ('waiting', 'offered', 'confirmed', 'active')
)
SELECT r.id, r.kind, u.name AS user_name, r.project, r.gpus, r.priority, r.duration,
       coalesce(a.gpu_type, r.gpu_type) AS gpu_type, coalesce(b.starts_at, a.starts_at) AS starts_at
FROM unended r
JOIN users u ON u.id = r.user_id
LEFT JOIN booked b ON b.id = r.id
LEFT JOIN cards a ON a.reservation_id = r.id
ORDER BY r.id;

-- name: quota_held_now
-- The GPUs that users hold now by type: of jobs and bookings, and of overrunning pods. Jobs within a booking count as
-- the booking. By the database's clock, as the caller's may be off. Bounds of ranges are compared, not ranges: the
-- calendar's index has all history, and without a GPU it would be read as a whole.
SELECT u.name AS user_name, g.gpu_type, count(DISTINCT a.gpu_id) AS gpus
FROM allocations a
JOIN reservations r ON r.id = a.reservation_id
JOIN users u ON u.id = r.user_id
JOIN gpus g ON g.id = a.gpu_id
WHERE a.released_at IS NULL AND r.kind IN ('job', 'booking') AND a.booking_id IS NULL AND NOT a.planned
  AND (a.held OR (lower(a.during) <= (SELECT ledger_now()) AND upper(a.during) > (SELECT ledger_now())))
GROUP BY u.name, g.gpu_type;

-- name: quota_spent_of_all
-- The GPU time of ended holdings of all users since the start of a week, summed or not.
SELECT u.name AS user_name, x.project, x.gpu_type, CAST(sum(x.gpu_us) AS bigint) AS gpu_us
FROM (
    SELECT user_id, project, gpu_type, gpu_us FROM gpu_time_given_back
    WHERE week >= CAST(:since AS timestamptz)
    UNION ALL
    SELECT r.user_id, r.project, g.gpu_type, CAST(1000000 * extract(epoch FROM
               upper(a.during) - greatest(lower(a.during), CAST(:since AS timestamptz))) AS bigint)
    FROM given_back b
    JOIN allocations a ON a.id = b.allocation_id
    JOIN reservations r ON r.id = a.reservation_id
    JOIN gpus g ON g.id = a.gpu_id
    WHERE upper(a.during) > CAST(:since AS timestamptz) AND upper(a.during) <= CAST(:now AS timestamptz)
      AND r.kind IN ('job', 'booking')
) x
JOIN users u ON u.id = x.user_id
GROUP BY u.name, x.project, x.gpu_type;

-- name: quota_spent_of_these
-- The same for these users and projects, in a separate statement, as it runs often, and a plan for both cases would be
-- slow.
SELECT u.name AS user_name, x.project, x.gpu_type, CAST(sum(x.gpu_us) AS bigint) AS gpu_us
FROM (
    SELECT user_id, project, gpu_type, gpu_us FROM gpu_time_given_back
    WHERE week >= CAST(:since AS timestamptz)
      AND (user_id = ANY(CAST(:user_ids AS bigint[])) OR project = ANY(CAST(:projects AS text[])))
    UNION ALL
    SELECT b.user_id, b.project, g.gpu_type, CAST(1000000 * extract(epoch FROM
               upper(a.during) - greatest(lower(a.during), CAST(:since AS timestamptz))) AS bigint)
    FROM given_back b
    JOIN allocations a ON a.id = b.allocation_id
    JOIN reservations r ON r.id = a.reservation_id
    JOIN gpus g ON g.id = a.gpu_id
    WHERE upper(a.during) > CAST(:since AS timestamptz) AND upper(a.during) <= CAST(:now AS timestamptz)
      AND r.kind IN ('job', 'booking')
      AND (b.user_id = ANY(CAST(:user_ids AS bigint[])) OR b.project = ANY(CAST(:projects AS text[])))
) x
JOIN users u ON u.id = x.user_id
GROUP BY u.name, x.project, x.gpu_type;

-- name: names_of_users
-- The names of users.
SELECT id, name FROM users WHERE id = ANY(CAST(:ids AS bigint[]));

-- name: drop_slots_over_quota
-- Drop slots of waiting jobs beyond their owners' quotas; recorded once per promise.
WITH dropped AS (
    DELETE FROM allocations WHERE reservation_id = ANY(CAST(:ids AS text[])) AND planned RETURNING reservation_id
), missed AS (
    UPDATE start_promises p SET missed_at = CAST(:now AS timestamptz)
    FROM unnest(CAST(:ids AS text[]), CAST(:becauses AS text[])) AS i (id, because)
    WHERE p.reservation_id = i.id AND p.missed_at IS NULL AND i.id IN (SELECT reservation_id FROM dropped)
    RETURNING p.reservation_id, p.promised_start_at, i.because
)
INSERT INTO events (reservation_id, at, actor, kind, reason, data)
SELECT reservation_id, CAST(:now AS timestamptz), 'planner', 'start_promise_missed', because,
       jsonb_build_object('promised_start_at', promised_start_at, 'because', because)
FROM missed;

-- name: quota_open_bookings
-- Open bookings of a user and a project.
WITH theirs AS (
    SELECT id, user_id, project, gpu_type FROM reservations
    WHERE user_id = :user_id AND kind = 'booking' AND finished_at IS NULL
    UNION
    SELECT id, user_id, project, gpu_type FROM reservations
    WHERE project = CAST(:project AS text) AND kind = 'booking' AND finished_at IS NULL
)
SELECT r.id, u.name AS user_name, r.project, b.ends_at,
       coalesce(r.gpu_type, (SELECT min(g.gpu_type) FROM allocations a JOIN gpus g ON g.id = a.gpu_id
                             WHERE a.reservation_id = r.id)) AS gpu_type
FROM theirs r
JOIN bookings b ON b.id = r.id
JOIN users u ON u.id = r.user_id
WHERE b.id = ANY(ARRAY(SELECT id FROM theirs));

-- name: create_project
-- Store a new project; no row when the name is taken.
INSERT INTO projects (name, title, created_at) VALUES (:name, :title, :now) ON CONFLICT (name) DO NOTHING
RETURNING name, title, created_at, CAST('{}' AS text[]) AS members;

-- name: project_by_name
-- One project and its members.
SELECT p.name, p.title, p.created_at,
       ARRAY(SELECT u.name FROM project_members m JOIN users u ON u.id = m.user_id WHERE m.project = p.name
             ORDER BY u.name) AS members
FROM projects p WHERE p.name = :name;

-- name: projects_by_name
-- Projects after a name, in order; those of a user, or all.
SELECT p.name, p.title, p.created_at,
       ARRAY(SELECT u.name FROM project_members m JOIN users u ON u.id = m.user_id WHERE m.project = p.name
             ORDER BY u.name) AS members
FROM projects p
WHERE p.name > :after AND (CAST(:user_id AS bigint) IS NULL OR EXISTS (
    SELECT FROM project_members m WHERE m.project = p.name AND m.user_id = CAST(:user_id AS bigint)))
ORDER BY p.name LIMIT :limit;

-- name: delete_project
-- Delete a project with its memberships; its usage stays.
DELETE FROM projects WHERE name = :name RETURNING name;

-- name: add_project_member
-- Add a member; no row for an existing one.
INSERT INTO project_members (project, user_id) VALUES (:name, :user_id) ON CONFLICT DO NOTHING RETURNING user_id;

-- name: remove_project_member
-- Remove a member.
DELETE FROM project_members WHERE project = :name AND user_id = :user_id RETURNING user_id;

-- name: projects_of_user
-- The projects of a user.
SELECT project FROM project_members WHERE user_id = :user_id ORDER BY project;
