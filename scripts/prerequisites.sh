#!/usr/bin/env bash
# prerequisites.sh [cargo | test | full]: prints in one line whether Rust or Go is missing (`cargo`: only Rust). `test` and `full`
# also print the time, memory and disk space that `make test` and `make test-full` need.
set -euo pipefail

case ${1-} in
  test)
    echo "make test: 15 minutes on two processors, 35 the first time; 8 GB of memory; 12 GB of disk (target/, ~/.cache/perimeter)" >&2 ;;
  full)
    echo "make test-full: hours; 16 GB of memory; 40 GB of disk (target/, ~/.cache/perimeter)" >&2 ;;
esac
if [[ ${1-} == test || ${1-} == full ]] && ((EUID != 0)); then
  echo "not root: tests that need network namespaces fail where users may not make them; real nodes need root" >&2
fi
command -v cargo >/dev/null || { echo "missing: Rust; install it with rustup (https://rustup.rs)" >&2; exit 1; }
if [[ ${1-} != cargo && -z ${KUBEBUILDER_ASSETS-} && ${E2E_EXISTING_CLUSTER-} != 1 ]]; then
  command -v go >/dev/null || { echo "missing: Go 1.21 or newer (https://go.dev/dl)" >&2; exit 1; }
fi
