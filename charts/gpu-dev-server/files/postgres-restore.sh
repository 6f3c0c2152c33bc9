#!/bin/sh
# Puts a backup in the place of what is in the database, in one transaction: all of it or nothing. BACKUP_FILE names it
# (its path, or its name in BACKUPS); empty: the newest. Everything that works with the database has to be stopped.
set -eu
umask 077
. "$PG_CONFIG/passwords.sh"
export PGPASSFILE="$PG_RUN/pgpass"
password_file "$PGUSER" "$PG_SECRETS/password" "$PGPASSFILE"
file="${BACKUP_FILE:-}"
if [ -z "$file" ]; then
    file="$(find "$BACKUPS" -maxdepth 1 -name 'gpu-dev-*.dump' | sort | tail -n 1)"
fi
case "$file" in "" | /*) ;; *) file="$BACKUPS/$file" ;; esac
if [ ! -f "$file" ]; then
    echo "restore: there is no backup ${file:-in $BACKUPS}" >&2
    exit 1
fi
busy="$(psql -X -At -c "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'")"
if [ "$busy" != 0 ]; then
    echo "restore: $busy connections are open; helm upgrade with stopped=true first, and wait until their pods have gone" >&2
    exit 1
fi
# What was made since the backup goes as well: everything of ours is dropped in the transaction that brings the old back.
{
    echo "BEGIN;"
    echo "DROP SCHEMA IF EXISTS pgmq CASCADE;"
    echo "DROP EXTENSION IF EXISTS pgmq CASCADE;"
    echo "DROP SCHEMA public CASCADE;"
    echo "CREATE SCHEMA public;"
    pg_restore --no-owner --no-privileges --file - "$file" || echo "RESTORE BROKE OFF;"
    # Where PG_USER is not the owner, it may work with what came back as far as that says.
    echo "SELECT format('SELECT public.let_application_work(%L)', '$PG_USER') WHERE to_regprocedure('public.let_application_work(text)') IS NOT NULL \\gexec"
    echo "COMMIT;"
} | PGOPTIONS="-c client_min_messages=warning" psql -X -q -v ON_ERROR_STOP=1 -o /dev/null
echo "restored $file"
