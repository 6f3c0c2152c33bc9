-- The use of GPUs by GPU and time; the ledger says which job had the GPU. Days of samples and minutes go by whole partitions.

-- No foreign key: a row of `gpus` is never deleted, and looking each one up would cost more than storing a sample. The domain checks
-- bounds: here they would cost a sixth. Columns are in the order that needs no padding. The GPU's memory is in `gpus`.
CREATE TABLE gpu_samples (
    at            timestamptz NOT NULL,
    gpu_id        integer NOT NULL,
    memory_kib    integer,
    power_w       real,
    ecc_errors    integer,
    utilisation   smallint, -- in thousandths
    temperature_c smallint,
    xid           smallint NOT NULL, -- 0: none, or unknown; a null in each row would cost eight bytes
    processes     smallint,
    PRIMARY KEY (gpu_id, at)
) PARTITION BY RANGE (at);

CREATE TABLE gpu_minutes (
    at                 timestamptz NOT NULL,
    gpu_id             integer NOT NULL,
    samples            integer NOT NULL CHECK (samples > 0),
    utilisation_mean   real CHECK (utilisation_mean BETWEEN 0 AND 1000),
    memory_mean_kib    real CHECK (memory_mean_kib >= 0),
    memory_kib         integer,
    power_mean_w       real CHECK (power_mean_w >= 0),
    power_w            real,
    temperature_mean_c real,
    ecc_errors         integer,
    utilisation        smallint,
    temperature_c      smallint,
    xid                smallint,
    processes          smallint,
    PRIMARY KEY (gpu_id, at)
) PARTITION BY RANGE (at);

CREATE TABLE gpu_hours (LIKE gpu_minutes INCLUDING CONSTRAINTS, PRIMARY KEY (gpu_id, at));

-- Until when the roll-ups are made. Its row is locked by those who store samples and by those who roll up: a late sample moves it back.
CREATE TABLE gpu_use_state (
    singleton     boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    minutes_until timestamptz NOT NULL,
    hours_until   timestamptz NOT NULL
);
INSERT INTO gpu_use_state (minutes_until, hours_until)
SELECT date_trunc('hour', now(), 'UTC'), date_trunc('hour', now(), 'UTC');

CREATE VIEW gpu_use_partitions AS
SELECT c.oid, c.relname AS name, i.inhparent, CAST(CAST(i.inhparent AS regclass) AS text) AS parent,
       CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)') AS timestamptz) AS ends_at
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass);
COMMENT ON VIEW gpu_use_partitions IS 'The days of samples of GPUs, and of their roll-ups by minute';

