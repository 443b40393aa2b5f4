#!/usr/bin/env bash
# Runs a command under a stock Debian kernel, in a QEMU that needs neither KVM nor root.
set -euo pipefail
shopt -s inherit_errexit

usage() {
  cat >&2 <<'END'
usage: run.sh [--with "PACKAGE..."] [--modules "MODULE..."] [--add FILE[:DEST]]...
              [--qemu "ARGUMENT..."] -- COMMAND...

COMMAND's output and exit status become run.sh's; nothing else is printed.
  --with     Debian packages to have inside, with their dependencies (busybox always is)
  --modules  modules to load first (the kernel loads by itself those it can name:
             link types, nft and iptables extensions, generic netlink families)
  --add      a file or directory of this machine, at the same place inside unless DEST says
             otherwise; shared libraries follow; so does COMMAND itself when it is a file
             outside /usr. The working directory, CARGO_* and RUST_* follow as well.
  --qemu     more arguments for QEMU

environment: PERIMETER_ASSETS (folder of what is downloaded), KERNEL (a linux-image package), CPUS=1,
MEM=512 (MiB), LIMIT=120 (s), ACCEL=tcg,thread=multi, CONSOLE (file to keep the kernel's messages in)
exit status: COMMAND's; 124 past the time limit; 125 when the machine died before COMMAND ended
END
  exit 2
}

with='' modules='' adds=() qemu=()
while [ $# -gt 0 ]; do
  case $1 in
    --with) with+=" $2"; shift 2 ;;
    --modules) modules+=" $2"; shift 2 ;;
    --add) adds+=("$2"); shift 2 ;;
    --qemu) read -ra more <<<"$2"; qemu+=("${more[@]}"); shift 2 ;;
    --) shift; break ;;
    *) usage ;;
  esac
done
[ $# -gt 0 ] || usage

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}/stock-kernel
# Dependencies that only matter to an installed system, and kmod, whose modprobe wants indexes
# that busybox's depmod does not make.
skip='^(kmod|perl|perl-base|debconf|debconf-2.0|cdebconf|init-system-helpers|usrmerge|lsb-base|sysvinit-utils|adduser|passwd|systemd|dbus|udev|openssl|install-info|dpkg|tar|media-types|tzdata|libc-bin|initramfs-tools|linux-base)$'
mkdir -p "$cache"/{debs,layers,sets}
tmp=$(mktemp -d)
vm=
trap '[ -z "$vm" ] || kill "$vm" 2>/dev/null || :; rm -rf "$tmp"' EXIT

# A root directory whose /bin, /sbin and /lib are /usr's.
skeleton() {
  mkdir -p "$1"/usr/{bin,sbin,lib,lib64}
  local d
  for d in bin sbin lib lib64; do ln -s "usr/$d" "$1/$d"; done
}

# A directory as a cpio archive owned by root. Archives simply concatenate: later ones win.
pack() {
  (cd "$1" && find . -mindepth 1 -print0 | LC_ALL=C sort -z | cpio -0 -o -H newc -R 0:0 --quiet)
}

unpack() {
  dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"
}

# The cached .deb files of these packages' candidate versions.
debs() {
  local file
  # Elsewhere than among the files: apt-get does not print those that are there.
  (cd "$tmp" && apt-get -qq --print-uris download "$@") | while read -r _ file _; do
    [ -e "$cache/debs/$file" ] ||
      (cd "$cache/debs" && apt-get -qq -o APT::Sandbox::User=root download "${file%%_*}" >&2)
    echo "$cache/debs/$file"
  done
}

# These packages and what they depend on: the first of each choice, nothing that matches $skip.
closure() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$@" | awk -v roots="$*" -v skip="$skip" '
    function need(p, list, n, i) {
      sub(/:.*/, "", p)
      if (p in seen) return
      seen[p]; print p
      n = split(deps[p], list, " ")
      for (i = 1; i <= n; i++) {
        if (list[i] ~ skip || list[i] ~ /^python3/ && roots !~ /python3/) continue
        need(list[i])
      }
    }
    /^[^ ]/ { package = $1; sub(/:.*/, "", package); other = virtual = 0; next }
    /^    / { if (virtual) deps[package] = deps[package] " " $1; virtual = 0; next }
    { virtual = !other && $2 ~ /^</
      if (!other && !virtual) deps[package] = deps[package] " " $2
      other = /^ \|/ }
    END { n = split(roots, list, " "); for (i = 1; i <= n; i++) need(list[i]) }'
}

