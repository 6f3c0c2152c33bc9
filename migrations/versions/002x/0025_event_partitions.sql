-- The audit log by months: what is old goes by dropping a partition, which takes no time and leaves no dead rows.
-- It stays append-only: rows are refused to be changed or deleted in every partition, and partitions go by the function
-- below alone. Each partition has a primary key of its own on `id`, which one sequence gives out.

-- A lock that is not had at once would keep everybody waiting who comes later: it is tried for a moment at a time.
DO $$
BEGIN
    FOR try IN 1..600 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF try = 600 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;

DO $$
DECLARE
    until    timestamptz;
    next_id  bigint;
    indexes  text[];
    triggers text[];
    grants   text[];
    statement text;
    name     text;
BEGIN
    SELECT CAST(substring(pg_get_constraintdef(oid) FROM '''([^'']+)''') AS timestamptz) INTO STRICT until
    FROM pg_constraint WHERE conrelid = 'events'::regclass AND conname = 'events_before_partitions';
    SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END INTO next_id FROM events_id_seq;
    SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY indexrelid) INTO indexes
    FROM pg_index WHERE indrelid = 'events'::regclass AND NOT indisprimary;
    SELECT array_agg(pg_get_triggerdef(oid) ORDER BY tgname) INTO triggers
    FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal;
    SELECT array_agg(format('GRANT %s ON events TO %s', a.privilege_type,
                            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END))
    INTO grants
    FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = 'events'::regclass AND a.grantee <> c.relowner;

    -- What is there keeps its rows, its indexes and its statistics, and gets another name.
    FOR name IN SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = 'events'::regclass LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', name, replace(name, 'events', 'events_first'));
    END LOOP;
    FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal AND tgname <> 'events_no_truncate' LOOP
        EXECUTE format('DROP TRIGGER %I ON events', name);
    END LOOP;
    ALTER TABLE events ALTER COLUMN id DROP IDENTITY;
    ALTER TABLE events RENAME TO events_first;

    CREATE TABLE events (LIKE events_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE) PARTITION BY RANGE (at);
    ALTER TABLE events DROP CONSTRAINT events_before_partitions;
    EXECUTE format('ALTER TABLE events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', next_id);
    FOREACH statement IN ARRAY indexes || triggers || grants LOOP
        EXECUTE statement;
    END LOOP;
    IF EXISTS (SELECT FROM events_first) THEN
        EXECUTE format('ALTER TABLE events ATTACH PARTITION events_first FOR VALUES FROM (MINVALUE) TO (%L)', until);
        ALTER TABLE events_first DROP CONSTRAINT events_before_partitions;
    ELSE
        DROP TABLE events_first;
    END IF;
END $$;

-- A new partition is made aside and then attached: that takes no lock that would keep anybody from reading or writing but
-- for a moment on the default partition, which is empty.
CREATE FUNCTION make_event_partition(name text, bounds text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE,'
                   ' PRIMARY KEY (id))', name);
    EXECUTE format('CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON %I FOR EACH STATEMENT'
                   ' EXECUTE FUNCTION events_are_append_only()', name);
    EXECUTE format('ALTER TABLE events ATTACH PARTITION %I %s', name, bounds);
END $$;

-- What has a time for which there is no partition (a clock that went wrong) is kept all the same.
SELECT make_event_partition('events_default', 'DEFAULT');

-- Where partitions end; null: the default one.
CREATE VIEW event_partitions AS
SELECT c.oid, c.relname AS name,
       CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)') AS timestamptz) AS ends_at
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'events'::regclass;
COMMENT ON VIEW event_partitions IS 'The audit log''s partitions; ends_at is null for what fits into no month';

-- The current month and some to come; answers how many were made. A month of which the default partition has rows is left
-- to that.
CREATE FUNCTION make_event_partitions(months_ahead integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    made  integer := 0;
    month timestamptz := date_trunc('month', clock_timestamp(), 'UTC');
    next  timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('event_partitions', 0));
    FOR n IN 0..months_ahead LOOP
        next := date_trunc('month', month + interval '35 days', 'UTC');
        IF NOT EXISTS (SELECT FROM event_partitions WHERE ends_at >= next)
           AND NOT EXISTS (SELECT FROM events_default WHERE at >= month AND at < next) THEN
            PERFORM make_event_partition('events_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM'),
                                         format('FOR VALUES FROM (%L) TO (%L)', month, next));
            made := made + 1;
        END IF;
        month := next;
    END LOOP;
    RETURN made;
END $$;
SELECT make_event_partitions(3);

-- Drops the oldest partition that ended before a time, or gives the default one up when all in it is older; answers how
-- many rows that were (about: by the statistics of large ones), null where there is none. The lock is had at once or not
-- at all.
CREATE FUNCTION drop_event_partition(moment timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    chosen record;
    rows   bigint;
BEGIN
    -- First of all: what is being written into the default partition is not seen before it is committed.
    LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
    SELECT oid, name, ends_at INTO chosen FROM event_partitions WHERE ends_at <= moment ORDER BY ends_at LIMIT 1;
    IF NOT FOUND THEN
        SELECT oid, name, ends_at INTO chosen FROM event_partitions
        WHERE ends_at IS NULL AND EXISTS (SELECT FROM events_default)
          AND NOT EXISTS (SELECT FROM events_default WHERE at >= moment);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    SELECT CAST(greatest(reltuples, 0) AS bigint) INTO rows FROM pg_class WHERE oid = chosen.oid;
    IF rows < 100000 THEN
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %I LIMIT 100000) AS counted', chosen.name) INTO rows;
    END IF;
    EXECUTE format('ALTER TABLE events DETACH PARTITION %I', chosen.name);
    EXECUTE format('DROP TABLE %I', chosen.name);
    IF chosen.ends_at IS NULL THEN
        PERFORM make_event_partition('events_default', 'DEFAULT');
    END IF;
    RETURN rows;
END $$;
