-- Samples of the use of GPUs, their roll-ups by minute and by hour, and points of graphs.

-- name: gpus_of_uuids
-- The GPUs with these UUIDs, as lists; of a GPU that moved to another index the place where it is comes last. Where a node
-- is named, the GPU counts only there. Nodes are joined last: a prepared plan expects ten UUIDs, and would pair each with each node.
WITH found AS MATERIALIZED (
    SELECT u.uuid, u.node, g.id, g.node_id, g.condition, g.updated_at
    FROM unnest(CAST(:uuids AS text[]), CAST(:nodes AS text[])) AS u (uuid, node) JOIN gpus g ON g.uuid = u.uuid)
SELECT array_agg(f.uuid ORDER BY f.condition = 'lost' DESC, f.updated_at) AS uuids,
       array_agg(f.node ORDER BY f.condition = 'lost' DESC, f.updated_at) AS nodes,
       array_agg(CAST(f.id AS integer) ORDER BY f.condition = 'lost' DESC, f.updated_at) AS ids
FROM found f JOIN nodes n ON n.id = f.node_id AND n.name = coalesce(f.node, n.name);

-- name: lock_gpu_use
-- Until when roll-ups are made; nobody else stores samples or rolls up until the transaction ends. Its commit does not
-- wait for the disk: what a crash of the server takes back are the newest samples, with their roll-ups.
SELECT minutes_until, hours_until, set_config('synchronous_commit', 'off', true) FROM gpu_use_state FOR UPDATE;

-- name: add_gpu_samples
-- Store samples that are not stored yet. Most come by COPY; this is for batches in which some are sent again.
INSERT INTO gpu_samples (at, gpu_id, memory_kib, power_w, ecc_errors, utilisation, temperature_c, xid, processes)
SELECT * FROM unnest(
    CAST(:ats AS timestamptz[]), CAST(:gpu_ids AS integer[]), CAST(:memory AS integer[]), CAST(:power AS real[]),
    CAST(:ecc_errors AS integer[]), CAST(:utilisation AS smallint[]), CAST(:temperatures AS smallint[]),
    CAST(:xids AS smallint[]), CAST(:processes AS smallint[]))
ON CONFLICT (gpu_id, at) DO NOTHING;

-- name: move_gpu_use
-- Until when roll-ups are made; earlier than before where late samples came.
UPDATE gpu_use_state SET minutes_until = CAST(:minutes_until AS timestamptz), hours_until = CAST(:hours_until AS timestamptz);

-- name: forget_gpu_use_to_come
-- Remove samples, errors and speeds of after a time, and what was rolled up of the minute and the hour in which it is and of later
-- ones, by key for each GPU. Sums of hours are made anew as their hours end.
WITH samples AS (
    DELETE FROM gpu_samples WHERE gpu_id = ANY(ARRAY(SELECT CAST(id AS integer) FROM gpus)) AND at > CAST(:now AS timestamptz)
), minutes AS (
    DELETE FROM gpu_minutes
    WHERE gpu_id = ANY(ARRAY(SELECT CAST(id AS integer) FROM gpus)) AND at >= CAST(:minutes_until AS timestamptz)
), errors AS (
    DELETE FROM gpu_errors WHERE at > CAST(:now AS timestamptz)
), speeds AS (
    DELETE FROM gpu_speeds WHERE at > CAST(:now AS timestamptz)
)
DELETE FROM gpu_hours
WHERE gpu_id = ANY(ARRAY(SELECT CAST(id AS integer) FROM gpus)) AND at >= CAST(:hours_until AS timestamptz);

-- name: roll_gpu_minutes
-- Roll up samples by minute in [start, until), by key for each GPU; what was rolled up before is made anew.
INSERT INTO gpu_minutes (
    at, gpu_id, samples, utilisation_mean, utilisation, memory_mean_kib, memory_kib, power_mean_w, power_w,
    temperature_mean_c, temperature_c, ecc_errors, xid, processes, unknown)
SELECT p.at, g.id, p.samples, p.utilisation_mean, p.utilisation, p.memory_mean_kib, p.memory_kib, p.power_mean_w, p.power_w,
       p.temperature_mean_c, p.temperature_c, p.ecc_errors, p.xid, p.processes, p.unknown