# A .deb as a layer.
layer() {
  local out=$cache/layers/${1##*/}.cpio dir=$tmp/deb
  if [ ! -e "$out" ]; then
    skeleton "$dir"
    unpack "$1" "$dir"
    rm -rf "$dir"/usr/share/{doc,man,info,locale,lintian,bash-completion,zsh,bug,doc-base,initramfs-tools} \
      "$dir"/usr/lib/*/gconv
    pack "$dir" >"$out.new"
    rm -rf "$dir"
    mv "$out.new" "$out"
  fi
  echo "$out"
}

# Busybox under all its names, and the few files that programs expect.
base() {
  local key out dir=$tmp/base applet
  key=$(md5sum <"$here/init" | cut -c1-8)
  out=$cache/layers/base-$key-${1##*/}.cpio
  if [ ! -e "$out" ]; then
    skeleton "$dir"
    unpack "$1" "$dir"
    rm -rf "${dir:?}/usr/share"
    mkdir -p "$dir"/{dev,proc,sys,run,tmp,root,etc,new,var/{log,lib}}
    ln -s /run "$dir/var/run"
    "$dir/bin/busybox" --list-full | while read -r applet; do
      [ -e "$dir/$applet" ] || ln -s /usr/bin/busybox "$dir/$applet"
    done
    # Alternatives, which the packages' scripts would have chosen.
    for applet in {iptables,ip6tables}{,-save,-restore}; do
      ln -s xtables-nft-multi "$dir/usr/sbin/$applet"
    done
    ln -s ../lib/openvswitch-switch/ovs-vswitchd "$dir/usr/sbin/ovs-vswitchd"
    echo root:x:0:0:root:/root:/bin/sh >"$dir/etc/passwd"
    echo root:x:0: >"$dir/etc/group"
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$dir/etc/hosts"
    : >"$dir/etc/resolv.conf"
    install -m 755 "$here/init" "$dir/init"
    pack "$dir" >"$out.new"
    rm -rf "$dir"
    mv "$out.new" "$out"
  fi
  echo "$out"
}

# A kernel package as vmlinux, which boots sooner than vmlinuz, and a layer of those of its
# modules that have to do with networks, containers and virtual machines.
kernel() {
  local out=$cache/layers/${1##*/} dir=$tmp/kernel z version start
  if [ ! -e "$out.vmlinux" ]; then
    skeleton "$dir"
    unpack "$1" "$dir"
    z=$(echo "$dir"/boot/vmlinuz-*) version=${z##*/vmlinuz-}
    # The payload's place is in the boot protocol's header; its last four bytes are its size.
    number() { od -An -t "u$2" -j "$1" -N "$2" "$z" | tr -d ' '; }
    start=$((($(number 0x1f1 1) + 1) * 512 + $(number 0x248 4)))
    head -c $((start + $(number 0x24c 4) - 4)) "$z" | tail -c +$((start + 1)) >"$tmp/payload"
    case $(od -An -tx1 -N4 "$tmp/payload" | tr -d ' ') in
      02214c18) lz4 -dc <"$tmp/payload" ;;
      fd377a58) xz -dc <"$tmp/payload" ;;
      28b52ffd) zstd -dc <"$tmp/payload" ;;
      1f8b*) gzip -dc <"$tmp/payload" ;;
    esac >"$tmp/vmlinux"
    cd "$dir/lib/modules/$version/kernel"
    rm -rf drivers/net/{ethernet,wireless,wwan,hyperv,usb,phy,can}
    find . -name '*.ko*' | grep -Ev '^./(net|lib|crypto|arch/x86/crypto|fs/(overlayfs|fuse|9p|netfs|fscache|nls|squashfs|erofs)|drivers/(net|virtio|vhost|char|block/(loop|virtio_blk|nbd)))' | xargs rm
    cd "$dir"
    skeleton "$tmp/busybox"
    unpack "$2" "$tmp/busybox"
    "$tmp/busybox/bin/busybox" depmod -b "$dir" "$version"
    rm -rf boot usr/share
    pack "$dir" >"$out.cpio"
    rm -rf "$dir"
    mv "$tmp/vmlinux" "$out.vmlinux"
  fi
  printf '%s\n' "$out.vmlinux" "$out.cpio"
}

