#!/usr/bin/env bash
# images.sh IMAGE: makes a container image, perimeter.dev/IMAGE:VERSION, from a static release build. IMAGE is the name of a crate, or
# cgw-keeper: cgw-controller's program with keepalived, Open vSwitch's tools and iptables of Debian (keeper-root.sh). Leaves it
# in an engine's store and as an OCI archive in cargo's target folder, and prints the archive's path; all else goes to
# standard error. Does nothing when nothing has changed.
#
#   ENGINE=docker|podman|buildah   without it: the first of them that is installed and works
#   ARCH=amd64|arm64               without it: this machine's; static.sh names the compiler for the other one
#   SOURCE_DATE_EPOCH              the image's creation time; without it: the time of the commit
#
# The same commit, compiler, engine and CA bundle give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
# The size of the download in bytes, with compressed layers: a goal of the project. The larger one has Debian's programs.
readonly LARGEST=12000000 LARGEST_KEEPER=24000000

say() { printf 'images: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[[ $# == 1 && $1 != -* ]] || die "usage: images.sh IMAGE"
readonly name=$1
crate=$name
[[ $name != cgw-keeper ]] || crate=cgw-controller
readonly crate
program=$(scripts/program.sh "$crate")
readonly program
grep -q "^FROM base AS $name\$" images/Containerfile || die "images/Containerfile has no stage for $name"
[[ -r $CA_BUNDLE ]] || die "no CA bundle at $CA_BUNDLE (Debian: ca-certificates)"

machine=$(uname -m)
case $machine in
  x86_64) native=amd64 ;;
  aarch64) native=arm64 ;;
  *) native= ;;
esac
arch=${ARCH:-$native}
case $arch in
  amd64) cpu=x86_64 ;;
  arm64) cpu=aarch64 ;;
  *) die "no image for ${arch:-$machine}: there are amd64 and arm64" ;;
esac
readonly arch cpu

id=$(cargo pkgid --locked -p "$crate")
readonly version=${id##*[@#]} target=${CARGO_TARGET_DIR:-$(scripts/target.sh)}
description=$(sed -n 's/^description = "\(.*\)"$/\1/p' "crates/$crate/Cargo.toml")
revision=$(git rev-parse HEAD 2>/dev/null) || revision=${PERIMETER_REVISION:-unknown}
[[ -z $(git status --porcelain --untracked-files=no 2>/dev/null) ]] || revision+=-dirty
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
readonly description revision epoch image=perimeter.dev/$name:$version

say "$name $version for linux/$arch"
static=$(scripts/static.sh "$crate" "$cpu")

# The context: all files of the image.
suffix=
[[ $arch == "$native" ]] || suffix=-$arch
readonly work=$target/images suffix
readonly archive=$work/$name$suffix.tar context=$work/$name$suffix.context stamp=$work/$name$suffix.stamp
mkdir -p "$work"
exec {lock}>"$work/.lock"
flock "$lock"
rm -rf "$context"
mkdir -p "$context/$arch"
install -m 755 "$static" "$context/$arch/$program"
install -m 644 LICENSE "$CA_BUNDLE" "$context"
mkdir "$context/links"
[[ $crate != apinetlet ]] || ln -s apinetlet "$context/links/manager"
mkdir "$context/root"
if [[ $name == cgw-keeper ]]; then
  debian=$(scripts/keeper-root.sh "$arch")
  cp -R --no-dereference --preserve=mode,links "$debian/." "$context/root"
fi
# Some engines keep the files' own time.
find "$context" -exec touch --no-dereference --date="@$epoch" {} +
unpacked=$(find "$context" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')

build_arguments=(--platform "linux/$arch" --file images/Containerfile --tag "$image"
  --build-arg "CRATE=$name" --build-arg "BIN=$program" --build-arg "TARGETARCH=$arch" --build-arg "DESCRIPTION=$description"
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision")

# *_works: whether the engine responds, which a command line without its daemon does not. *_has: whether it has the image.
docker_works() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
podman_works() { podman info >/dev/null 2>&1; }
buildah_works() { buildah info >/dev/null 2>&1; }
docker_has() { docker image inspect "$image" >/dev/null 2>&1; }
podman_has() { podman image exists "$image" >/dev/null 2>&1; }
buildah_has() { buildah inspect --type image "$image" >/dev/null 2>&1; }

# Each engine builds the image into its store, and writes an OCI layout to a folder.
docker_build() { # FOLDER
  # A provenance attestation would contain the time and the place of the build.
  SOURCE_DATE_EPOCH=$epoch BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build "${build_arguments[@]}" "$context" &&
    docker save "$image" | tar -x -C "$1" &&
    { [[ -f $1/index.json ]] || { say "docker save wrote no OCI layout: Docker 25 or newer does"; return 1; }; }
}
podman_build() { # FOLDER
  podman build --timestamp "$epoch" "${build_arguments[@]}" "$context" && podman push --quiet "$image" "oci:$1:$image"
}
buildah_build() { # FOLDER
  buildah build --isolation chroot --timestamp "$epoch" "${build_arguments[@]}" "$context" &&
    buildah push --quiet "$image" "oci:$1:$image"
}

key() { # ENGINE: a hash of everything that the archive depends on
  { find "$context" -type f -exec sha256sum {} + | sort && find "$context" -type l -printf '%P %l\n' | sort && cat images/Containerfile scripts/images.sh &&
    printf '%s\n' "$1" "$epoch" "${build_arguments[@]}"; } | sha256sum
}

engines=("${ENGINE:-}")
[[ -n ${ENGINE-} ]] || engines=(docker podman buildah)
made='' tried=()
for engine in "${engines[@]}"; do
  [[ $engine =~ ^(docker|podman|buildah)$ ]] || die "ENGINE=$engine: there are docker, podman and buildah"
  if ! command -v "$engine" >/dev/null; then tried+=("$engine is not there"); continue; fi
  if ! "${engine}_works"; then tried+=("$engine is there but does not work"); continue; fi
  if [[ -f $archive && -f $stamp && $(<"$stamp") == "$(key "$engine")" ]] && "${engine}_has"; then
    say "$archive is up to date"
    made=$engine
    break
  fi
  layout=$(mktemp -d "$work/$name.layout.XXXXXX")
  trap 'rm -rf "$layout"' EXIT
  if ! "${engine}_build" "$layout" >&2; then tried+=("$engine failed"); rm -rf "$layout"; continue; fi
  # Sorted names, and no time or owner of this machine, so that the archive has the same bytes too.
  (cd "$layout" && tar --create --sort=name --format=ustar --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --file "$archive.new" -- *)
  rm -rf "$layout"
  mv "$archive.new" "$archive"
  key "$engine" >"$stamp"
  made=$engine
  break
done
[[ -n $made ]] || die "no image was built: $(printf '%s; ' "${tried[@]}")one of docker, podman and buildah is needed"

packed=$(stat -c %s "$archive")
say "$image in $made's store: $(awk -v p="$packed" -v u="$unpacked" 'BEGIN { printf "%.2f MB to download, %.2f MB unpacked", p / 1e6, u / 1e6 }')"
largest=$LARGEST
[[ $name != cgw-keeper ]] || largest=$LARGEST_KEEPER
((packed <= largest)) || die "$archive is larger than the $largest bytes that are allowed"
echo "$archive"