FROM (SELECT CAST(id AS integer) AS id FROM gpus) g
CROSS JOIN LATERAL gpu_use_points(g.id, 10, CAST(:start AS timestamptz), CAST(:until AS timestamptz), interval '1 minute') p
ON CONFLICT (gpu_id, at) DO UPDATE SET
    samples = excluded.samples, utilisation_mean = excluded.utilisation_mean, utilisation = excluded.utilisation,
    memory_mean_kib = excluded.memory_mean_kib, memory_kib = excluded.memory_kib, power_mean_w = excluded.power_mean_w,
    power_w = excluded.power_w, temperature_mean_c = excluded.temperature_mean_c, temperature_c = excluded.temperature_c,
    ecc_errors = excluded.ecc_errors, xid = excluded.xid, processes = excluded.processes,
    unknown = excluded.unknown;

-- name: roll_gpu_hours
-- Roll up minutes by hour in [start, until), by key for each GPU; what was rolled up before is made anew.
INSERT INTO gpu_hours (
    at, gpu_id, samples, utilisation_mean, utilisation, memory_mean_kib, memory_kib, power_mean_w, power_w,
    temperature_mean_c, temperature_c, ecc_errors, xid, processes, unknown)
SELECT p.at, g.id, p.samples, p.utilisation_mean, p.utilisation, p.memory_mean_kib, p.memory_kib, p.power_mean_w, p.power_w,
       p.temperature_mean_c, p.temperature_c, p.ecc_errors, p.xid, p.processes, p.unknown
FROM (SELECT CAST(id AS integer) AS id FROM gpus) g
CROSS JOIN LATERAL gpu_use_points(g.id, 60, CAST(:start AS timestamptz), CAST(:until AS timestamptz), interval '1 hour') p
ON CONFLICT (gpu_id, at) DO UPDATE SET
    samples = excluded.samples, utilisation_mean = excluded.utilisation_mean, utilisation = excluded.utilisation,
    memory_mean_kib = excluded.memory_mean_kib, memory_kib = excluded.memory_kib, power_mean_w = excluded.power_mean_w,
    power_w = excluded.power_w, temperature_mean_c = excluded.temperature_mean_c, temperature_c = excluded.temperature_c,
    ecc_errors = excluded.ecc_errors, xid = excluded.xid, processes = excluded.processes,
    unknown = excluded.unknown;

-- name: forget_gpu_use_sums
-- Forget what users and projects used in an hour, before it is summed up anew.
DELETE FROM gpu_use_sums WHERE at = CAST(:start AS timestamptz);

-- name: sum_up_gpu_use
-- Sum up what users and projects used of GPUs in an hour.
INSERT INTO gpu_use_sums (at, user_id, project, gpu_type, samples, utilised, memory_kib)
SELECT CAST(:start AS timestamptz), u.user_id, u.project, u.gpu_type, u.samples, u.utilised, u.memory_kib
FROM gpu_use_of_holders(CAST(:start AS timestamptz), CAST(:until AS timestamptz)) u;

-- name: used_gpus
-- What users and projects used of GPUs in hours that are summed up, and in the short times before and after them.
SELECT CASE CAST(:by AS text) WHEN 'user' THEN n.name WHEN 'project' THEN u.project ELSE u.gpu_type END AS key,
       sum(u.samples) AS samples, sum(u.utilised) AS utilised, max(u.memory_kib) AS memory_kib
FROM (
    SELECT user_id, project, gpu_type, samples, utilised, memory_kib FROM gpu_use_sums
    WHERE at >= CAST(:start AS timestamptz) AND at < CAST(:until AS timestamptz)
    UNION ALL
    SELECT h.user_id, h.project, h.gpu_type, h.samples, h.utilised, h.memory_kib
    FROM unnest(CAST(:starts AS timestamptz[]), CAST(:untils AS timestamptz[])) AS w (start, until)
    CROSS JOIN LATERAL gpu_use_of_holders(w.start, w.until) h
) u
JOIN users n ON n.id = u.user_id
WHERE CAST(:user_id AS bigint) IS NULL OR u.user_id = CAST(:user_id AS bigint)
GROUP BY 1;

