#!/usr/bin/env bash
# prerequisites.sh: says in one line what of Rust and Go is missing.
set -euo pipefail

command -v cargo >/dev/null || { echo "missing: Rust; install it with rustup (https://rustup.rs)" >&2; exit 1; }
if [[ -z ${KUBEBUILDER_ASSETS-} && ${E2E_EXISTING_CLUSTER-} != 1 ]]; then
  command -v go >/dev/null || { echo "missing: Go 1.21 or newer (https://go.dev/dl)" >&2; exit 1; }
fi
