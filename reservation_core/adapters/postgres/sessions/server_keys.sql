-- name: server_key
-- One of the server's SSH keys.
SELECT private_key FROM ssh_server_keys WHERE purpose = :purpose;

-- name: add_server_key
-- Store a key unless another process has stored one: it waits for that one's transaction.
INSERT INTO ssh_server_keys (purpose, private_key, created_at) VALUES (:purpose, :private_key, :now)
ON CONFLICT (purpose) DO NOTHING;
