-- name: use_proof
-- Store a used proof; no row when it was used before. Waits for a concurrent use. Deletes some expired proofs.
WITH old AS (
    SELECT digest FROM used_proofs WHERE forget_after < :now ORDER BY forget_after LIMIT 100 FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM used_proofs u USING old WHERE u.digest = old.digest
)
INSERT INTO used_proofs (digest, forget_after) VALUES (:digest, :forget_after)
ON CONFLICT (digest) DO NOTHING
RETURNING true;
