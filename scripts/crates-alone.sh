#!/usr/bin/env bash
# crates-alone.sh: each crate must build with only what its own Cargo.toml names, and `common` with each of its features:
# in the workspace, features that one crate enables are enabled for all.
set -euo pipefail

check() { echo "cargo check $*"; cargo check --locked --quiet "$@"; }

check -p common
for feature in conditions netlink runtime cloud hcloud api routes; do check -p common --features "$feature"; done
for manifest in crates/*/Cargo.toml; do
  crate=$(basename "$(dirname "$manifest")")
  [[ $crate == common ]] || check -p "$crate"
done
check -p e2e
check -p bench --no-default-features
