-- Health of GPUs: their errors, how fast they run, and quarantine with a reason.

-- Columns that may be null: no table is rewritten. `condition` says what counts; these say since when and why.
ALTER TABLE gpus
    ADD COLUMN quarantined_at     timestamptz,
    ADD COLUMN quarantined_by     text,
    ADD COLUMN quarantine_reason  text CHECK (length(quarantine_reason) BETWEEN 1 AND 500),
    ADD COLUMN quarantine_over_at timestamptz, -- errors from before count no more
    ADD COLUMN slow_since         timestamptz,
    ADD COLUMN slow_reason        text CHECK (length(slow_reason) BETWEEN 1 AND 500);
ALTER TABLE gpus
    ADD CONSTRAINT gpus_quarantine_check CHECK (
        num_nulls(quarantined_at, quarantined_by, quarantine_reason) IN (0, 3)
        AND (quarantined_at IS NULL OR condition = 'quarantined')) NOT VALID,
    ADD CONSTRAINT gpus_slow_check CHECK ((slow_since IS NULL) = (slow_reason IS NULL)) NOT VALID;
ALTER TABLE gpus VALIDATE CONSTRAINT gpus_quarantine_check;
ALTER TABLE gpus VALIDATE CONSTRAINT gpus_slow_check;

-- Errors of GPUs, few among their samples: an Xid error, or by how much the count of uncorrected ECC errors grew. By UUID, as a
-- place may get another GPU.
CREATE TABLE gpu_errors (
    gpu_id     integer NOT NULL,
    at         timestamptz NOT NULL,
    uuid       text NOT NULL CHECK (length(uuid) BETWEEN 1 AND 128),
    xid        smallint CHECK (xid > 0),
    ecc_errors integer CHECK (ecc_errors > 0),
    PRIMARY KEY (gpu_id, at),
    CHECK (num_nonnulls(xid, ecc_errors) > 0)
);
CREATE INDEX gpu_errors_time ON gpu_errors (at);

-- How fast GPUs ran in ten minutes, over the samples that show them busy.
CREATE TABLE gpu_speeds (
    at        timestamptz NOT NULL,
    gpu_id    integer NOT NULL,
    busy      integer NOT NULL CHECK (busy > 0),
    throttled integer CHECK (throttled BETWEEN 0 AND busy),
    clock_mhz real CHECK (clock_mhz >= 0),
    PRIMARY KEY (at, gpu_id)
);

-- Samples of a step that give no utilisation; null: rolled up by an older version.
ALTER TABLE gpu_minutes ADD COLUMN unknown integer CHECK (unknown >= 0);
ALTER TABLE gpu_hours ADD COLUMN unknown integer CHECK (unknown >= 0);
DROP FUNCTION gpu_use_points(integer, integer, timestamptz, timestamptz, interval);
CREATE FUNCTION gpu_use_points(gpu integer, resolution integer, start timestamptz, until timestamptz, step interval)
RETURNS TABLE (
    at timestamptz, samples bigint, utilisation_mean float8, utilisation smallint, memory_mean_kib float8, memory_kib integer,
    power_mean_w float8, power_w real, temperature_mean_c float8, temperature_c smallint, ecc_errors integer, xid smallint,
    processes smallint, unknown bigint
) LANGUAGE sql STABLE AS $$
    SELECT date_bin(step, r.at, '1970-01-01Z'), sum(r.samples),
           sum(r.utilisation_mean * r.samples) / sum(r.samples) FILTER (WHERE r.utilisation_mean IS NOT NULL), max(r.utilisation),
           sum(r.memory_mean_kib * r.samples) / sum(r.samples) FILTER (WHERE r.memory_mean_kib IS NOT NULL), max(r.memory_kib),
           sum(r.power_mean_w * r.samples) / sum(r.samples) FILTER (WHERE r.power_mean_w IS NOT NULL), max(r.power_w),
           sum(r.temperature_mean_c * r.samples) / sum(r.samples) FILTER (WHERE r.temperature_mean_c IS NOT NULL),
           max(r.temperature_c), max(r.ecc_errors),
           (array_agg(r.xid ORDER BY r.at DESC) FILTER (WHERE r.xid IS NOT NULL))[1], max(r.processes),
           sum(r.unknown)
    FROM (
        SELECT s.at, 1 AS samples, CAST(s.utilisation AS float8) AS utilisation_mean, s.utilisation,
               CAST(s.memory_kib AS float8) AS memory_mean_kib, s.memory_kib, CAST(s.power_w AS float8) AS power_mean_w, s.power_w,
               CAST(s.temperature_c AS float8) AS temperature_mean_c, s.temperature_c, s.ecc_errors, nullif(s.xid, 0) AS xid, s.processes,
               CAST(s.utilisation IS NULL AS integer) AS unknown
        FROM gpu_samples s
        WHERE gpu_use_points.resolution = 10 AND s.gpu_id = gpu_use_points.gpu
          AND s.at >= gpu_use_points.start AND s.at < gpu_use_points.until
        UNION ALL
        SELECT m.at, m.samples, m.utilisation_mean, m.utilisation, m.memory_mean_kib, m.memory_kib, m.power_mean_w, m.power_w,
               m.temperature_mean_c, m.temperature_c, m.ecc_errors, m.xid, m.processes,
               coalesce(m.unknown, CASE WHEN m.utilisation_mean IS NULL THEN m.samples ELSE 0 END)
        FROM gpu_minutes m
        WHERE gpu_use_points.resolution = 60 AND m.gpu_id = gpu_use_points.gpu
          AND m.at >= gpu_use_points.start AND m.at < gpu_use_points.until
        UNION ALL
        SELECT h.at, h.samples, h.utilisation_mean, h.utilisation, h.memory_mean_kib, h.memory_kib, h.power_mean_w, h.power_w,
               h.temperature_mean_c, h.temperature_c, h.ecc_errors, h.xid, h.processes,
               coalesce(h.unknown, CASE WHEN h.utilisation_mean IS NULL THEN h.samples ELSE 0 END)
        FROM gpu_hours h
        WHERE gpu_use_points.resolution = 3600 AND h.gpu_id = gpu_use_points.gpu
          AND h.at >= gpu_use_points.start AND h.at < gpu_use_points.until
    ) r GROUP BY 1
