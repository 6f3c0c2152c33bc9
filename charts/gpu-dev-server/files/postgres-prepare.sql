-- What a primary has at each start: our roles with the Secret's passwords, our database, a slot for each standby.
\set ON_ERROR_STOP on
\getenv user PG_USER
\getenv database PG_DATABASE
\getenv slots PG_SLOTS
\set password `cat "$PG_SECRETS/password"`
\set replication_password `cat "$PG_SECRETS/replication-password"`

SELECT format('CREATE ROLE %I LOGIN', :'user') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') \gexec
ALTER ROLE :"user" PASSWORD :'password';
SELECT 'CREATE ROLE replicator LOGIN REPLICATION' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'replicator') \gexec
ALTER ROLE replicator PASSWORD :'replication_password';

SELECT format('CREATE DATABASE %I OWNER %I', :'database', :'user')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec
REVOKE CONNECT, TEMPORARY ON DATABASE :"database" FROM PUBLIC;
SELECT pg_create_physical_replication_slot(slot) FROM unnest(string_to_array(trim(:'slots'), ' ')) slot
WHERE slot <> '' AND slot NOT IN (SELECT slot_name FROM pg_replication_slots) \g /dev/null
-- A slot that nobody uses any more would keep its WAL for ever.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE slot_type = 'physical' AND slot_name LIKE 'postgres\_%' AND NOT active
    AND slot_name <> ALL (string_to_array(trim(:'slots'), ' ')) \g /dev/null