-- name: used_gpus_by_step
-- The same by steps, as far as hours are summed up: step number `i` is [start + i * step, start + (i + 1) * step).
SELECT CASE CAST(:by AS text) WHEN 'user' THEN n.name WHEN 'project' THEN u.project ELSE u.gpu_type END AS key,
       CAST(floor(extract(epoch FROM u.at - CAST(:start AS timestamptz))
            / extract(epoch FROM CAST(:step AS interval))) AS integer) AS step,
       sum(u.samples) AS samples, sum(u.utilised) AS utilised
FROM gpu_use_sums u JOIN users n ON n.id = u.user_id
WHERE u.at >= CAST(:start AS timestamptz) AND u.at < CAST(:until AS timestamptz)
  AND (CAST(:user_id AS bigint) IS NULL OR u.user_id = CAST(:user_id AS bigint))
GROUP BY 1, 2;

-- name: oldest_gpu_sample
-- The time of the oldest sample at or after a time, by key for each GPU.
SELECT min(o.at) AS at
FROM (SELECT CAST(id AS integer) AS id FROM gpus) g
CROSS JOIN LATERAL (
    SELECT s.at FROM gpu_samples s WHERE s.gpu_id = g.id AND s.at >= CAST(:since AS timestamptz) ORDER BY s.at LIMIT 1) o;

-- name: oldest_gpu_minute
-- The begin of the oldest minute that is rolled up, at or after a time, by key for each GPU.
SELECT min(o.at) AS at
FROM (SELECT CAST(id AS integer) AS id FROM gpus) g
CROSS JOIN LATERAL (
    SELECT m.at FROM gpu_minutes m WHERE m.gpu_id = g.id AND m.at >= CAST(:since AS timestamptz) ORDER BY m.at LIMIT 1) o;

-- name: oldest_gpu_hour
-- The begin of the oldest hour that is rolled up of any of these GPUs, by key.
SELECT min(o.at) AS at
FROM unnest(CAST(:gpu_ids AS integer[])) AS g (id)
CROSS JOIN LATERAL (SELECT h.at FROM gpu_hours h WHERE h.gpu_id = g.id ORDER BY h.at LIMIT 1) o;

-- name: gpu_use_rolled
-- Until when roll-ups are made.
SELECT minutes_until, hours_until FROM gpu_use_state;

-- name: gpus_of_job
-- The GPUs that a job has or had, of all its attempts, and when: until null while it holds them.
SELECT CAST(a.gpu_id AS integer) AS gpu_id, n.name AS node, g.index AS card_index, g.uuid, g.gpu_type, g.memory_bytes,
       n.labels, lower(a.during) AS start, CASE WHEN a.released_at IS NOT NULL THEN upper(a.during) END AS until
FROM allocations a
JOIN gpus g ON g.id = a.gpu_id
JOIN nodes n ON n.id = g.node_id
WHERE a.reservation_id = :id AND NOT a.planned
ORDER BY a.attempt, a.rank, n.name, g.index;

-- name: gpus_of_node
-- A node's GPUs, for all times.
SELECT CAST(g.id AS integer) AS gpu_id, n.name AS node, g.index AS card_index, g.uuid, g.gpu_type, g.memory_bytes,
       n.labels, CAST(NULL AS timestamptz) AS start, CAST(NULL AS timestamptz) AS until
FROM nodes n JOIN gpus g ON g.node_id = n.id
WHERE n.name = :name
ORDER BY g.index;

-- name: gpu_use_points
-- Points of graphs: for each GPU and time [start, until) those of a resolution (in seconds), in steps.
SELECT w.gpu_id, p.*
FROM unnest(CAST(:gpu_ids AS integer[]), CAST(:resolutions AS integer[]), CAST(:starts AS timestamptz[]),
            CAST(:untils AS timestamptz[])) AS w (gpu_id, resolution, start, until)
CROSS JOIN LATERAL gpu_use_points(w.gpu_id, w.resolution, w.start, w.until, CAST(:step AS interval)) p;

