#!/usr/bin/env bash
# test.sh STEP...: runs these steps, each to its end whatever became of the one before, and prints the sum of their tests in the
# last line. Fails if one of them failed.
#
#   build               compiles all that the tests are and start, and runs nothing
#   crates              the tests of the crates and of what e2e is made of; documentation tests. They run at the same time as the other
#                       steps, because many of them use one processor, and their output is printed at the end
#   integration         e2e/tests/main.rs without its ignored tests, with a slice of each sweep
#   full                e2e/tests/main.rs with its ignored tests and whole sweeps, and what the crates' tests ignore
#   oldest-kubernetes   `integration` on Kubernetes 1.33
#   tools               what the demo and the bench are made of
#   fuzz                each fuzz target for seconds, the same inputs each time
#   cgroup2             a node on a stock kernel
#
#   THREADS=N           integration tests at a time. The default is 24, because they wait most of the time, and what is scarce has a
#                       semaphore. In `full` it is 8, because its sweeps, nodes and clouds use the processors all the time
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($#)) || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/results"
touch "$work/failed"

# One selection of packages for every step: cargo compiles the dependencies again for another set of features.
workspace=(--locked --workspace --exclude demo --exclude bench)
own=(crates/*/tests/*.rs)
own=("${own[@]##*/}")
own=("${own[@]/#/--test=}")
own=(--lib --bins --examples "${own[@]%.rs}")
integration=(cargo test "${workspace[@]}" --test main --no-fail-fast --)

step() { # NAME COMMAND...
  local name=$1 status=0
  shift
  echo "==== $name: $*"
  "$@" 2>&1 | tee "$work/results/$name" || status=$?
  ((!status)) || echo "$name (exit $status)" >>"$work/failed"
  # What prints no result of tests is one test.
  if ! grep -q '^test result:' "$work/results/$name"; then
    if ((status)); then echo "test result: 0 passed; 1 failed"; else echo "test result: 1 passed; 0 failed"; fi >>"$work/results/$name"
  fi
}

crates() {
  # More than there are processors: those of the plugin wait for the kernel most of the time.
  step crates cargo test "${workspace[@]}" "${own[@]}" --no-fail-fast -- --test-threads=8
  step documentation cargo test "${workspace[@]}" --doc --no-fail-fast
}

for name in "$@"; do
  case $name in
    build) cargo build "${workspace[@]}" --lib --bins --examples --tests ;;
    crates) if (($# == 1)); then crates; else crates &>"$work/crates" & fi ;;
    integration) step integration "${integration[@]}" --test-threads="${THREADS:-24}" ;;
    full)
      export SWEEP=all OPENSTACK=all
      step ignored cargo test "${workspace[@]}" "${own[@]}" --no-fail-fast -- --ignored
      step full "${integration[@]}" --test-threads="${THREADS:-8}" --include-ignored
      ;;
    oldest-kubernetes) step oldest-kubernetes env KUBERNETES=1.33 "${integration[@]}" --test-threads="${THREADS:-24}" ;;
    tools) step tools cargo test --locked -p demo -p bench ;;
    fuzz) step fuzz env FUZZ_SEED=1 scripts/fuzz.sh 1 ;;
    cgroup2) step cgroup2 scripts/cgroup2.sh ;;
    *) echo "test.sh: there is no step $name" >&2; exit 1 ;;
  esac
done

wait
[[ ! -f $work/crates ]] || cat "$work/crates"
shopt -s nullglob
results=("$work"/results/*)
((${#results[@]})) || exit 0
echo
sed 's/^/failed: /' "$work/failed"
# A program that was killed printed no result: its step counts as one failure.
awk -v steps="$(wc -l <"$work/failed")" '
  /^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
  END { if (steps && !f) f = steps; printf "%d passed, %d failed, %d skipped\n", p, f, s }' "${results[@]}"
[[ ! -s $work/failed ]]
