-- name: claim_key
-- Claim a key; no row when it is taken. Waits while another transaction claims it.
INSERT INTO idempotency_keys (user_id, key, request_hash, created_at)
VALUES (:user_id, :key, :request_hash, :now)
ON CONFLICT (user_id, key) DO NOTHING
RETURNING true;

-- name: answer_of_key
-- The answer of a key.
SELECT request_hash, status, answer FROM idempotency_keys WHERE user_id = :user_id AND key = :key;

-- name: store_answer
-- Store the answer of a key that this transaction has claimed.
UPDATE idempotency_keys SET status = :status, answer = :answer
WHERE user_id = :user_id AND key = :key AND status IS NULL;
