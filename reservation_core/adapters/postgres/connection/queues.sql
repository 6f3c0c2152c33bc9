-- name: read_messages
-- Take visible messages and hide them; bodies as text, which is the same to every way of asking.
SELECT msg_id, read_ct, enqueued_at, CAST(message AS text) AS body
FROM pgmq.read(CAST(:queue AS text), CAST(:hidden_s AS integer), CAST(:limit AS integer));

-- name: delete_messages
-- Forget handled messages; answers the ids of those that were still there.
SELECT pgmq.delete(CAST(:queue AS text), CAST(:ids AS bigint[]));