$$;

CREATE OR REPLACE VIEW node_conditions AS
SELECT n.id AS node_id,
       n.ready AND n.schedulable AND n.removed_at IS NULL AND n.fenced_at IS NULL AND n.cordoned_at IS NULL AS available,
       nullif(concat_ws(' ',
           'Fenced by ' || n.fenced_by || ' at ' || to_char(n.fenced_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || coalesce(' (' || n.fence_reason || ')', '') || ': nothing new is started here until `gpu-dev nodes '
               || 'unfence ' || n.name || '`.',
           'Cordoned by an administrator (' || n.cordoned_by || coalesce(': ' || n.cordon_reason, '') || ') at '
               || to_char(n.cordoned_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || ': what is here goes on, and nothing new is placed here until `gpu-dev nodes uncordon ' || n.name || '`.',
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND NOT n.ready
                THEN 'It does not answer: its GPUs are quarantined until it is back.' END,
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND n.ready AND NOT n.schedulable
                THEN 'It takes no new pods.' END,
           n.detail,
           (SELECT string_agg('A pod that the ledger does not know holds GPUs ' || array_to_string(u.gpu_indices, ',')
                              || ' here: they are not given out until it ends (operators: `gpu-dev pods`).', ' '
                              ORDER BY u.name)
            FROM unknown_pods u WHERE u.node = n.name),
           (SELECT string_agg('GPU ' || g.index || ' is quarantined since '
                              || to_char(g.quarantined_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' ('
                              || g.quarantined_by || ': ' || g.quarantine_reason
                              || '): it gets nothing new until `gpu-dev nodes release ' || n.name || '/' || g.index || '`.',
                              ' ' ORDER BY g.index)
            FROM gpus g WHERE g.node_id = n.id AND g.quarantined_at IS NOT NULL),
           (SELECT string_agg('GPU ' || g.index || ' is slow since '
                              || to_char(g.slow_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ': '
                              || g.slow_reason || '.', ' ' ORDER BY g.index)
            FROM gpus g WHERE g.node_id = n.id AND g.slow_since IS NOT NULL)
       ), '') AS detail
FROM nodes n;

-- What users and projects used of the GPUs that their jobs had, by hour: usage that stays when minutes go.
CREATE TABLE gpu_use_sums (
    at         timestamptz NOT NULL,
    user_id    bigint NOT NULL REFERENCES users (id),
    project    text,
    gpu_type   text NOT NULL,
    samples    bigint NOT NULL CHECK (samples > 0),
    utilised   float8 NOT NULL CHECK (utilised >= 0), -- samples times utilisation, 0 to 1
    memory_kib integer CHECK (memory_kib >= 0)
);
CREATE UNIQUE INDEX gpu_use_sums_once ON gpu_use_sums (at, user_id, coalesce(project, ''), gpu_type);

-- The same from minutes that lie within the time that a job had the GPU, for a short time: by key for each GPU.
CREATE FUNCTION gpu_use_of_holders(start timestamptz, until timestamptz)
RETURNS TABLE (user_id bigint, project text, gpu_type text, samples bigint, utilised float8, memory_kib integer)
LANGUAGE sql STABLE AS $$
    SELECT r.user_id, r.project, g.gpu_type, sum(m.known), sum(m.known * m.utilisation_mean) / 1000, max(m.memory_kib)
    FROM gpus g
    CROSS JOIN LATERAL (
        SELECT a.reservation_id, a.during FROM allocations a
        WHERE a.gpu_id = g.id AND a.booking_id IS NULL AND a.reservation_id LIKE 'job-%' AND NOT a.planned
          AND a.during && tstzrange(gpu_use_of_holders.start, gpu_use_of_holders.until)
        UNION ALL
        SELECT a.reservation_id, a.during FROM allocations a
        WHERE a.gpu_id = g.id AND a.booking_id IS NOT NULL AND a.reservation_id LIKE 'job-%' AND NOT a.planned
          AND a.during && tstzrange(gpu_use_of_holders.start, gpu_use_of_holders.until)
    ) a
    JOIN reservations r ON r.id = a.reservation_id
    CROSS JOIN LATERAL (
        SELECT n.utilisation_mean, n.memory_kib, n.samples - coalesce(n.unknown, 0) AS known FROM gpu_minutes n
        WHERE n.gpu_id = CAST(g.id AS integer) AND n.at >= greatest(lower(a.during), gpu_use_of_holders.start)
          AND n.at <= least(upper(a.during), gpu_use_of_holders.until) - interval '1 minute' AND n.utilisation_mean IS NOT NULL
    ) m
    GROUP BY r.user_id, r.project, g.gpu_type
    HAVING sum(m.known) > 0
$$;

-- Administrators are notified of a GPU, and the owner of its job by an event of the job.
INSERT INTO notice_kinds (kind, by_default) VALUES ('gpu_health', true);
INSERT INTO notice_events (event, kind) VALUES
    ('gpu_quarantined', 'gpu_health'), ('gpu_slow', 'gpu_health'), ('gpu_of_job_quarantined', 'gpu_health');

CREATE FUNCTION notify_of_gpu_health() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgmq.send('notifications', jsonb_build_object('v', 1, 'kind', 'event', 'event', NEW.id, 'target', t.id))
    FROM notice_events n
    JOIN notice_kinds k ON k.kind = n.kind
    CROSS JOIN users u
    JOIN notice_targets t ON t.user_id = u.id
    LEFT JOIN notice_preferences p ON p.user_id = u.id AND p.kind = n.kind AND p.channel = t.channel
    WHERE n.event = NEW.kind AND u.role = 'admin' AND u.disabled_at IS NULL AND t.told AND coalesce(p.wanted, k.by_default);
    RETURN NULL;
END $$;
CREATE TRIGGER events_notify_health AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.reservation_id IS NULL AND NEW.kind IN ('gpu_quarantined', 'gpu_slow'))
    EXECUTE FUNCTION notify_of_gpu_health();

-- == The weekly digest of projects ==
-- The weeks whose digests are sent. The last week that is over counts as sent: the first digest is of the week that goes on.
CREATE TABLE usage_digests (
    week    timestamptz PRIMARY KEY,
    sent_at timestamptz NOT NULL
);
INSERT INTO usage_digests (week, sent_at)
SELECT date_trunc('week', now(), 'UTC') - n * interval '7 days', now() FROM generate_series(1, 2) AS n;

INSERT INTO notice_kinds (kind, by_default) VALUES ('digest', true);
INSERT INTO notice_events (event, kind) VALUES ('project_digest', 'digest');

CREATE FUNCTION notify_of_digest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgmq.send('notifications', jsonb_build_object('v', 1, 'kind', 'event', 'event', NEW.id, 'target', t.id))
    FROM notice_events n
    JOIN notice_kinds k ON k.kind = n.kind
    JOIN project_members m ON 'project:' || m.project = NEW.subject
    JOIN users u ON u.id = m.user_id
    JOIN notice_targets t ON t.user_id = u.id
    LEFT JOIN notice_preferences p ON p.user_id = u.id AND p.kind = n.kind AND p.channel = t.channel
    WHERE n.event = NEW.kind AND u.disabled_at IS NULL AND t.told AND coalesce(p.wanted, k.by_default);
    RETURN NULL;
END $$;
CREATE TRIGGER events_notify_digest AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.reservation_id IS NULL AND NEW.kind = 'project_digest')
    EXECUTE FUNCTION notify_of_digest();
