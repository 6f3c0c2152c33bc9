-- What each node keeps for jobs without GPUs. `cpu_milli` and `memory_bytes` are what jobs with GPUs have: the rest of it.
ALTER TABLE nodes
    ADD COLUMN spare_cpu_milli bigint,
    ADD COLUMN spare_memory_bytes bigint,
    ADD CONSTRAINT nodes_spare CHECK (spare_cpu_milli >= 0 AND spare_memory_bytes >= 0) NOT VALID;

-- Nobody's job with GPUs waits in the queue of jobs without.
UPDATE reservations SET gpu_type = 'cpu-gpu'
WHERE kind = 'job' AND gpus > 0 AND gpu_type = 'cpu' AND finished_at IS NULL;

-- A job without GPUs names its amounts and waits in a queue of its own, that of type `cpu`. A planner of the version before
-- knows no such type: these jobs wait for it.
ALTER TABLE reservations
    DROP CONSTRAINT reservations_gpus_check,
    -- Weaker than before, so that every row fulfils it.
    ADD CONSTRAINT reservations_gpus CHECK (gpus BETWEEN 0 AND 1024) NOT VALID,
    ADD CONSTRAINT reservations_cpu_type CHECK (
        gpus = 0 OR gpu_type IS DISTINCT FROM 'cpu' OR kind <> 'job' OR finished_at IS NOT NULL) NOT VALID,
    ADD CONSTRAINT reservations_cpu_jobs CHECK (
        gpus > 0 OR (kind = 'job' AND gpu_type IS NOT DISTINCT FROM 'cpu' AND nodes = 1 AND booking_id IS NULL
                     AND preemptible IS NOT TRUE AND num_nonnulls(cpu_milli, memory_bytes) = 2)) NOT VALID;

-- The row of a job without GPUs names its node, and one of the places that the planner counts there. Both columns and two
-- indexes on them are there: see `0059_cpu_jobs.py`.
ALTER TABLE allocations
    ALTER COLUMN gpu_id DROP NOT NULL,
    ADD CONSTRAINT allocations_place CHECK (
        gpu_id IS NOT NULL AND num_nonnulls(node_id, cpu_slot) = 0
        OR gpu_id IS NULL AND num_nonnulls(node_id, cpu_slot, cpu_milli, memory_bytes) = 4 AND cpu_slot BETWEEN 0 AND 31
           AND booking_id IS NULL) NOT VALID,
    ADD CONSTRAINT allocations_node FOREIGN KEY (node_id) REFERENCES nodes (id) NOT VALID,
    -- As for GPUs: no two ranges of one place overlap, and no two pods have it. PostgreSQL builds no exclusion constraint
    -- CONCURRENTLY: it reads the table once under the lock, and finds no row.
    ADD CONSTRAINT allocations_cpu_calendar EXCLUDE USING gist (node_id WITH =, cpu_slot WITH =, during WITH &&)
        WHERE (node_id IS NOT NULL);

-- Refuse a range on a node where at some instant in it more is taken than the node keeps for jobs without GPUs. Rows count
-- as in refuse_beyond_shares. A pod that overruns lasts half a minute from now: the planner, whose now is a little earlier,
-- counts a minute, and what it plans behind that is never refused.
CREATE FUNCTION refuse_beyond_spare(on_node bigint, span tstzrange) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lacking record;
    at_once timestamptz := ledger_now();
BEGIN
    WITH taken AS MATERIALIZED (
        SELECT a.cpu_milli, a.memory_bytes,
               CASE WHEN a.held THEN least(lower(a.during), at_once) ELSE lower(a.during) END AS begins,
               CASE WHEN a.held AND upper(a.during) <= at_once THEN at_once + interval '30 seconds'
                    ELSE upper(a.during) END AS ends
        FROM allocations a WHERE a.node_id = on_node AND a.released_at IS NULL
    ), instants AS (
        SELECT lower(span) AS at
        UNION
        SELECT begins FROM taken WHERE begins > lower(span) AND begins < upper(span)
    )
    SELECT n.name, i.at INTO lacking
    FROM nodes n
    CROSS JOIN instants i
    CROSS JOIN LATERAL (
        SELECT sum(cpu_milli) AS cpu_milli, sum(memory_bytes) AS memory_bytes
        FROM taken WHERE begins <= i.at AND ends > i.at
    ) AS asked
    WHERE n.id = on_node AND (asked.cpu_milli > coalesce(n.spare_cpu_milli, 0)
                              OR asked.memory_bytes > coalesce(n.spare_memory_bytes, 0))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'At % more CPUs or memory of % would be taken than it keeps for jobs without GPUs.', lacking.at,
            lacking.name
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_shares', TABLE = 'allocations';
    END IF;
END $$;

-- Rows without GPUs are written one after the other, so that each sees the others.
CREATE FUNCTION check_spare() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('cpu_jobs', 0));
    PERFORM refuse_beyond_spare(NEW.node_id, NEW.during);
    RETURN NULL;
END $$;
CREATE TRIGGER allocations_spare AFTER INSERT ON allocations FOR EACH ROW
    WHEN (NEW.node_id IS NOT NULL AND NEW.released_at IS NULL) EXECUTE FUNCTION check_spare();
