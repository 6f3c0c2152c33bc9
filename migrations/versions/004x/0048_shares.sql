-- What pods can have of a node: thousandths of a CPU, and bytes. Null: not known.
ALTER TABLE nodes
    ADD COLUMN cpu_milli bigint,
    ADD COLUMN memory_bytes bigint,
    ADD CONSTRAINT nodes_shares CHECK (cpu_milli >= 0 AND memory_bytes >= 0) NOT VALID;

-- What a job asks for on each of its nodes. Null: the share of the node that its GPUs are.
ALTER TABLE reservations
    ADD COLUMN cpu_milli bigint,
    ADD COLUMN memory_bytes bigint,
    ADD COLUMN shm_bytes bigint;
ALTER TABLE reservations
    ADD CONSTRAINT reservations_shares
        CHECK (cpu_milli BETWEEN 1 AND 10000000 AND memory_bytes BETWEEN 1 AND 1125899906842624) NOT VALID,
    ADD CONSTRAINT reservations_shm
        CHECK (shm_bytes BETWEEN 1 AND 1125899906842624 AND shm_bytes <= coalesce(memory_bytes, shm_bytes)) NOT VALID,
    -- What runs in a booking has a part of the booking's share.
    ADD CONSTRAINT reservations_shares_of_jobs
        CHECK (kind = 'job' AND booking_id IS NULL OR num_nonnulls(cpu_milli, memory_bytes) = 0) NOT VALID;

-- What the reservation has of the GPU's node, the same in all its rows there. Null as above.
ALTER TABLE allocations ADD COLUMN cpu_milli bigint, ADD COLUMN memory_bytes bigint;
-- The table's few rows that ask for anything and are open: mostly none.
CREATE INDEX allocations_asking ON allocations (gpu_id)
    WHERE released_at IS NULL AND (cpu_milli IS NOT NULL OR memory_bytes IS NOT NULL);

-- Refuse a range on a node where at some instant in it more is taken than the node has. Rows count as for the planner
-- (domain/pools/node_shares.py): one whose pod overruns lasts a minute from now, a job within a booking and the booking
-- count once, maintenance windows do not count. Only the first instant of rows within a booking is looked at.
CREATE FUNCTION refuse_beyond_shares(on_node bigint, span tstzrange, within_booking boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lacking record;
    at_once timestamptz := ledger_now();
BEGIN
    WITH taken AS MATERIALIZED (
        SELECT a.reservation_id, a.gpu_id, a.cpu_milli, a.memory_bytes,
               CASE WHEN a.held THEN least(lower(a.during), at_once) ELSE lower(a.during) END AS begins,
               CASE WHEN a.held AND upper(a.during) <= at_once THEN at_once + interval '60 seconds'
                    ELSE upper(a.during) END AS ends
        FROM gpus g JOIN allocations a ON a.gpu_id = g.id
        WHERE g.node_id = on_node AND a.released_at IS NULL AND a.reservation_id NOT LIKE 'mnt-%'
    ), instants AS (
        SELECT lower(span) AS at
        UNION
        SELECT begins FROM taken WHERE NOT within_booking AND begins > lower(span) AND begins < upper(span)
    )
    SELECT n.name, i.at INTO lacking
    FROM nodes n
    CROSS JOIN instants i
    CROSS JOIN LATERAL (SELECT count(*) AS gpus FROM gpus WHERE node_id = n.id) AS whole
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT gpu_id) FILTER (WHERE cpu_milli IS NULL) AS cpu_gpus,
               count(DISTINCT gpu_id) FILTER (WHERE memory_bytes IS NULL) AS memory_gpus
        FROM taken WHERE begins <= i.at AND ends > i.at
    ) AS shared
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(cpu_milli), 0) AS cpu_milli, coalesce(sum(memory_bytes), 0) AS memory_bytes
        FROM (SELECT DISTINCT reservation_id, cpu_milli, memory_bytes FROM taken
              WHERE begins <= i.at AND ends > i.at) AS each_job
    ) AS asked
    WHERE n.id = on_node
      AND (shared.cpu_gpus * n.cpu_milli + asked.cpu_milli * whole.gpus > n.cpu_milli * whole.gpus
           OR shared.memory_gpus * n.memory_bytes + asked.memory_bytes * whole.gpus > n.memory_bytes * whole.gpus)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'At % more CPUs or memory of % would be taken than it has.', lacking.at, lacking.name
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_shares', TABLE = 'allocations';
    END IF;
END $$;

-- Rows that ask for something and rows that don't are written one after the other, so that each sees the others; those that
-- ask for nothing don't wait for each other. Where no job asks for anything, that is all.
CREATE FUNCTION check_shares_of_placed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    range_placed record;
BEGIN
    IF EXISTS (SELECT FROM placed WHERE cpu_milli IS NOT NULL OR memory_bytes IS NOT NULL) THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('shares', 0));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('shares', 0));
        IF NOT EXISTS (SELECT FROM allocations
                       WHERE released_at IS NULL AND (cpu_milli IS NOT NULL OR memory_bytes IS NOT NULL)) THEN
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
CREATE TRIGGER allocations_shares AFTER INSERT ON allocations
    REFERENCING NEW TABLE AS placed FOR EACH STATEMENT EXECUTE FUNCTION check_shares_of_placed();

CREATE FUNCTION check_shares_of_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    on_node bigint := (SELECT node_id FROM gpus WHERE id = NEW.gpu_id);
BEGIN
    IF NEW.cpu_milli IS NOT NULL OR NEW.memory_bytes IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('shares', 0));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('shares', 0));
    END IF;
    IF EXISTS (SELECT FROM allocations a JOIN gpus g ON g.id = a.gpu_id
               WHERE a.released_at IS NULL AND (a.cpu_milli IS NOT NULL OR a.memory_bytes IS NOT NULL)
                 AND g.node_id = on_node) THEN
        PERFORM refuse_beyond_shares(on_node, NEW.during, NEW.booking_id IS NOT NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER allocations_shares_moved AFTER UPDATE OF during ON allocations FOR EACH ROW
    WHEN (NEW.released_at IS NULL AND NEW.reservation_id NOT LIKE 'mnt-%'
          AND (upper(NEW.during) > upper(OLD.during) OR lower(NEW.during) < lower(OLD.during)))
    EXECUTE FUNCTION check_shares_of_moved();