-- The points of a GPU in [start, until) in steps, from samples (resolution 10), or from roll-ups by minute (60) or by hour (3600).
-- Each branch but one is not executed.
CREATE FUNCTION gpu_use_points(gpu integer, resolution integer, start timestamptz, until timestamptz, step interval)
RETURNS TABLE (
    at timestamptz, samples bigint, utilisation_mean float8, utilisation smallint, memory_mean_kib float8, memory_kib integer,
    power_mean_w float8, power_w real, temperature_mean_c float8, temperature_c smallint, ecc_errors integer, xid smallint,
    processes smallint
) LANGUAGE sql STABLE AS $$
    SELECT date_bin(step, r.at, '1970-01-01Z'), sum(r.samples),
           sum(r.utilisation_mean * r.samples) / sum(r.samples) FILTER (WHERE r.utilisation_mean IS NOT NULL), max(r.utilisation),
           sum(r.memory_mean_kib * r.samples) / sum(r.samples) FILTER (WHERE r.memory_mean_kib IS NOT NULL), max(r.memory_kib),
           sum(r.power_mean_w * r.samples) / sum(r.samples) FILTER (WHERE r.power_mean_w IS NOT NULL), max(r.power_w),
           sum(r.temperature_mean_c * r.samples) / sum(r.samples) FILTER (WHERE r.temperature_mean_c IS NOT NULL),
           max(r.temperature_c), max(r.ecc_errors),
           (array_agg(r.xid ORDER BY r.at DESC) FILTER (WHERE r.xid IS NOT NULL))[1], max(r.processes)
    FROM (
        SELECT s.at, 1 AS samples, CAST(s.utilisation AS float8) AS utilisation_mean, s.utilisation,
               CAST(s.memory_kib AS float8) AS memory_mean_kib, s.memory_kib, CAST(s.power_w AS float8) AS power_mean_w, s.power_w,
               CAST(s.temperature_c AS float8) AS temperature_mean_c, s.temperature_c, s.ecc_errors, nullif(s.xid, 0) AS xid, s.processes
        FROM gpu_samples s
        WHERE gpu_use_points.resolution = 10 AND s.gpu_id = gpu_use_points.gpu
          AND s.at >= gpu_use_points.start AND s.at < gpu_use_points.until
        UNION ALL
        SELECT m.at, m.samples, m.utilisation_mean, m.utilisation, m.memory_mean_kib, m.memory_kib, m.power_mean_w, m.power_w,
               m.temperature_mean_c, m.temperature_c, m.ecc_errors, m.xid, m.processes
        FROM gpu_minutes m
        WHERE gpu_use_points.resolution = 60 AND m.gpu_id = gpu_use_points.gpu
          AND m.at >= gpu_use_points.start AND m.at < gpu_use_points.until
        UNION ALL
        SELECT h.at, h.samples, h.utilisation_mean, h.utilisation, h.memory_mean_kib, h.memory_kib, h.power_mean_w, h.power_w,
               h.temperature_mean_c, h.temperature_c, h.ecc_errors, h.xid, h.processes
        FROM gpu_hours h
        WHERE gpu_use_points.resolution = 3600 AND h.gpu_id = gpu_use_points.gpu
          AND h.at >= gpu_use_points.start AND h.at < gpu_use_points.until
    ) r GROUP BY 1
$$;

-- Yesterday, today and tomorrow; answers how many were made. Made aside and attached, which keeps nobody from reading or writing.
CREATE FUNCTION make_gpu_use_partitions() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    made   integer := 0;
    day    timestamptz;
    parent text;
    name   text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('gpu_use_partitions', 0));
    FOREACH parent IN ARRAY ARRAY['gpu_samples', 'gpu_minutes'] LOOP
        FOR n IN -1..1 LOOP
            day := date_trunc('day', clock_timestamp(), 'UTC') + n * interval '24 hours';
            name := parent || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
            IF to_regclass(name) IS NULL THEN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING CONSTRAINTS INCLUDING INDEXES)', name, parent);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                               parent, name, day, day + interval '24 hours');
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Drops the oldest day of samples that ended a day ago, or of minutes that ended 30 days ago; answers its name, null where there is
-- none. The lock is had at once or not at all.
CREATE FUNCTION drop_gpu_use_partition() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    chosen record;
BEGIN
    SELECT p.name, p.parent INTO chosen FROM gpu_use_partitions p
    WHERE p.ends_at <= clock_timestamp() - CASE p.parent WHEN 'gpu_samples' THEN interval '1 day' ELSE interval '30 days' END
    ORDER BY p.ends_at, p.name LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', chosen.parent, chosen.name);
    EXECUTE format('DROP TABLE %I', chosen.name);
    RETURN chosen.name;
END $$;

-- What the application may do besides.
ALTER FUNCTION let_application_work(text) RENAME TO let_application_work_before_gpu_use;
CREATE FUNCTION let_application_work(application text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM let_application_work_before_gpu_use(application);
    REVOKE EXECUTE ON FUNCTION let_application_work(text), let_application_work_before_gpu_use(text),
        make_gpu_use_partitions(), drop_gpu_use_partition() FROM PUBLIC;
    IF quote_ident(application) <> (SELECT CAST(CAST(relowner AS regrole) AS text) FROM pg_class WHERE oid = 'events'::regclass) THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_gpu_use_partitions(), drop_gpu_use_partition() TO %I', application);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION let_application_work(text), make_gpu_use_partitions(), drop_gpu_use_partition() FROM PUBLIC;
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['make_gpu_use_partitions()', 'drop_gpu_use_partition()', 'let_application_work(text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', name, current_schema());
    END LOOP;
END $$;
SELECT make_gpu_use_partitions();
