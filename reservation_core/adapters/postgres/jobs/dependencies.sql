-- name: keep_needed_jobs
-- Those of these jobs that a user (null: anybody) has. They neither start nor end before this transaction is over, so that
-- what it stores about them is known to those who start or end them.
SELECT id FROM reservations
WHERE id = ANY(CAST(:ids AS text[])) AND kind = 'job' AND user_id = coalesce(CAST(:user_id AS bigint), user_id)
ORDER BY id FOR SHARE;

-- name: needed_jobs
-- Those of these jobs that a user (null: anybody) has, with what is known of them.
SELECT id, status, started_at IS NOT NULL OR retried > 0 AS started FROM reservations
WHERE id = ANY(CAST(:ids AS text[])) AND kind = 'job' AND user_id = coalesce(CAST(:user_id AS bigint), user_id);

-- name: add_dependencies
-- The jobs that a new job waits for, in the order of its request.
INSERT INTO job_dependencies (job_id, needs_id, condition, place)
SELECT :job_id, i.needs_id, i.condition, i.place - 1
FROM unnest(CAST(:needs AS text[]), CAST(:conditions AS text[])) WITH ORDINALITY AS i (needs_id, condition, place);

-- name: dependencies_of
-- What these jobs wait for, in the order of their requests.
SELECT d.job_id, d.needs_id, d.condition, n.status, n.started_at IS NOT NULL OR n.retried > 0 AS started
FROM job_dependencies d JOIN reservations n ON n.id = d.needs_id
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
