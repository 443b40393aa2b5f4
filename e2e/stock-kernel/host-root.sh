#!/usr/bin/env bash
# host-root.sh COMMAND...: as run.sh, but with this machine's own root directory (virtiofs). COMMAND's writes stay in the memory
# of the emulated machine. Every program of the host, toolchains and build folders included, is available without copying.
# Needs root, because the virtiofsd of QEMU 7.2 does. MODULES: kernel modules to load first. The kernel loads by itself those
# that it can name, from its own package.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$tmp"' EXIT
/usr/lib/qemu/virtiofsd --socket-path="$tmp/socket" -o source=/,cache=always,sandbox=chroot \
  >"$tmp/log" 2>&1 & server=$!
until [ -S "$tmp/socket" ]; do
  kill -0 "$server" 2>/dev/null || { cat "$tmp/log" >&2; exit 1; }
  sleep 0.02
done
sed "s|MODULES|${MODULES-}|" >"$tmp/enter" <<'END'
set -e
modprobe -a virtiofs overlay MODULES
mkdir -p /lower /upper /host
mount -t virtiofs -o ro host /lower
mount -t tmpfs -o size=90% tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /host
for d in proc sys dev; do mount --rbind /$d /host/$d; done
mount -t tmpfs tmpfs /host/run
cd /host
mount --move . /
END
# shellcheck disable=SC2016 # They expand in the emulated machine.
{
  printf 'exec chroot . /bin/sh -c '\''cd "$1"; shift; exec "$@"'\'' sh'
  printf " '%s'" "$PWD" "${@//\'/\'\\\'\'}"
  echo
} >>"$tmp/enter"
"$here/run.sh" --add "$tmp/enter:/enter" --qemu "-object memory-backend-memfd,id=mem,size=${MEM:-512}M,share=on \
 -machine memory-backend=mem -chardev socket,id=fs,path=$tmp/socket -device vhost-user-fs-pci,chardev=fs,tag=host" \
  -- /bin/sh /enter
