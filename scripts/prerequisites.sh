#!/usr/bin/env bash
# prerequisites.sh [cargo | test | full]: prints in one line whether Rust or Go is missing (`cargo`: only Rust). `test` and `full`
# also print the time, memory and disk space that `make test` and `make test-full` need, and whether the space is free: a
# linker that cannot write says only "Bus error".
set -euo pipefail

# Warns if fewer than $1 GB are free for this folder; what is already built counts as free.
free_disk() {
  local here built free
  here=$(dirname "${BASH_SOURCE[0]}")
  # A folder that does not exist yet is no error.
  built=$({ du -cs --block-size=1G "$("$here/target.sh")" ~/.cache/perimeter 2>/dev/null || true; } | awk 'END { print $1 }')
  free=$(df --output=avail --block-size=1G "$here" | tail -n 1)
  if ((built + free < $1)); then
    echo "disk: only $free GB are free, and $built GB of $1 GB are built; \`cargo clean\` and \`go clean -cache\` free what is old" >&2
  fi
}

case ${1-} in
  test)
    echo "make test: 18 minutes on two processors, 50 the first time; 8 GB of memory; 20 GB of disk (target/, ~/.cache)" >&2 ;;
  full)
    echo "make test-full: hours; 16 GB of memory; 40 GB of disk (target/, ~/.cache)" >&2 ;;
esac
if [[ ${1-} == test || ${1-} == full ]] && ((EUID != 0)); then
  echo "not root: tests of keepalived fail, and tests in network namespaces where users may not make them; real nodes need root" >&2
fi
command -v cargo >/dev/null || { echo "missing: Rust; install it with rustup (https://rustup.rs)" >&2; exit 1; }
if [[ ${1-} != cargo && -z ${KUBEBUILDER_ASSETS-} && ${E2E_EXISTING_CLUSTER-} != 1 ]]; then
  command -v go >/dev/null || { echo "missing: Go 1.21 or newer (https://go.dev/dl)" >&2; exit 1; }
fi
case ${1-} in
  test) free_disk 20 ;;
  full) free_disk 40 ;;
esac
