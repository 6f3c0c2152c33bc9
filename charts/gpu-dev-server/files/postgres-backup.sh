#!/bin/sh
# Writes one backup to BACKUPS, whole or not at all, and removes all but the newest KEEP. PGHOST and so on say of what.
set -eu
umask 077
until="$(($(date +%s) + ${PG_WAIT_S:-900}))"
until pg_isready -q -t 5 || [ "$(date +%s)" -ge "$until" ]; do
    sleep 2
done
. "$PG_CONFIG/passwords.sh"
export PGPASSFILE="$PG_RUN/pgpass"
password_file "$PGUSER" "$PG_SECRETS/password" "$PGPASSFILE"
fresh="$BACKUPS/.fresh"
file="$BACKUPS/gpu-dev-$(date -u +%Y%m%dT%H%M%SZ).dump"
pg_dump --format=custom --no-owner --no-privileges --lock-wait-timeout=60s --file "$fresh"
pg_restore --list "$fresh" >/dev/null
sync
mv "$fresh" "$file"
echo "$file: $(wc -c <"$file") bytes"
find "$BACKUPS" -maxdepth 1 -name 'gpu-dev-*.dump' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do
    rm -- "$old"
    echo "$old: removed"
done
