#!/usr/bin/env bash
# test.sh [PROGRAM...]: runs every test of the workspace, or the named test programs only (`natgw_faults`; `lib` is the crates'
# own unit tests), and says at the end how many passed.
# test.sh --build: builds all that it runs, and runs nothing.
#
#   LANES=3    test programs at a time: most of them wait for a cluster or a cloud more than for a processor
#   FRESH=1    also run again what has passed on these very sources
#
# The programs in DEAR are minutes of real OpenStack services each. One of them that has passed is not run again as long as
# nothing changes that it is made of, starts or reads; that it passed is kept beside the assets.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The longest first, so that no lane is left alone with one of them at the end. A program that is not named is short.
readonly LONG=(openstack_providers deorbiter egress_router routegc deorbiter_sweep natgw_sweep routegc_sweep cluster egress_router_kernel
  leader_election natgw openstack openstack_client deorbiter_triggers natgw_faults openstack_all natgw_scripts egress_router_cluster aws)
# And which of the workspace's programs each starts.
readonly -A DEAR=([deorbiter_sweep]=deorbiter [routegc_sweep]=routegc [deorbiter]=deorbiter [routegc]=routegc
  [openstack_providers]="deorbiter routegc" [openstack_all]="")
# Tests at a time, where they wait for walks and clouds more than for a processor. Each of routegc's asks one Neutron; of
# deorbiter's clusters there are only a few at a time, whatever this says, and its first tests wait for the cloud.
readonly -A THREADS=([deorbiter]=8 [deorbiter_sweep]=3 [deorbiter_triggers]=8 [routegc]=6)
readonly PASSED=${PERIMETER_ASSETS:-$HOME/.cache/perimeter}/passed

if [[ ${1-} == --lane ]]; then # What a lane does with one program.
  readonly work=$2 name=$3 package=$4 executable=$5
  log=$work/${executable##*/} began=$SECONDS status=0
  # Proofs print what they explored, and what could not be proven here: it is shown for tests that passed, too.
  arguments=(--show-output)
  [[ -z ${THREADS[$name]-} ]] || arguments+=(--test-threads="${THREADS[$name]}")
  (cd "$package" && CARGO_MANIFEST_DIR=$package exec "$executable" "${arguments[@]}") >"$log" 2>&1 </dev/null || status=$?
  # Whole, and not in the midst of another's.
  exec {lock}>"$work/lock"
  flock "$lock"
  printf '\n==== %s: %s\n' "$name" "$executable"
  cat "$log"
  printf '==== %s: exit %d after %d s\n' "$name" "$status" "$((SECONDS - began))"
  awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
    END { print p + 0, f + 0, s + 0 }' "$log" | while read -r p f s; do
    # A program that was killed counted nothing.
    if ((status && !f)); then f=1; fi
    echo "$name $p $f $s" >>"$work/results"
  done
  # What failed is said once more at the end, where nobody has to look for it among thousands of lines.
  if ((status)); then
    {
      printf '\n==== %s failed:\n' "$name"
      awk '/^failures:$/ { said = 1 } said' "$log" | grep . || tail -n 20 "$log"
    } >>"$work/failures"
  fi
  if ((status == 0)) && [[ -f $work/seals/$name ]]; then
    mkdir -p "$PASSED"
    date -u +%FT%TZ >"$PASSED/$(<"$work/seals/$name")"
  fi
  exit 0
fi

# The tests start the workspace's programs. All is built before anything runs: a build makes a test beside it wait. And all at
# once, since tests ask more of some dependencies, with which the programs would be compiled again.
build() { cargo build --locked --workspace --lib --bins --examples --tests "$@"; }
if [[ ${1-} == --build ]]; then
  build
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/seals"
: >"$work/results"

build --message-format=json-render-diagnostics >"$work/artifacts"
scripts/test-programs.py "${LONG[@]}" <"$work/artifacts" >"$work/programs"

# What decides how a dear program ends: itself, the programs that it starts, the files that they read, what it runs on, and the
# share of the sweep.
files() {
  git ls-files -z -- . ':!docs' ':!*.md' ':!*.rs' ':!*Cargo.toml' ':!Cargo.lock' | sort -z | xargs -0 sha256sum 2>/dev/null ||
    true # a file that is deleted and not committed yet
  printf '%s\n' "${KUBERNETES-}" "${SWEEP-}" "${SWEEP_ONLY-}"
}
seal() { # NAME EXECUTABLE
  local program
  {
    cat "$work/files" "$2"
    for program in ${DEAR[$1]}; do cat "${2%/deps/*}/$program"; done
    [[ $1 != *_sweep ]] || date -u +%F
  } | sha256sum | cut -c1-32
}
files >"$work/files"
while IFS=$'\t' read -r name _ executable; do
  if [[ -v DEAR[$name] ]]; then echo "$name-$(seal "$name" "$executable")" >"$work/seals/$name"; fi
done <"$work/programs"

: >"$work/queue"
while IFS=$'\t' read -r name package executable; do
  if (($#)) && [[ " $* " != *" $name "* ]]; then continue; fi
  if [[ -z ${FRESH-} && -f $work/seals/$name && -f $PASSED/$(<"$work/seals/$name") ]]; then
    echo "==== $name: passed on these sources at $(<"$PASSED/$(<"$work/seals/$name")"); not run again (FRESH=1 does)"
    continue
  fi
  printf '%s\0%s\0%s\0%s\0' "$work" "$name" "$package" "$executable" >>"$work/queue"
done <"$work/programs"
xargs -0 -r -n 4 -P "${LANES:-3}" scripts/test.sh --lane <"$work/queue"

if ((!$#)); then
  cargo test --locked --workspace --doc --no-fail-fast 2>&1 | tee "$work/doc" || echo "doc 0 1 0" >>"$work/results"
  awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i-1); if ($i ~ /^failed/) f += $(i-1); if ($i ~ /^ignored/) s += $(i-1) } }
    END { print "doc", p + 0, f + 0, s + 0 }' "$work/doc" >>"$work/results"
fi

if [[ -f $work/failures ]]; then cat "$work/failures"; fi
awk '
  { p += $2; f += $3; s += $4; if ($3) bad = bad " " $1 }
  END {
    if (!NR) { print "no test program of that name"; f = 1 }
    if (bad) printf "\nfailed:%s\n", bad
    printf "\n%d passed, %d failed", p, f
    if (s) printf ", %d skipped", s
    print ""
    exit f > 0
  }' "$work/results"
