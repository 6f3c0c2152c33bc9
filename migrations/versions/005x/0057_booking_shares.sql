-- A job in a booking may ask for CPUs and memory, for no more than the share of the node that its own GPUs are. The
-- booking has the share of its GPUs in the ledger, and its jobs have a part of that: their rows name no amounts, so
-- that nothing is added up twice. As no two jobs in a booking have a GPU at once, they never have more together.
ALTER TABLE reservations
    DROP CONSTRAINT reservations_shares_of_jobs,
    -- Weaker than before, so that every row fulfils it.
    ADD CONSTRAINT reservations_shares_of_jobs
        CHECK (kind = 'job' OR num_nonnulls(cpu_milli, memory_bytes) = 0) NOT VALID;
-- No row within a booking has amounts so far.
ALTER TABLE allocations
    ADD CONSTRAINT allocations_shares_in_bookings
        CHECK (booking_id IS NULL OR num_nonnulls(cpu_milli, memory_bytes) = 0) NOT VALID;

-- How many nodes of a booking have so many of its GPUs of a type, and the least share that these GPUs are of one: 0
-- where a node does not report what it has.
CREATE FUNCTION least_share_in_booking(named_booking text, wanted_gpus integer, wanted_type text,
                                       OUT nodes bigint, OUT cpu_milli bigint, OUT memory_bytes bigint)
LANGUAGE sql STABLE AS $$
    SELECT count(*), min(coalesce(able.cpu_milli, 0) * wanted_gpus / able.gpus),
           min(coalesce(able.memory_bytes, 0) * wanted_gpus / able.gpus)
    FROM (
        SELECT n.cpu_milli, n.memory_bytes, (SELECT count(*) FROM gpus w WHERE w.node_id = n.id) AS gpus
        FROM allocations a JOIN gpus g ON g.id = a.gpu_id JOIN nodes n ON n.id = g.node_id
        WHERE a.reservation_id = named_booking AND a.released_at IS NULL
          AND (wanted_type IS NULL OR g.gpu_type = wanted_type)
        GROUP BY n.id, g.gpu_type HAVING count(*) >= wanted_gpus
    ) AS able
$$;

-- Whether a job may ask for these amounts. Whatever names no booking may, here.
CREATE FUNCTION may_ask_in_booking(named_booking text, wanted_gpus integer, wanted_type text, asked_cpu bigint,
                                   asked_memory bigint)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN named_booking IS NULL OR num_nonnulls(asked_cpu, asked_memory) = 0 OR (
        SELECT coalesce(asked_cpu <= s.cpu_milli, asked_cpu IS NULL)
           AND coalesce(asked_memory <= s.memory_bytes, asked_memory IS NULL)
        FROM least_share_in_booking(named_booking, wanted_gpus, wanted_type) AS s);
END $$;

-- A planner of the version before writes a job's amounts into each of its rows.
CREATE FUNCTION count_with_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.cpu_milli := NULL;
    NEW.memory_bytes := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER allocations_counted_with_booking BEFORE INSERT ON allocations FOR EACH ROW
    WHEN (NEW.booking_id IS NOT NULL AND (NEW.cpu_milli IS NOT NULL OR NEW.memory_bytes IS NOT NULL))
    EXECUTE FUNCTION count_with_booking();

-- Refuse GPUs of a booking to a job that asks for more of their node than they are of it. When a node gets smaller,
-- what runs there goes on. One statement gives a job all its GPUs of a node, and sees them all.
CREATE FUNCTION keep_share_in_booking() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    small text;
BEGIN
    SELECT n.name INTO small
    FROM reservations r
    JOIN gpus g ON g.id = NEW.gpu_id
    JOIN nodes n ON n.id = g.node_id
    CROSS JOIN LATERAL (SELECT count(*) AS gpus FROM gpus WHERE node_id = n.id) AS whole
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT a.gpu_id) AS gpus FROM allocations a JOIN gpus o ON o.id = a.gpu_id
        WHERE a.reservation_id = r.id AND a.attempt = NEW.attempt AND a.released_at IS NULL AND o.node_id = n.id
    ) AS own
    WHERE r.id = NEW.reservation_id AND (r.cpu_milli IS NOT NULL OR r.memory_bytes IS NOT NULL)
      AND (r.cpu_milli * whole.gpus > coalesce(n.cpu_milli, 0) * own.gpus
           OR r.memory_bytes * whole.gpus > coalesce(n.memory_bytes, 0) * own.gpus);
    IF FOUND THEN
        RAISE EXCEPTION '% asks for more CPUs or memory of % than its GPUs of % are of it.', NEW.reservation_id, small,
            NEW.booking_id
            -- The name that planners of the version before take for "plan again".
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_shares', TABLE = 'allocations';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER allocations_share_of_booking AFTER INSERT OR UPDATE OF reservation_id, gpu_id, booking_id ON allocations
    FOR EACH ROW WHEN (NEW.booking_id IS NOT NULL AND NEW.released_at IS NULL) EXECUTE FUNCTION keep_share_in_booking();

-- What a job in a booking asks for stays as it is while it has GPUs, or a slot on them.
CREATE FUNCTION keep_amounts_in_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM allocations
               WHERE reservation_id = NEW.id AND booking_id IS NOT NULL AND released_at IS NULL) THEN
        RAISE EXCEPTION '% has GPUs of a booking, and can''t ask for other amounts.', NEW.id
            USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'allocations_share_of_booking', TABLE = 'reservations';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER reservations_share_of_booking AFTER UPDATE OF cpu_milli, memory_bytes ON reservations FOR EACH ROW
    WHEN ((NEW.cpu_milli, NEW.memory_bytes) IS DISTINCT FROM (OLD.cpu_milli, OLD.memory_bytes))
    EXECUTE FUNCTION keep_amounts_in_booking();
