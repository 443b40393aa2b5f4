#!/usr/bin/env bash
# cgroup2.sh: runs e2e/cluster/cgroup2.sh on a stock Debian kernel, which has only cgroup v2: first a machine (a minute), then
# a whole node (about ten minutes of emulation). Needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

((EUID == 0)) || { echo "cgroup2: needs root: the emulated machine works over this one's files" >&2; exit 1; }
assets=$(scripts/assets.sh cluster)
control=$(scripts/assets.sh 1.36)
for what in machine node; do
  # The kernel does not load these modules for the node's own commands: its /proc/sys/net/bridge, and links created in a namespace.
  # shellcheck disable=SC2016 # $1 is the inner bash's
  MODULES="br_netfilter veth bridge" MEM=${MEM:-4096} CPUS=2 LIMIT=${LIMIT:-2400} e2e/stock-kernel/host-root.sh \
    env CLUSTER_NUMBER=1 TIMEOUT_FACTOR=60 ASSETS="$assets" CONTROL_ASSETS="$control" \
    bash -c 'mkdir -p /run/lock; mount -t tmpfs tmpfs /var/tmp; exec e2e/cluster/cgroup2.sh "$1"' cgroup2 $what
done
