#!/usr/bin/env bash
# keeper-root.sh CPU [--pin]: makes the files of the image cgw-keeper beside the program cgw, from Debian packages, and prints
# their folder: keepalived, ovs-vsctl, ovs-ofctl, iptables in both variants, conntrack, and the libraries that they load. CPU is amd64
# or arm64. Needs Debian's archive, but no registry, no root and no container engine.
#
#   images/keeper-packages   the packages with version and SHA-256 for each CPU; a package with another hash is refused
#   --pin                    writes that file for CPU, with the versions that the archive has now
#   DEBIAN_MIRROR            without it: http://deb.debian.org
#
# The folder is in ${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-~/.cache}/perimeter} and named after all that it is made from. An existing one
# is used without the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PINS=images/keeper-packages SUITE=bookworm KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org}
# Programs, by the path that they have in their package.
readonly PROGRAMS=(usr/sbin/keepalived usr/bin/ovs-vsctl usr/bin/ovs-ofctl usr/sbin/xtables-nft-multi usr/sbin/xtables-legacy-multi
  usr/sbin/conntrack)
# A multi-call program takes its command from its name. The names without a variant are iptables-nft, as in Debian.
readonly IPTABLES=(iptables iptables-save iptables-restore)

die() { printf 'keeper-root: %s\n' "$*" >&2; exit 1; }

case ${1-} in
  amd64) triplet=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 ;;
  arm64) triplet=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1 ;;
  *) die "usage: keeper-root.sh amd64|arm64 [--pin]" ;;
esac
readonly arch=$1 triplet loader pin=${2-}
[[ -z $pin || $pin == --pin ]] || die "usage: keeper-root.sh amd64|arm64 [--pin]"
for tool in apt-get apt-cache dpkg-deb readelf; do
  command -v "$tool" >/dev/null || die "$tool is missing (Debian: apt, dpkg, binutils)"
done
[[ -r $KEYRING ]] || die "$KEYRING is missing (Debian: debian-archive-keyring)"

key=$(cat "$PINS" scripts/keeper-root.sh | sha256sum | cut -c1-12)
readonly assets=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}
readonly folder=$assets/keeper-root-$arch-$key
if [[ -z $pin && -f $folder/.complete ]]; then
  echo "$folder/root"
  exit
fi

mkdir -p "$assets"
work=$(mktemp -d "$assets/keeper-root-$arch.XXXXXX")
readonly work
trap 'rm -rf "$work"' EXIT