# vmlinux and the layers, for this kernel and these packages.
prepare() (
  local image=${KERNEL:-linux-image-cloud-amd64} actual busybox names files
  actual=$(apt-cache depends --important "$image" | awk '$2 ~ /^linux-image-/ && !n++ { print $2 }')
  # Not busybox-static: its shell runs its own ip rather than $PATH's.
  busybox=$(debs busybox)
  files=$(debs "${actual:-$image}")
  kernel "$files" "$busybox"
  base "$busybox"
  # shellcheck disable=SC2086
  names=$(closure libc6 $with)
  # shellcheck disable=SC2086
  files=$(debs $names)
  for file in $files; do layer "$file"; done
)

set=$cache/sets/$(echo "${KERNEL:-} $with $(cat "$here/run.sh" "$here/init" | md5sum)" | md5sum | cut -c1-12)
exec 9>"$cache/lock"
flock 9
[ "$set" -nt /var/lib/apt/lists ] || prepare >"$tmp/set"
[ ! -e "$tmp/set" ] || mv "$tmp/set" "$set"
flock -u 9
exec 9>&-
mapfile -t layers <"$set"

# The last layer: what this run adds.
skeleton "$tmp/run"
[[ $1 != */* || $1 == /usr/* || $1 == /bin/* || $1 == /sbin/* || ! -f $1 ]] || adds+=("$1")
for add in "${adds[@]}"; do
  from=${add%%:*} to=$(realpath -s "${add#*:}")
  mkdir -p "$tmp/run${to%/*}"
  cp -rLT "$from" "$tmp/run$to"
  for library in $(ldd "$from" 2>/dev/null | grep -o '/[^ ]*'); do
    mkdir -p "$tmp/run${library%/*}"
    cp -L "$library" "$tmp/run$library"
  done
done
quote() { printf " '%s'" "${@//\'/\'\\\'\'}"; }
{
  export -p | grep -E '^declare -x (CARGO|RUST)_?[A-Z_]*="[^$`\\]*"$' | sed 's/^declare -x/export/' || :
  printf 'mkdir -p%s; cd%s\n' "$(quote "$PWD")" "$(quote "$PWD")"
  [ -z "$modules" ] || echo "modprobe -a $modules"
  echo "exec$(quote "$@")"
} >"$tmp/run/command"
pack "$tmp/run" | cat "${layers[@]:1}" - >"$tmp/initrd"
rm -rf "$tmp/run"
[ -z "${SIZES:-}" ] || { du -bcL "${layers[@]:1}" "$tmp/initrd"; } >&2

# Two pipes for what COMMAND prints, a file for its exit status.
mkfifo "$tmp/out" "$tmp/err"
cat "$tmp/out" & readers=$!
cat "$tmp/err" >&2 & readers+=" $!"
ports=()
for port in out err status; do
  ports+=(-chardev "file,id=$port,path=$tmp/$port" -device "virtserialport,chardev=$port")
done
# no_timer_check: an emulated timer may be late on a busy machine; the kernel would give up at once.
timeout -k 5 "${LIMIT:-120}" qemu-system-x86_64 -accel "${ACCEL:-tcg,thread=multi}" -cpu max \
  -M q35 -bios qboot.rom -smp "${CPUS:-1}" -m "${MEM:-512}" -nodefaults -display none -no-reboot \
  -kernel "${layers[0]}" -initrd "$tmp/initrd" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests no_timer_check" \
  -serial "file:${CONSOLE:-$tmp/console}" -device virtio-serial-pci "${ports[@]}" "${qemu[@]}" \
  </dev/null & vm=$!
code=0
wait "$vm" || code=$?
vm=
# shellcheck disable=SC2086
wait $readers
status=$(cat "$tmp/status")
[ -z "$status" ] || exit "$status"
tail -n 20 "${CONSOLE:-$tmp/console}" >&2
if [ "$code" -eq 124 ]; then
  echo "run.sh: past the time limit" >&2
  exit 124
fi
echo "run.sh: the machine died (QEMU's exit status: $code)" >&2
exit 125
