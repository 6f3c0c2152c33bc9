-- Health of GPUs: errors, speeds, quarantine and release.

-- name: note_gpu_errors
-- Keep the errors among samples that were just stored: Xid errors, and counts of ECC errors that grew since the sample before, if
-- that is recent. By key for each of these few samples.
INSERT INTO gpu_errors (gpu_id, at, uuid, xid, ecc_errors)
SELECT f.gpu_id, f.at, f.uuid, f.xid, f.ecc_errors
FROM (
    SELECT w.gpu_id, w.at, w.uuid, w.xid, CASE WHEN w.ecc_count > p.ecc_errors THEN w.ecc_count - p.ecc_errors END AS ecc_errors
    FROM unnest(CAST(:gpu_ids AS integer[]), CAST(:ats AS timestamptz[]), CAST(:uuids AS text[]), CAST(:xids AS smallint[]),
                CAST(:ecc_counts AS integer[])) AS w (gpu_id, at, uuid, xid, ecc_count)
    LEFT JOIN LATERAL (
        SELECT s.ecc_errors FROM gpu_samples s
        WHERE s.gpu_id = w.gpu_id AND s.at < w.at AND s.at >= w.at - CAST(:ecc_from AS interval) AND s.ecc_errors IS NOT NULL
        ORDER BY s.at DESC LIMIT 1
    ) p ON true
) f
WHERE num_nonnulls(f.xid, f.ecc_errors) > 0
ON CONFLICT (gpu_id, at) DO NOTHING;

-- name: gpu_errors_since
-- Errors since a time of GPUs that are not out of use by an administrator or for errors already; not those from before a release, and
-- not of a GPU that is not there any more.
SELECT g.id AS gpu_id, e.at, e.xid, e.ecc_errors
FROM gpu_errors e JOIN gpus g ON g.id = e.gpu_id AND g.uuid = e.uuid
WHERE e.at > CAST(:since AS timestamptz) AND e.at > coalesce(g.quarantine_over_at, '-infinity')
  AND g.condition NOT IN ('quarantined', 'maintenance')
ORDER BY g.id, e.at;

-- name: add_gpu_speeds
-- Keep how fast GPUs ran in a slice of time.
INSERT INTO gpu_speeds (at, gpu_id, busy, throttled, clock_mhz)
SELECT w.at, g.id, w.busy, w.throttled, w.clock_mhz
FROM unnest(CAST(:ats AS timestamptz[]), CAST(:uuids AS text[]), CAST(:busy AS integer[]), CAST(:throttled AS integer[]),
            CAST(:clocks AS real[])) AS w (at, uuid, busy, throttled, clock_mhz)
JOIN gpus g ON g.uuid = w.uuid AND g.condition <> 'lost'
ON CONFLICT (at, gpu_id) DO NOTHING;

-- name: gpu_speeds_of_hour
-- The slices of an hour of each GPU together, and the job that held it all the time.
SELECT s.gpu_id, g.gpu_type, j.reservation_id AS job, s.slices, s.busy, s.throttled, s.clock_mhz
FROM (
    SELECT gpu_id, count(*) AS slices, sum(busy) AS busy, sum(throttled) AS throttled,
           sum(clock_mhz * busy) / sum(busy) FILTER (WHERE clock_mhz IS NOT NULL) AS clock_mhz
    FROM gpu_speeds WHERE at >= CAST(:start AS timestamptz) AND at < CAST(:until AS timestamptz)
    GROUP BY gpu_id
) s
JOIN gpus g ON g.id = s.gpu_id
LEFT JOIN allocations j ON j.gpu_id = s.gpu_id AND j.held AND lower(j.during) <= CAST(:start AS timestamptz);

-- name: forget_gpu_errors
-- Remove errors that no rule can count any more.
DELETE FROM gpu_errors WHERE at < CAST(:before AS timestamptz);

-- name: forget_gpu_speeds
-- Remove speeds that nobody looks at any more.
DELETE FROM gpu_speeds WHERE at < CAST(:before AS timestamptz);

-- name: gpu_by_place
-- A GPU of a node.
SELECT g.id, g.condition, g.quarantined_at
FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = :node AND g.index = :index
FOR NO KEY UPDATE OF g;

-- name: quarantine_gpu
-- Quarantine a GPU, unless an administrator keeps it from use already; its place and the job that has it.
WITH changed AS (
    UPDATE gpus SET condition = 'quarantined', quarantined_at = CAST(:at AS timestamptz), quarantined_by = :by,
                    quarantine_reason = CAST(:reason AS text), updated_at = CAST(:at AS timestamptz)
    WHERE id = :gpu_id AND (condition NOT IN ('quarantined', 'maintenance') OR condition = 'quarantined' AND quarantined_at IS NULL)
    RETURNING id, node_id, index
)
SELECT n.name AS node, c.index AS card_index,
       (SELECT a.reservation_id FROM allocations a WHERE a.gpu_id = c.id AND a.held AND a.reservation_id LIKE 'job-%' LIMIT 1) AS job
FROM changed c JOIN nodes n ON n.id = c.node_id;

-- name: release_gpu
-- End a quarantine, and forget that the GPU is slow. The inventory says with its next report if the GPU is not there.
UPDATE gpus SET condition = 'usable', quarantined_at = NULL, quarantined_by = NULL, quarantine_reason = NULL,
                quarantine_over_at = CAST(:at AS timestamptz), slow_since = NULL, slow_reason = NULL, updated_at = CAST(:at AS timestamptz)
WHERE id = :gpu_id AND condition = 'quarantined';

-- name: slow_gpus
-- The GPUs that are reported as slow.
SELECT id FROM gpus WHERE slow_since IS NOT NULL;

-- name: note_slow_gpu
-- Note why a GPU is slow; one row where it was not before.
UPDATE gpus g SET slow_since = CAST(:at AS timestamptz), slow_reason = CAST(:reason AS text)
FROM nodes n WHERE n.id = g.node_id AND g.id = :gpu_id AND g.slow_since IS NULL
RETURNING n.name AS node, g.index AS card_index;

-- name: note_gpu_not_slow
-- A GPU is as fast as it should be; one row where it was not before.
UPDATE gpus g SET slow_since = NULL, slow_reason = NULL
FROM nodes n WHERE n.id = g.node_id AND g.id = :gpu_id AND g.slow_since IS NOT NULL
RETURNING n.name AS node, g.index AS card_index;

-- name: note_job_of_quarantined_gpu
-- Record with a job that one of its GPUs was quarantined.
INSERT INTO events (reservation_id, at, actor, kind, before, after, data)
SELECT r.id, CAST(:at AS timestamptz), CAST(:actor AS text), CAST(:kind AS text), r.status, r.status,
       CAST(:data AS jsonb)
FROM reservations r WHERE r.id = :id;
