#!/usr/bin/env bash
# revision.sh: prints the last commit that changed the sources of the programs, which the programs report as their revision. A
# commit that changed only documentation or tests gives the same programs. Outside of a repository it prints `unknown`.
# PERIMETER_REVISION has precedence.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

revision=${PERIMETER_REVISION-}
[[ -n $revision ]] || revision=$(git log -1 --format=%h --abbrev=12 -- Cargo.toml Cargo.lock rust-toolchain.toml crates \
  ':!crates/*/tests' ':!crates/*/fuzz' ':!*/tests.rs' ':!*/tests/*' ':!*/proptest-regressions/*' 2>/dev/null) || true
echo "${revision:-unknown}"
