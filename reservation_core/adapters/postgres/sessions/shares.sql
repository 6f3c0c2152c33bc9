-- Who besides a job's owner may enter it.

-- name: lock_user_to_share_with
-- A user, who can't be disabled until the transaction ends.
SELECT id, name, disabled_at FROM users WHERE name = :name FOR NO KEY UPDATE;

-- name: add_job_share
-- Share a job with a user unless that is so already, or the job has too many; says which.
WITH added AS (
    INSERT INTO job_shares (reservation_id, user_id, created_at)
    SELECT :id, :user_id, CAST(:now AS timestamptz)
    WHERE (SELECT count(*) FROM job_shares s WHERE s.reservation_id = :id) < :most
    ON CONFLICT (reservation_id, user_id) DO NOTHING
    RETURNING user_id
)
SELECT EXISTS (SELECT FROM added) AS added,
       EXISTS (SELECT FROM job_shares s WHERE s.reservation_id = :id AND s.user_id = :user_id) AS known;

-- name: remove_job_share
-- End one share of a job.
DELETE FROM job_shares WHERE reservation_id = :id AND user_id = :user_id;

-- name: remove_job_shares_of_user
-- End all shares with a user.
DELETE FROM job_shares WHERE user_id = :user_id;

-- name: job_share
-- Whether a job is shared with a user.
SELECT EXISTS (SELECT FROM job_shares WHERE reservation_id = :id AND user_id = :user_id) AS shared;
