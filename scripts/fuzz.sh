#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: runs the fuzz targets of crates/*/fuzz, each for that many seconds (0: until something is
# found). They start from the corpus of earlier runs and from the seeds in the repository. The layout is cargo-fuzz's, and
# `cargo fuzz run` works as well. This script needs no nightly compiler: it uses the instrumentation of the pinned one,
# without sanitizers, which would find nothing in safe code.
#
#   FUZZ_SEED=N   the same inputs each time, as many as the time allows; without it: others
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 && $1 =~ ^[0-9]+$ ]] || { echo "usage: fuzz.sh SECONDS [TARGET...]" >&2; exit 1; }
readonly seconds=$1 target=${CARGO_TARGET_DIR:-$(scripts/target.sh)}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
shift
command -v c++ >/dev/null || { echo "fuzz: a C++ compiler is missing (Debian: g++): libFuzzer is built with it" >&2; exit 1; }

# The flags of cargo-fuzz 0.13 for --sanitizer none.
flags=(--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1)

status=0
for manifest in crates/*/fuzz/Cargo.toml; do
  folder=${manifest%/Cargo.toml}
  # With a target named, build scripts and procedural macros stay as they are.
  RUSTFLAGS="${flags[*]}" cargo build --quiet --locked --release --manifest-path "$manifest" --target "$host" --target-dir "$target"
  mapfile -t names < <(awk -F '"' '/^\[/ { bin = /^\[\[bin\]\]/ } bin && /^name *=/ { print $2 }' "$manifest")
  for name in "${names[@]}"; do
    [[ $# == 0 || " $* " == *" $name "* ]] || continue
    mkdir -p "$folder"/{corpus,artifacts}/"$name"
    seeds=("$folder/corpus/$name")
    [[ ! -d $folder/seeds/$name ]] || seeds+=("$folder/seeds/$name")
    log=$folder/artifacts/$name.log
    if "$target/$host/release/$name" -artifact_prefix="$folder/artifacts/$name/" -max_total_time="$seconds" \
      -timeout=10 -seed="${FUZZ_SEED:-0}" -print_final_stats=1 "${seeds[@]}" >"$log" 2>&1; then
      awk -v name="$name" '/^stat::number_of_executed_units/ { n = $2 } END { printf "fuzz: %s: %d inputs, nothing found\n", name, n }' "$log"
    else
      tail -n 40 "$log" >&2
      echo "fuzz: $name: found; the input is in $folder/artifacts/$name" >&2
      status=1
    fi
  done
done
exit "$status"
