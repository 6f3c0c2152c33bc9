# Sourced by the scripts beside it. password_file USER SECRET FILE: FILE, which only we can read, has USER's password for
# PGPASSFILE. So it is in no environment and no command line.
password_file() {
    # Colons and backslashes mean something there.
    password="$(sed -e 's/\\/\\\\/g' -e 's/:/\\:/g' "$2")"
    if [ -z "$password" ]; then
        echo "$2 is empty" >&2
        exit 1
    fi
    rm -f "$3"
    (umask 077 && printf '*:*:*:%s:%s\n' "$1" "$password" >"$3")
    unset password
}
