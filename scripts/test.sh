#!/usr/bin/env bash
# test.sh: runs every test of the workspace and says at the end how many passed.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The tests start these programs.
cargo build --locked --workspace --bins
status=0
# Proofs print what they explored, and what could not be proven here: it is shown for tests that passed, too.
cargo test --locked --workspace --no-fail-fast -- --show-output 2>&1 | tee "$log" || status=$?

awk -v status="$status" '
  /^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
  END {
    if (status && !f) f = 1 # it did not compile, or a test program was killed
    printf "\n%d passed, %d failed", p, f
    if (s) printf ", %d skipped", s
    print ""
  }' "$log"
exit "$status"