# An apt of its own: whatever release this machine has, with whatever sources.
mkdir -p "$work"/apt/{lists/partial,archives/partial,etc} "$work/debs" "$work/all"
: >"$work/apt/status"
{
  echo "deb [signed-by=$KEYRING] $MIRROR/debian $SUITE main"
  echo "deb [signed-by=$KEYRING] $MIRROR/debian $SUITE-updates main"
  echo "deb [signed-by=$KEYRING] $MIRROR/debian-security $SUITE-security main"
} >"$work/apt/sources.list"
readonly options=(-o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::State=$work/apt" -o "Dir::State::Lists=$work/apt/lists"
  -o "Dir::State::status=$work/apt/status" -o "Dir::Cache=$work/apt" -o "Dir::Etc::sourcelist=$work/apt/sources.list"
  -o "Dir::Etc::sourceparts=$work/apt/etc" -o "Dir::Etc::preferencesparts=$work/apt/etc" -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${options[@]}" -qq update >&2 || die "no package lists from $MIRROR"

names=()
while read -r name _; do
  [[ -z $name || $name == \#* ]] || names+=("$name")
done <"$PINS"

if [[ -n $pin ]]; then
  declare -A versions=() hashes=()
  while read -r name version hash; do
    versions[$name]=$version hashes[$name]=$hash
  done < <(apt-cache "${options[@]}" show --no-all-versions "${names[@]}" |
    awk '/^Package: / { p = $2 } /^Version: / { v = $2 } /^SHA256: / { print p, v, $2 }')
  {
    sed -n '/^#/p' "$PINS"
    while read -r name version one other; do
      [[ -n $name && $name != \#* ]] || continue
      [[ -n ${versions[$name]-} ]] || die "the archive has no $name for $arch"
      if [[ $arch == amd64 ]]; then one=${hashes[$name]}; else other=${hashes[$name]}; fi
      printf '%s %s %s %s\n' "$name" "${versions[$name]}" "${one:--}" "${other:--}"
    done <"$PINS"
  } >"$work/pins"
  cat "$work/pins" >"$PINS"
  exit
fi

selected=()
declare -A hashes=()
while read -r name version one other; do
  [[ -n $name && $name != \#* ]] || continue
  hash=$one
  [[ $arch == amd64 ]] || hash=$other
  [[ $hash =~ ^[0-9a-f]{64}$ ]] || die "$PINS has no hash of $name for $arch; write one with --pin"
  selected+=("$name=$version")
  hashes[$name]=$hash
done <"$PINS"
(cd "$work/debs" && apt-get "${options[@]}" -qq download "${selected[@]}" >&2) ||
  die "the archive has other versions than $PINS: scripts/keeper-root.sh $arch --pin writes the present ones"
for package in "$work"/debs/*.deb; do
  name=$(dpkg-deb --field "$package" Package)
  found=$(sha256sum "$package" | cut -d' ' -f1)
  [[ $found == "${hashes[$name]-}" ]] || die "$name for $arch has the hash $found, and $PINS has ${hashes[$name]-none}"
done

# All files of the packages, with the merged /usr of Debian.
for name in bin sbin lib lib64; do
  mkdir -p "$work/all/usr/$name"
  ln -s "usr/$name" "$work/all/$name"
done
for package in "$work"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$work/all"
done

# The image: the programs, the libraries that they need, iptables' extensions, licences, and what scanners read.
readonly root=$work/root
mkdir -p "$root"/{usr/{bin,sbin,lib,lib64},etc,run,tmp,var/lib/dpkg/status.d}
for name in bin sbin lib lib64; do
  ln -s "usr/$name" "$root/$name"
done
copied=()
copy() { # PATH below the folder of all files
  local path=$1
  [[ ! -e $root/$path ]] || return 0
  [[ -e $work/all/$path ]] || die "no package of $PINS has /$path"
  mkdir -p "$root/$(dirname "$path")"
  cp --dereference "$work/all/$path" "$root/$path"
  copied+=("$path")
}
for program in "${PROGRAMS[@]}" "$loader"; do copy "$program"; done
for extension in "$work/all/usr/lib/$triplet/xtables"/*.so; do copy "${extension#"$work/all/"}"; done
for ((at = 0; at < ${#copied[@]}; at++)); do
  while read -r library; do
    [[ ! -e $root/usr/lib/$triplet/$library ]] || continue
    for place in "usr/lib/$triplet" "lib/$triplet" usr/lib; do
      [[ ! -e $work/all/$place/$library ]] || { copy "$place/$library"; continue 2; }
    done
    [[ $library == "${loader##*/}" ]] || die "no package of $PINS has $library, which /${copied[at]} needs"
  done < <(readelf --wide --dynamic "$work/all/${copied[at]}" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
done
for name in "${IPTABLES[@]}"; do
  ln -s xtables-nft-multi "$root/usr/sbin/$name"
  ln -s xtables-nft-multi "$root/usr/sbin/${name/iptables/iptables-nft}"
  ln -s xtables-legacy-multi "$root/usr/sbin/${name/iptables/iptables-legacy}"
done
for package in "$work"/debs/*.deb; do
  name=$(dpkg-deb --field "$package" Package)
  dpkg-deb --field "$package" >"$root/var/lib/dpkg/status.d/$name"
  if [[ -e $work/all/usr/share/doc/$name/copyright ]]; then copy "usr/share/doc/$name/copyright"; fi
done
printf 'root:x:0:0:root:/:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
grep -E '^(ID|VERSION_ID|VERSION_CODENAME|NAME)=' >"$root/etc/os-release" <<OS
NAME="Debian GNU/Linux"
ID=debian
VERSION_ID="12"
VERSION_CODENAME=$SUITE
OS
find "$root" -type d -exec chmod 755 {} +
chmod 1777 "$root/tmp"

: >"$work/.complete"
rm -rf "$work/apt" "$work/debs" "$work/all" "$folder"
mv "$work" "$folder"
trap - EXIT
echo "$folder/root"
