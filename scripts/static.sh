#!/usr/bin/env bash
# static.sh CRATE [CPU]: builds CRATE's program as its image holds it, static and small, and prints its path; all else
# goes to standard error. CPU is x86_64 or aarch64; without it, this machine's. For the other one a C compiler is needed
# (Debian: gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'static: %s\n' "$*" >&2; exit 1; }

[[ $# -ge 1 && $# -le 2 && $1 != -* ]] || die "usage: static.sh CRATE [CPU]"
readonly crate=$1 cpu=${2:-$(uname -m)}
program=$(scripts/program.sh "$crate")
readonly program
readonly triple=$cpu-unknown-linux-musl target=${CARGO_TARGET_DIR:-$(scripts/target.sh)}

sysroot=$(rustc --print sysroot)
if [[ ! -d $sysroot/lib/rustlib/$triple ]]; then
  command -v rustup >/dev/null || die "Rust's target $triple is missing, and there is no rustup to add it"
  rustup target add "$triple" >&2
fi

# ring brings C and assembly, hence a C compiler that knows the target.
variable=CC_${triple//-/_}
if [[ -z ${!variable-} ]]; then
  if [[ $cpu == "$(uname -m)" ]]; then compiler=musl-gcc; else compiler=$cpu-linux-gnu-gcc; fi
  command -v "$compiler" >/dev/null || die "$compiler is missing (Debian: musl-tools, or gcc-${cpu//_/-}-linux-gnu); or set $variable"
  export "$variable=$compiler"
  if [[ $cpu != "$(uname -m)" ]]; then
    linker=CARGO_TARGET_${triple^^}_LINKER
    export "${linker//-/_}=$compiler"
  fi
fi

# A test that calls this has the variables of its own package, which build scripts (ring's) would take for a change.
unset "${!CARGO_PKG_@}" CARGO_MANIFEST_DIR CARGO_MANIFEST_PATH CARGO_MANIFEST_LINKS CARGO_CRATE_NAME CARGO_PRIMARY_PACKAGE

# No path of this machine gets into the program.
separator=$'\x1f'
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$sysroot=/rust"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$target=/target"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$PWD=/perimeter"
CARGO_ENCODED_RUSTFLAGS+="$separator-Clink-arg=-Wl,--no-eh-frame-hdr,-T,$PWD/scripts/no-unwind-tables.ld"
# A program that is loaded anywhere puts its own pointers right before main: a list of 24 bytes each without this, of bits with
# it. musl reads it since 1.2.4; a linker that does not know the option warns.
CARGO_ENCODED_RUSTFLAGS+="$separator-Clink-arg=-Wl,-z,pack-relative-relocs"
export CARGO_ENCODED_RUSTFLAGS
PERIMETER_REVISION=$(scripts/revision.sh)
export PERIMETER_REVISION
own=()
# A plugin is started for each call: pointers that are put right at each start, and the pages that are copied for that, are a
# tenth of a VERSION's processor time. A controller starts once and listens: its address stays random.
[[ $crate != egress-router-cni ]] || own+=(-Crelocation-model=static)
cargo rustc --profile dist --locked --target "$triple" -p "$crate" --bin "$program" -- "${own[@]}" >&2
echo "$target/$triple/dist/$program"
