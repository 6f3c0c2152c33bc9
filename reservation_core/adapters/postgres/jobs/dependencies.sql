-- name: keep_needed_jobs
-- Those of these jobs that a user (null: anybody) has. They neither start nor end before this transaction is over, so that
-- what it stores about them is known to those who start or end them.
SELECT id FROM reservations
WHERE id = ANY(CAST(:ids AS text[])) AND kind = 'job' AND user_id = coalesce(CAST(:user_id AS bigint), user_id)
ORDER BY id FOR SHARE;

-- name: needed_jobs
-- Those of these jobs that a user (null: anybody) has, with what is known of them: also by when they run and end at the
-- latest; null once that time is over. What their GPUs are kept for beyond their own time is what their pods have for starting.
SELECT id, status, started_at IS NOT NULL OR retried > 0 AS started,
       CASE WHEN a.start > now() THEN a.start END AS starts_by, CASE WHEN a.end > now() THEN a.end END AS ends_by
FROM reservations r LEFT JOIN LATERAL (
    SELECT greatest(max(lower(during)), max(upper(during)) - r.duration) AS start, max(upper(during)) AS end FROM allocations
    WHERE reservation_id = r.id AND released_at IS NULL AND r.finished_at IS NULL AND r.preemptible IS NOT TRUE
) AS a ON true
WHERE id = ANY(CAST(:ids AS text[])) AND kind = 'job' AND user_id = coalesce(CAST(:user_id AS bigint), user_id);

-- name: add_dependencies
-- The jobs that a new job waits for, in the order of its request.
INSERT INTO job_dependencies (job_id, needs_id, condition, place)
SELECT :job_id, i.needs_id, i.condition, i.place - 1
FROM unnest(CAST(:needs AS text[]), CAST(:conditions AS text[])) WITH ORDINALITY AS i (needs_id, condition, place);

-- name: dependencies_of
-- What these jobs wait for, in the order of their requests, and by when that is so at the latest, as far as is
-- known: null once that time is over.
SELECT d.job_id, d.needs_id, d.condition, n.status, n.started_at IS NOT NULL OR n.retried > 0 AS started,
       CASE WHEN a.start > now() THEN a.start END AS starts_by, CASE WHEN a.end > now() THEN a.end END AS ends_by
FROM job_dependencies d JOIN reservations n ON n.id = d.needs_id LEFT JOIN LATERAL (
    SELECT greatest(max(lower(during)), max(upper(during)) - n.duration) AS start, max(upper(during)) AS end FROM allocations
    WHERE reservation_id = n.id AND released_at IS NULL AND n.finished_at IS NULL AND n.preemptible IS NOT TRUE
) AS a ON true
WHERE d.job_id = ANY(CAST(:ids AS text[]))
ORDER BY d.job_id, d.place;

-- name: jobs_with_news
-- Jobs with news of what they wait for, which was not looked at yet.
SELECT DISTINCT job_id FROM job_dependencies WHERE changed ORDER BY job_id LIMIT :limit;

-- name: take_news
-- Take the news of these jobs. What somebody writes at this moment is left for the next time: nobody waits for it.
UPDATE job_dependencies d SET changed = false
FROM (SELECT job_id, needs_id FROM job_dependencies
      WHERE changed AND job_id = ANY(CAST(:ids AS text[])) FOR NO KEY UPDATE SKIP LOCKED) AS n
WHERE d.job_id = n.job_id AND d.needs_id = n.needs_id;

-- name: give_up_starts_after
-- Drop the slots of jobs that wait for a job and begin before its new end (null: at any time), and the slots that follow these.
-- Their promises go with them: a longer job was asked for.
WITH RECURSIVE put_off (id) AS (
    SELECT d.job_id
    FROM job_dependencies d JOIN allocations s ON s.reservation_id = d.job_id AND s.planned AND s.follows
    WHERE d.needs_id = :id AND d.condition <> 'started'
      AND lower(s.during) < coalesce(CAST(:end AS timestamptz), 'infinity')
    UNION
    SELECT d.job_id
    FROM put_off p JOIN job_dependencies d ON d.needs_id = p.id
    JOIN allocations s ON s.reservation_id = d.job_id AND s.planned AND s.follows
), waiting AS MATERIALIZED (
    SELECT r.id FROM reservations r
    WHERE r.id IN (SELECT id FROM put_off) AND r.status = 'queued' AND r.held
    ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED
), slots AS (
    DELETE FROM allocations a USING waiting w WHERE a.reservation_id = w.id AND a.planned
), promises AS (
    DELETE FROM start_promises p USING waiting w WHERE p.reservation_id = w.id
)
SELECT id FROM waiting;

-- name: jobs_around
-- What a job waits for, directly or not, and what waits for it: at most `limit` in each direction. Users see their own jobs
-- and those that are shared with them, a null user everybody's; others' jobs are left out, with what is behind them.
WITH RECURSIVE before (id) AS (
    SELECT CAST(:id AS text)
    UNION
    SELECT n.id
    FROM before b JOIN job_dependencies d ON d.job_id = b.id JOIN reservations n ON n.id = d.needs_id
    WHERE CAST(:user_id AS bigint) IS NULL OR n.user_id = CAST(:user_id AS bigint)
       OR EXISTS (SELECT FROM job_shares s WHERE s.reservation_id = n.id AND s.user_id = CAST(:user_id AS bigint))
), behind (id) AS (
    SELECT CAST(:id AS text)
    UNION
    SELECT j.id
    FROM behind b JOIN job_dependencies d ON d.needs_id = b.id JOIN reservations j ON j.id = d.job_id
    WHERE CAST(:user_id AS bigint) IS NULL OR j.user_id = CAST(:user_id AS bigint)
       OR EXISTS (SELECT FROM job_shares s WHERE s.reservation_id = j.id AND s.user_id = CAST(:user_id AS bigint))
)
(SELECT id, true AS is_before FROM before LIMIT :limit) UNION ALL (SELECT id, false FROM behind LIMIT :limit);

-- name: dependencies_among
-- Which of these jobs wait for which of them, one job's first.
SELECT job_id, needs_id, condition FROM job_dependencies
WHERE job_id = ANY(CAST(:ids AS text[])) AND needs_id = ANY(CAST(:ids AS text[]))
ORDER BY CAST(:first AS text) NOT IN (job_id, needs_id), job_id, place LIMIT :limit;

-- name: linked_jobs
-- The names and the statuses of these jobs; that of an array, whose row waits until it is over, as in lists.
SELECT id, name, CASE WHEN array_size IS NULL OR finished_at IS NOT NULL THEN status
                      WHEN reason_code IN ('cancelled_by_user', 'cancelled_by_admin') THEN 'ending'
                      WHEN started_at IS NULL THEN status ELSE 'running' END AS status
FROM reservations WHERE id = ANY(CAST(:ids AS text[]));
