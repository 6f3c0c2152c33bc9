-- The role that migrates owns everything. Another role may work with it: it reads and writes rows, and changes no table.

-- What the application changes about tables while it works, months of the audit log, goes by two functions with the owner's
-- rights. They reach no further than the application needs: months that are over, and a few that are to come.
ALTER FUNCTION make_event_partitions(integer) RENAME TO add_event_partitions;
ALTER FUNCTION drop_event_partition(timestamptz) RENAME TO drop_oldest_event_partition;

CREATE FUNCTION make_event_partitions(months_ahead integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 24 THEN
        RAISE EXCEPTION 'partitions of the audit log are made for at most 24 months ahead, not %', months_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN add_event_partitions(months_ahead);
END $$;

CREATE FUNCTION drop_event_partition(moment timestamptz) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF moment > clock_timestamp() THEN
        RAISE EXCEPTION 'no partition of the audit log is dropped before its month is over; % is to come', moment
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN drop_oldest_event_partition(moment);
END $$;

-- Gives a role all that the application needs and takes the rest; nothing where it is the owner itself. To be called after
-- each migration, by the owner or by a superuser.
CREATE FUNCTION let_application_work(application text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    home  regnamespace;
    owner regrole;
    item  record;
BEGIN
    SELECT relnamespace, relowner INTO STRICT home, owner FROM pg_class WHERE oid = 'events'::regclass;
    IF quote_ident(application) = CAST(owner AS text) THEN
        RETURN;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %s, pgmq TO %I', home, application);
    -- The partitions that the functions above make.
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA %s GRANT SELECT ON TABLES TO %I', owner, home, application);
    FOR item IN
        SELECT CAST(CAST(c.oid AS regclass) AS text) AS name, CASE WHEN c.relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
               CASE WHEN c.relkind = 'S' THEN 'USAGE, SELECT'
                    WHEN c.relkind = 'v' OR c.relname IN ('alembic_version', 'pgmq_origin', 'meta') THEN 'SELECT'
                    WHEN c.oid = 'events'::regclass THEN 'SELECT, INSERT'
                    WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) THEN 'SELECT'
                    ELSE 'SELECT, INSERT, UPDATE, DELETE' END AS rights
        FROM pg_class c
        WHERE c.relowner = owner AND c.relnamespace IN (home, 'pgmq'::regnamespace) AND c.relkind IN ('r', 'p', 'v', 'S')
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %I', item.kind, item.name, application);
        EXECUTE format('GRANT %s ON %s %s TO %I', item.rights, item.kind, item.name, application);
    END LOOP;
    -- A backup that is restored has no privileges.
    REVOKE EXECUTE ON FUNCTION make_event_partition(text, text), add_event_partitions(integer),
        drop_oldest_event_partition(timestamptz), make_event_partitions(integer), drop_event_partition(timestamptz),
        let_application_work(text) FROM PUBLIC;
    EXECUTE format('GRANT EXECUTE ON FUNCTION make_event_partitions(integer), drop_event_partition(timestamptz) TO %I', application);
END $$;

REVOKE EXECUTE ON FUNCTION make_event_partition(text, text), add_event_partitions(integer),
    drop_oldest_event_partition(timestamptz), make_event_partitions(integer), drop_event_partition(timestamptz),
    let_application_work(text) FROM PUBLIC;

-- Nothing that a caller puts into its search_path is what they work with.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['make_event_partitions(integer)', 'drop_event_partition(timestamptz)', 'let_application_work(text)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', name, current_schema());
    END LOOP;
END $$;