-- name: gpu_use_now
-- So many GPUs after one, by node and index, with their state, what holds each, and its newest sample since a time, by
-- key for each GPU; not from before its holder had it. The last Xid error is of a longer time. All open rows are read at
-- once.
WITH holders AS MATERIALIZED (
    SELECT DISTINCT ON (a.gpu_id) a.gpu_id, a.held, lower(a.during) AS start, r.id, r.kind, r.user_id, r.project, u.name AS user_name
    FROM (
        SELECT gpu_id, reservation_id, during, held, booking_id FROM allocations WHERE held
        UNION ALL
        SELECT gpu_id, reservation_id, during, held, booking_id FROM allocations
        WHERE released_at IS NULL AND NOT held AND lower(during) <= (SELECT ledger_now())
          AND upper(during) > (SELECT ledger_now())
    ) a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    ORDER BY a.gpu_id, a.held DESC, a.booking_id IS NULL
)
SELECT n.name AS node, g.index AS card_index, g.gpu_type, g.memory_bytes, s.available AS node_available,
       coalesce(n.labels ->> 'gpu-dev/simulated' = 'true', false) AS simulated,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance' WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id AS holder_id, h.kind AS holder_kind, h.user_id AS holder_user_id, h.user_name AS holder_user, h.project,
       u.at, u.utilisation, u.memory_kib, u.power_w, u.temperature_c, u.ecc_errors, u.processes, e.xid
FROM nodes n
JOIN node_conditions s ON s.node_id = n.id
JOIN gpus g ON g.node_id = n.id
JOIN card_conditions c ON c.gpu_id = g.id
LEFT JOIN holders h ON h.gpu_id = g.id
LEFT JOIN LATERAL (
    SELECT p.* FROM gpu_samples p
    WHERE p.gpu_id = CAST(g.id AS integer) AND p.at >= CAST(:since AS timestamptz)
      AND p.at >= coalesce(CASE WHEN h.kind = 'job' THEN h.start END, '-infinity')
    ORDER BY p.at DESC LIMIT 1
) u ON true
LEFT JOIN LATERAL (
    SELECT p.xid FROM gpu_samples p
    WHERE p.gpu_id = CAST(g.id AS integer) AND p.at >= CAST(:errors_since AS timestamptz) AND p.xid <> 0
    ORDER BY p.at DESC LIMIT 1
) e ON true
WHERE n.name >= :after_node AND (n.name, g.index) > (:after_node, CAST(:after_index AS integer))
  AND (n.removed_at IS NULL OR h.id IS NOT NULL)
ORDER BY n.name, g.index LIMIT :limit;

-- name: watched_jobs
-- Running jobs that a rule about idle GPUs may concern, with all GPUs that they hold; or those with a warning alone. A job in a
-- booking is not among them: nobody else would get its GPUs.
SELECT r.id, r.version, u.name AS user_name, r.project, r.gpus * r.nodes AS gpus,
       greatest(r.started_at, r.idle_from) AS counts_from, r.idle_since, r.idle_warned_at, r.idle_release_at,
       array_agg(CAST(a.gpu_id AS integer)) AS gpu_ids, array_agg(DISTINCT g.gpu_type) AS gpu_types
FROM allocations a
JOIN reservations r ON r.id = a.reservation_id AND r.attempt = a.attempt
JOIN users u ON u.id = r.user_id
JOIN gpus g ON g.id = a.gpu_id
WHERE a.held AND r.status = 'running' AND r.kind = 'job' AND r.booking_id IS NULL AND r.started_at IS NOT NULL
  AND (NOT CAST(:warned AS boolean) OR r.idle_warned_at IS NOT NULL)
GROUP BY r.id, u.name
ORDER BY r.id;

-- name: quiet_gpus
-- The GPUs with samples since a time, all of which show less use than `least` (in thousandths), by key for each GPU.
SELECT w.gpu_id
FROM unnest(CAST(:gpu_ids AS integer[]), CAST(:sinces AS timestamptz[]), CAST(:leasts AS float8[])) AS w (gpu_id, since, least)
CROSS JOIN LATERAL (
    SELECT max(s.utilisation) AS most, bool_and(s.utilisation IS NOT NULL) AS known FROM gpu_samples s
    WHERE s.gpu_id = w.gpu_id AND s.at >= w.since AND s.at <= CAST(:now AS timestamptz)) m
WHERE m.most < w.least AND m.known;
