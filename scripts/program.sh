#!/usr/bin/env bash
# program.sh CRATE: prints the name of CRATE's program: the name of its first [[bin]], otherwise the crate's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

manifest=crates/$1/Cargo.toml
[[ -f $manifest ]] || { echo "program: there is no crate $1" >&2; exit 1; }
name=$(awk -F '"' '/^\[/ { bin = /^\[\[bin\]\]/ } bin && /^name *=/ { print $2; exit }' "$manifest")
echo "${name:-$1}"