CREATE TRIGGER allocations_spare_moved AFTER UPDATE OF during ON allocations FOR EACH ROW
    WHEN (NEW.node_id IS NOT NULL AND NEW.released_at IS NULL
          AND (upper(NEW.during) > upper(OLD.during) OR lower(NEW.during) < lower(OLD.during)))
    EXECUTE FUNCTION check_spare();

-- Amounts of rows without GPUs are no part of a node's GPUs' shares.
CREATE OR REPLACE FUNCTION check_shares_of_placed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    range_placed record;
BEGIN
    IF EXISTS (SELECT FROM placed WHERE gpu_id IS NOT NULL AND (cpu_milli IS NOT NULL OR memory_bytes IS NOT NULL)) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('shares', 0));
    ELSIF NOT EXISTS (SELECT FROM placed WHERE gpu_id IS NOT NULL) THEN
        RETURN NULL;
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('shares', 0));
        IF NOT EXISTS (SELECT FROM allocations
                       WHERE released_at IS NULL AND (cpu_milli IS NOT NULL OR memory_bytes IS NOT NULL)
                         AND gpu_id IS NOT NULL) THEN
            RETURN NULL;
        END IF;
    END IF;
    FOR range_placed IN
        SELECT DISTINCT g.node_id, p.during, p.booking_id IS NOT NULL AS within_booking
        FROM placed p JOIN gpus g ON g.id = p.gpu_id
        WHERE p.reservation_id NOT LIKE 'mnt-%'
          AND g.node_id IN (
              SELECT o.node_id FROM allocations a JOIN gpus o ON o.id = a.gpu_id
              WHERE a.released_at IS NULL AND (a.cpu_milli IS NOT NULL OR a.memory_bytes IS NOT NULL))
    LOOP
        PERFORM refuse_beyond_shares(range_placed.node_id, range_placed.during, range_placed.within_booking);
    END LOOP;
    RETURN NULL;
END $$;
DROP TRIGGER allocations_shares_moved ON allocations;
CREATE TRIGGER allocations_shares_moved AFTER UPDATE OF during ON allocations FOR EACH ROW
    WHEN (NEW.gpu_id IS NOT NULL AND NEW.released_at IS NULL AND NEW.reservation_id NOT LIKE 'mnt-%'
          AND (upper(NEW.during) > upper(OLD.during) OR lower(NEW.during) < lower(OLD.during)))
    EXECUTE FUNCTION check_shares_of_moved();

-- Whether a job has amounts of its own on a node.
CREATE FUNCTION has_asking_jobs(on_node bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM allocations a WHERE a.node_id = on_node AND a.released_at IS NULL)
        OR EXISTS (SELECT FROM allocations a JOIN gpus g ON g.id = a.gpu_id
                   WHERE a.released_at IS NULL AND (a.cpu_milli IS NOT NULL OR a.memory_bytes IS NOT NULL)
                     AND g.node_id = on_node)
$$;
-- What a node keeps stays as it is while a job there has amounts of its own, so that nothing it was promised goes away. The
-- node as a whole may change.
CREATE FUNCTION keep_spare_while_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- In the order of `check_spare` and `check_shares_of_placed` in one statement that starts jobs of both kinds.
    PERFORM pg_advisory_xact_lock(hashtextextended('cpu_jobs', 0));
    PERFORM pg_advisory_xact_lock(hashtextextended('shares', 0));
    IF has_asking_jobs(NEW.id) THEN
        -- Not `greatest(..., 0)` of what is not known, which is 0.
        IF NEW.cpu_milli IS NOT NULL THEN
            NEW.cpu_milli := greatest(
                NEW.cpu_milli + coalesce(NEW.spare_cpu_milli, 0) - coalesce(OLD.spare_cpu_milli, 0), 0);
        END IF;
        IF NEW.memory_bytes IS NOT NULL THEN
            NEW.memory_bytes := greatest(
                NEW.memory_bytes + coalesce(NEW.spare_memory_bytes, 0) - coalesce(OLD.spare_memory_bytes, 0), 0);
        END IF;
        NEW.spare_cpu_milli := OLD.spare_cpu_milli;
        NEW.spare_memory_bytes := OLD.spare_memory_bytes;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER nodes_spare_kept BEFORE UPDATE OF spare_cpu_milli, spare_memory_bytes ON nodes FOR EACH ROW
    WHEN ((NEW.spare_cpu_milli, NEW.spare_memory_bytes) IS DISTINCT FROM (OLD.spare_cpu_milli, OLD.spare_memory_bytes))
    EXECUTE FUNCTION keep_spare_while_asked();

-- Whether some node keeps so much for jobs without GPUs, if nothing runs there.
CREATE FUNCTION is_kept_somewhere(asked_cpu bigint, asked_memory bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM nodes n WHERE removed_at IS NULL AND spare_cpu_milli >= asked_cpu
                                         AND spare_memory_bytes >= asked_memory
                                         AND EXISTS (SELECT FROM gpus g WHERE g.node_id = n.id));
END $$;

CREATE OR REPLACE FUNCTION request_text(gpus integer, gpu_type text, nodes integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN gpus = 0 THEN 'no GPUs' ELSE gpus || ' x ' || coalesce(gpu_type, 'any type') END
        || CASE WHEN nodes > 1 THEN ' on each of ' || nodes || ' nodes' ELSE '' END
$$;
