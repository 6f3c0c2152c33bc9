-- Samples of GPUs, and their roll-ups by minute, are in chunks of TimescaleDB where the server has it, else in partitions as before.

-- The chunks; none where there are partitions. Found by name: looking up tables of others would need rights to their schemas.
CREATE FUNCTION gpu_use_chunks() RETURNS TABLE (chunk oid, ends_at timestamptz, is_compressed boolean) LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = 'gpu_samples'::regclass) <> 'p' THEN
        RETURN QUERY SELECT CAST(format('%I.%I', c.chunk_schema, c.chunk_name) AS regclass)::oid, c.range_end, c.is_compressed
        FROM timescaledb_information.chunks c
        WHERE c.hypertable_schema = current_schema() AND c.hypertable_name IN ('gpu_samples', 'gpu_minutes');
    END IF;
END $$;

-- By the names of the tables, as each may become another table.
CREATE OR REPLACE VIEW gpu_use_partitions AS
SELECT c.oid, c.relname AS name, i.inhparent, CAST(p.relname AS text) COLLATE "default" AS parent,
       coalesce(CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)') AS timestamptz), k.ends_at) AS ends_at
FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid LEFT JOIN gpu_use_chunks() k ON k.chunk = c.oid
WHERE p.relname IN ('gpu_samples', 'gpu_minutes') AND p.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'gpu_hours'::regclass);

-- Makes the partition of a day unless it is there. Made aside and attached, which keeps nobody from reading or writing.
CREATE FUNCTION make_gpu_use_partition(parent text, kind text, day timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    name text := kind || '_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING CONSTRAINTS INCLUDING INDEXES)', name, parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name, day, day + interval '24 hours');
    RETURN 1;
END $$;

-- Yesterday, today and tomorrow; answers how many were made. TimescaleDB makes a chunk for the first row of a day.
CREATE OR REPLACE FUNCTION make_gpu_use_partitions() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('gpu_use_partitions', 0));
    RETURN (SELECT coalesce(sum(make_gpu_use_partition(c.relname, c.relname, date_trunc('day', clock_timestamp(), 'UTC') + n * interval '24 hours')), 0)
            FROM pg_class c, generate_series(-1, 1) n
            WHERE c.oid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass) AND c.relkind = 'p');
END $$;

-- Drops the oldest day of samples that ended a day ago, or of minutes that ended 30 days ago; answers its name, null where there is
-- none. Then compresses the oldest day of minutes that ended a day ago, where TimescaleDB may. The lock is had at once or not at all.
CREATE OR REPLACE FUNCTION drop_gpu_use_partition() RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    chosen record;
    place  name := (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'timescaledb');
