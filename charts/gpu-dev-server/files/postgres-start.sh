#!/bin/sh
# Starts this pod's PostgreSQL as what it has to be now, PG_ROLE=primary or standby, whatever it was before:
#   primary  no data: made, where PG_MAY_CREATE=yes and nothing says that there was a database; a standby's data: promoted
#   standby  no data: copied from the primary; a primary's data: moved aside and copied anew
# Needs PGDATA, PGPORT, PG_NAME, PG_PRIMARY_HOST, PG_STANDBYS, PG_USER, PG_DATABASE, and the folders PG_CONFIG (of
# postgresql.conf, pg_hba.conf, prepare.sql, begun), PG_SECRETS (password, replication-password, tls.crt, tls.key) and PG_RUN (ours alone).
set -eu
umask 077

say() { printf 'start: %s\n' "$*" >&2; }
stop_here() { say "$*"; exit 1; }

slot_of() { echo "$1" | tr -- - _; }

# Left by a former container of this pod; the number of its process may be that of another one here.
rm -f "$PG_RUN"/.s.PGSQL.*

. "$PG_CONFIG/passwords.sh"
password_file replicator "$PG_SECRETS/replication-password" "$PG_RUN/pgpass"

conninfo="host=$PG_PRIMARY_HOST port=${PG_PRIMARY_PORT:-5432} user=replicator passfile=$PG_RUN/pgpass connect_timeout=10 keepalives_idle=10 keepalives_interval=5 keepalives_count=3 sslmode=$PGSSLMODE"

options="-c config_file=$PG_CONFIG/postgresql.conf -c hba_file=$PG_CONFIG/pg_hba.conf -c unix_socket_directories=$PG_RUN"
if [ "$PGSSLMODE" != disable ]; then
    # The server takes no key that its group can read, as it can in a volume of Kubernetes.
    install -m 0600 "$PG_SECRETS/tls.key" "$PG_RUN/tls.key"
    options="$options -c ssl_cert_file=$PG_SECRETS/tls.crt -c ssl_key_file=$PG_RUN/tls.key"
    conninfo="$conninfo sslrootcert=$PGSSLROOTCERT"
fi

# A server for ourselves alone: nobody reaches it over the network, and it waits for no standby.
alone() {
    if ! pg_ctl -D "$PGDATA" -s -w -t 86400 -l "$PG_RUN/alone.log" \
        -o "$options -c listen_addresses='' -c synchronous_standby_names='' -c primary_conninfo=''" start; then
        cat "$PG_RUN/alone.log" >&2
        stop_here "the server does not start"
    fi
}

# An empty volume may be a lost one. Another database beside the replica's, or beside what was moved aside, would be given
# out as the whole: what may know of the old one is asked first. PG_ASK_S: the replica may just be starting.
find_older_database() {
    begun="$(cat "$PG_CONFIG/begun")"
    [ "$begun" != anew ] || return 0
    for aside in "$PGDATA".was-primary-*; do
        [ ! -e "$aside" ] || stop_empty "$aside has the data of a former primary"
    done
    [ "$begun" != yes ] || stop_empty "this release had a database"
    [ -n "$PG_STANDBY_HOST" ] || return 0
    until=$(($(date +%s) + PG_ASK_S))
    while :; do
        code=0
        pg_isready -q -t 3 -h "$PG_STANDBY_HOST" -p "${PG_STANDBY_PORT:-5432}" -U "$PG_USER" -d "$PG_DATABASE" || code=$?
        # 1: it is starting. A replica without data is not: it waits for us to have some.
        [ "$code" -gt 1 ] || stop_empty "the replica has data"
        [ "$(date +%s)" -lt "$until" ] || return 0
        sleep 1
    done
}

stop_empty() {
    stop_here "this volume is empty, but $1. No empty database is made in its place." \
        "To go on with the replica's data, set postgres.primaryIs=postgres-replica." \
        "To restore a backup, or to begin with nothing, set postgres.begin=anew. See docs/guides/operating.md, 'An empty volume'."
}

create() {
    find_older_database
    rm -rf "$PGDATA.new"
    initdb --pgdata "$PGDATA.new" --username postgres --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C --data-checksums --no-instructions >&2
    mv "$PGDATA.new" "$PGDATA"
}

copy() {
    until pg_isready -q -h "$PG_PRIMARY_HOST" -p "${PG_PRIMARY_PORT:-5432}" -U "$PG_USER" -d "$PG_DATABASE"; do
        say "waiting for the primary at $PG_PRIMARY_HOST"
        sleep 2
    done
    rm -rf "$PGDATA.new"
    # Under another name: what a copy that is not finished has must not count as being on a standby.
    pg_basebackup --pgdata "$PGDATA.new" --dbname "$conninfo application_name=$PG_NAME-copy" --wal-method=stream --checkpoint=fast \
        --slot "$(slot_of "$PG_NAME")" >&2
    touch "$PGDATA.new/standby.signal"
    mv "$PGDATA.new" "$PGDATA"
}

# Volumes may be given to our group with all rights; the server insists on being alone.
[ ! -d "$PGDATA" ] || chmod 0700 "$PGDATA"

case "$PG_ROLE" in
primary)
    if [ ! -s "$PGDATA/PG_VERSION" ]; then
        [ "$PG_MAY_CREATE" = yes ] ||
            stop_here "there is no data here and this is not where it begins: bring the data back, or set postgres.primaryIs"
        create
    fi
    alone
    if [ -f "$PGDATA/standby.signal" ]; then
        say "promoting what was a standby"
        pg_ctl -D "$PGDATA" -s -w -t 86400 promote
    fi
    export PG_SLOTS=""
    for standby in $PG_STANDBYS; do PG_SLOTS="$PG_SLOTS $(slot_of "$standby")"; done
    psql -X -q -h "$PG_RUN" -U postgres -d postgres -f "$PG_CONFIG/prepare.sql" >&2
    pg_ctl -D "$PGDATA" -s -w -m fast stop
    ;;
standby)
    if [ -s "$PGDATA/PG_VERSION" ] && [ ! -f "$PGDATA/standby.signal" ]; then
        aside="$PGDATA.was-primary-$(date -u +%Y%m%dT%H%M%SZ)"
        say "this was a primary: its data are kept in $aside; remove them when nothing is missing"
        mv "$PGDATA" "$aside"
    fi
    [ -s "$PGDATA/PG_VERSION" ] || copy
    ;;
*) stop_here "PG_ROLE is primary or standby, not $PG_ROLE" ;;
esac

# shellcheck disable=SC2086 # several options in one
postgres -D "$PGDATA" $options -c primary_conninfo="$conninfo application_name=$PG_NAME" -c primary_slot_name="$(slot_of "$PG_NAME")" &
server=$!
# SIGTERM would have the server wait until everybody has gone.
trap 'kill -INT "$server"' TERM INT
code=0
while kill -0 "$server" 2>/dev/null; do
    if wait "$server"; then code=0; else code=$?; fi
done
exit "$code"
