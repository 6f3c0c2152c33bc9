#!/bin/sh
# Collects sftp-server, scp and rsync of this Debian machine, with all that they need, below DIRECTORY (the image's build
# does it). They run in any image with `sh` for the same processor, whatever libraries it has: each is started by its own
# loader. Usage: collect.sh DIRECTORY
set -eu
target=${1:?"usage: collect.sh DIRECTORY"}
mkdir -p "$target/bin" "$target/lib" "$target/libexec"

copy_with_libraries() {
    ldd "$1" | sed -n 's/^.* => \(\/[^ ]*\) (.*$/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*$/\1/p' | while read -r library; do
        case $library in
            */ld-linux* | */ld-musl*) cp -L "$library" "$target/lib/ld.so" ;;
            *) cp -L "$library" "$target/lib/" ;;
        esac
    done
}

for program in /usr/lib/openssh/sftp-server /usr/bin/scp /usr/bin/rsync; do
    name=${program##*/}
    cp "$program" "$target/libexec/$name"
    copy_with_libraries "$program"
done
wrapper=$(find /usr/lib -name libnss_wrapper.so | head -n 1)
cp "$wrapper" "$target/lib/"
copy_with_libraries "$wrapper"

cat >"$target/bin/rsync" <<'SCRIPT'
#!/bin/sh
here=/opt/gpu-dev
exec "$here/lib/ld.so" --library-path "$here/lib" "$here/libexec/rsync" "$@"
SCRIPT

# These end unless their user has a name, which users of restricted pods often lack.
for name in sftp-server scp; do
    cat >"$target/bin/$name" <<SCRIPT
#!/bin/sh
here=/opt/gpu-dev name=$name
SCRIPT
    cat >>"$target/bin/$name" <<'SCRIPT'
names=/dev/shm/.gpu-dev-passwd-$(id -u)
if ! grep -q "^[^:]*:[^:]*:$(id -u):" /etc/passwd 2>/dev/null; then
    (umask 077; echo "user:x:$(id -u):$(id -g)::${HOME:-/}:/bin/sh" >"$names")
    export NSS_WRAPPER_PASSWD="$names" NSS_WRAPPER_GROUP=/dev/null
    exec "$here/lib/ld.so" --preload "$here/lib/libnss_wrapper.so" --library-path "$here/lib" \
        "$here/libexec/$name" "$@"
fi
exec "$here/lib/ld.so" --library-path "$here/lib" "$here/libexec/$name" "$@"
SCRIPT
done
chmod 755 "$target"/bin/* "$target"/libexec/* "$target/lib/ld.so"
