#!/usr/bin/env bash
# revision.sh: prints the last commit that changed what the programs are made of, which is what they say of themselves: one
# that changed only words or tests gives the same programs. `unknown` outside of a repository; PERIMETER_REVISION wins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

revision=${PERIMETER_REVISION-}
[[ -n $revision ]] || revision=$(git log -1 --format=%h --abbrev=12 -- Cargo.toml Cargo.lock rust-toolchain.toml crates \
  ':!crates/*/tests' ':!crates/*/fuzz' ':!*/tests.rs' ':!*/tests/*' ':!*/proptest-regressions/*' 2>/dev/null) || true
echo "${revision:-unknown}"
