#!/usr/bin/env bash
# static.sh CRATE [CPU]: builds CRATE's program as its image contains it, static and small, and prints its path; all else
# goes to standard error. CPU is x86_64 or aarch64; without it, this machine's. The other one needs a C compiler (Debian:
# gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu).
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

# ring contains C and assembly, so it needs a C compiler for the target.
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

# A test that calls this script has the variables of its own package, which build scripts (ring's) would treat as a change.
unset "${!CARGO_PKG_@}" CARGO_MANIFEST_DIR CARGO_MANIFEST_PATH CARGO_MANIFEST_LINKS CARGO_CRATE_NAME CARGO_PRIMARY_PACKAGE

# No path of this machine gets into the program.
separator=$'\x1f'
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$sysroot=/rust"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$target=/target"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$PWD=/perimeter"
CARGO_ENCODED_RUSTFLAGS+="$separator-Clink-arg=-Wl,--no-eh-frame-hdr,-T,$PWD/scripts/no-unwind-tables.ld"
# A position-independent program relocates its own pointers before main. Their list has 24 bytes for each pointer without this
# option, and is a bitmap with it. musl reads the bitmap since 1.2.4. A linker that does not know the option prints a warning.
CARGO_ENCODED_RUSTFLAGS+="$separator-Clink-arg=-Wl,-z,pack-relative-relocs"
export CARGO_ENCODED_RUSTFLAGS
PERIMETER_REVISION=$(scripts/revision.sh)
export PERIMETER_REVISION
own=()
# A plugin is started for each call: the relocation of pointers at each start, and the pages that are copied for it, are a tenth
# of the processor time of VERSION. A controller starts once and listens on a port, so its load address stays random.
[[ $crate != egress-router-cni ]] || own+=(-Crelocation-model=static)
cargo rustc --profile dist --locked --target "$triple" -p "$crate" --bin "$program" -- "${own[@]}" >&2
echo "$target/$triple/dist/$program"