BEGIN
    SELECT p.name, p.parent, p.ends_at, c.relispartition INTO chosen FROM gpu_use_partitions p JOIN pg_class c ON c.oid = p.oid
    WHERE p.ends_at <= clock_timestamp() - CASE p.parent WHEN 'gpu_samples' THEN interval '1 day' ELSE interval '30 days' END
    ORDER BY p.ends_at, p.name LIMIT 1;
    IF chosen.relispartition THEN
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', chosen.parent, chosen.name);
        EXECUTE format('DROP TABLE %I', chosen.name);
        RETURN chosen.name;
    ELSIF chosen.name IS NOT NULL THEN
        EXECUTE format('SELECT %I.drop_chunks(CAST(%L AS regclass), older_than => CAST(%L AS timestamptz))', place, chosen.parent, chosen.ends_at);
        RETURN chosen.name;
    ELSIF current_setting('timescaledb.license', true) = 'timescale' THEN
        SELECT p.oid, p.name INTO chosen FROM gpu_use_partitions p JOIN gpu_use_chunks() k ON k.chunk = p.oid
        WHERE p.parent = 'gpu_minutes' AND NOT k.is_compressed AND p.ends_at <= clock_timestamp() - interval '1 day'
        ORDER BY p.ends_at LIMIT 1;
        IF FOUND THEN
            IF NOT (SELECT compression_enabled FROM timescaledb_information.hypertables
                    WHERE hypertable_schema = current_schema() AND hypertable_name = 'gpu_minutes') THEN
                ALTER TABLE gpu_minutes SET (timescaledb.compress, timescaledb.compress_segmentby = 'gpu_id', timescaledb.compress_orderby = 'at');
            END IF;
            EXECUTE format('SELECT %I.compress_chunk(CAST(%L AS regclass))', place, chosen.oid);
            RETURN chosen.name;
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Moves samples and minutes to `timescaledb` or to `partitions`, in one transaction. Samples wait meanwhile; readers wait at the
-- end, for a moment.
CREATE FUNCTION store_gpu_use_in(storage text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    owner name;
    place name;
    kind  text;
    fresh text;
    item  record;
BEGIN
    IF storage NOT IN ('timescaledb', 'partitions') THEN
        RAISE EXCEPTION 'samples of GPUs are stored in timescaledb or in partitions, not in %', storage USING ERRCODE = 'invalid_parameter_value';
    ELSIF storage = (SELECT CASE relkind WHEN 'p' THEN 'partitions' ELSE 'timescaledb' END FROM pg_class WHERE oid = 'gpu_samples'::regclass) THEN
        RETURN;
    END IF;
    SELECT r.rolname INTO owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = 'gpu_samples'::regclass;
    IF current_user <> owner THEN
        RAISE EXCEPTION 'the owner of the samples, %, has to move them', owner USING ERRCODE = 'insufficient_privilege',
            HINT = format('Run this before: SET ROLE %I', owner);
    ELSIF storage = 'timescaledb' AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'timescaledb') THEN
        -- Creating it would end the connection where its library is not loaded.
        IF current_setting('timescaledb.max_background_workers', true) IS NULL THEN
            RAISE EXCEPTION 'this server has no TimescaleDB' USING ERRCODE = 'feature_not_supported',
                HINT = 'Install it, add timescaledb to shared_preload_libraries, and restart the server.';
        END IF;
        CREATE EXTENSION timescaledb;
    END IF;
    SELECT n.nspname INTO place FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'timescaledb';
    PERFORM pg_advisory_xact_lock(hashtextextended('gpu_use_partitions', 0));
    PERFORM FROM gpu_use_state FOR UPDATE;
    FOREACH kind IN ARRAY ARRAY['gpu_samples', 'gpu_minutes'] LOOP
        fresh := kind || '_moved';
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) %s', fresh, kind, CASE storage WHEN 'partitions' THEN 'PARTITION BY RANGE (at)' END);
        IF storage = 'timescaledb' THEN
            EXECUTE format('SELECT %1$I.create_hypertable(CAST(%2$L AS regclass), %1$I.by_range(''at'', interval ''1 day''), create_default_indexes => false)',
                           place, fresh);
        ELSE
            FOR item IN EXECUTE format('SELECT DISTINCT date_trunc(''day'', at, ''UTC'') AS day FROM %I', kind) LOOP
                PERFORM make_gpu_use_partition(fresh, kind, item.day);
            END LOOP;
        END IF;
        EXECUTE format('INSERT INTO %I SELECT * FROM %I', fresh, kind);
        FOR item IN
            SELECT a.privilege_type AS privilege, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE CAST(CAST(a.grantee AS regrole) AS text) END AS role
            FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE c.oid = to_regclass(kind) AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('GRANT %s ON %I TO %s', item.privilege, fresh, item.role);
        END LOOP;
        EXECUTE format('DROP TABLE %I', kind);
        EXECUTE format('ALTER TABLE %I RENAME TO %I', fresh, kind);
        EXECUTE format('ALTER TABLE %I RENAME CONSTRAINT %I TO %I', kind, fresh || '_pkey', kind || '_pkey');
    END LOOP;
    PERFORM make_gpu_use_partitions();
END $$;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['gpu_use_chunks()', 'make_gpu_use_partition(text, text, timestamptz)', 'make_gpu_use_partitions()',
                                'drop_gpu_use_partition()', 'store_gpu_use_in(text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', name, current_schema());
    END LOOP;
END $$;

-- Rows that are there are moved by hand: it may take long. Whatever TimescaleDB refuses, partitions do.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM gpu_samples) AND NOT EXISTS (SELECT FROM gpu_minutes) THEN
        PERFORM store_gpu_use_in('timescaledb');
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'Samples of GPUs are stored in partitions: %', SQLERRM;
END $$;
