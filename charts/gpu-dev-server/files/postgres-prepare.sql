-- What a primary has at each start: our roles with the Secret's passwords, our database, a slot for each standby. Where
-- another role than the application's is to own the database, it gets all that the application's has.
\set ON_ERROR_STOP on
\getenv user PG_USER
\getenv owner PG_OWNER
\getenv database PG_DATABASE
\getenv slots PG_SLOTS
\set password `cat "$PG_SECRETS/password"`
\set replication_password `cat "$PG_SECRETS/replication-password"`

SELECT format('CREATE ROLE %I LOGIN', :'user') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') \gexec
ALTER ROLE :"user" PASSWORD :'password';
SELECT :'owner' <> :'user' AS apart \gset
\if :apart
\set owner_password `cat "$PG_SECRETS/owner-password"`
SELECT format('CREATE ROLE %I LOGIN', :'owner') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'owner') \gexec
-- It sees the application's connections: a backup is restored when there are none.
SELECT format('GRANT %I TO %I', :'user', :'owner') WHERE NOT pg_has_role(:'owner', :'user', 'MEMBER') \gexec
ALTER ROLE :"owner" PASSWORD :'owner_password';
\endif
SELECT 'CREATE ROLE replicator LOGIN REPLICATION' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'replicator') \gexec
ALTER ROLE replicator PASSWORD :'replication_password';

SELECT format('CREATE DATABASE %I OWNER %I', :'database', :'owner')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec
REVOKE CONNECT, TEMPORARY ON DATABASE :"database" FROM PUBLIC;
SELECT pg_create_physical_replication_slot(slot) FROM unnest(string_to_array(trim(:'slots'), ' ')) slot
WHERE slot <> '' AND slot NOT IN (SELECT slot_name FROM pg_replication_slots) \g /dev/null
-- A slot that nobody uses any more would keep its WAL for ever.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_type = 'physical' AND slot_name LIKE 'postgres\_%' AND NOT active
    AND slot_name <> ALL (string_to_array(trim(:'slots'), ' ')) \g /dev/null

\if :apart
\connect :"database"
BEGIN;
REASSIGN OWNED BY :"user" TO :"owner";
GRANT CONNECT ON DATABASE :"database" TO :"user";
-- The migration says what the application may do. Until it has, the application may see how far it is.
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA public GRANT SELECT ON TABLES TO :"user";
SELECT format('SELECT let_application_work(%L)', :'user') WHERE to_regprocedure('let_application_work(text)') IS NOT NULL \gexec
COMMIT;
\endif
