-- name: kept_pod_logs
-- Of which pods something was kept.
SELECT pod, complete FROM pod_logs WHERE pod = ANY(CAST(:pods AS text[]));

-- name: keep_pod_logs
-- Store the ends of logs: a later look replaces an earlier one, but not if it broke off before that, and what is complete stays.
INSERT INTO pod_logs AS l (pod, reservation_id, tail, complete, kept_at)
SELECT i.pod, i.reservation_id, i.tail, i.complete, CAST(:now AS timestamptz)
FROM unnest(CAST(:pods AS text[]), CAST(:reservations AS text[]), CAST(:tails AS bytea[]),
            CAST(:completes AS boolean[])) AS i (pod, reservation_id, tail, complete)
ORDER BY i.pod
ON CONFLICT (pod) DO UPDATE
SET tail = CASE WHEN substr(l.tail, 1, length(excluded.tail)) = excluded.tail THEN l.tail ELSE excluded.tail END,
    complete = excluded.complete, kept_at = excluded.kept_at
WHERE NOT l.complete;

-- name: pod_log_tail
-- What was kept of one pod's log.
SELECT tail FROM pod_logs WHERE pod = :pod;
