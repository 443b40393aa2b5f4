#!/usr/bin/env bash
# cargo-tool.sh NAME VERSION: builds a cargo tool once, outside of the checkout, and prints its path.
set -euo pipefail

name=$1 version=$2
root=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}/$name-$version
if [[ ! -x $root/bin/$name ]]; then
  echo "building $name $version (once, some minutes)" >&2
  # The tool runs for a second at a time, so its own release profile would cost more time to compile than it saves.
  export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
  cargo install --quiet --locked "$name" --version "$version" --root "$root" >&2
fi
echo "$root/bin/$name"
