# shellcheck shell=bash disable=SC2034
# Settings of one cluster, sourced by every script; all of them come from the environment, or from the cluster's number.
#
#   CLUSTER_NUMBER     1 to 50; names the cluster's cgroup, its folder and this machine's link
#   ASSETS             folder of `scripts/assets.sh cluster`
#   CONTROL_ASSETS     folder of `scripts/assets.sh`
#   UPLINKS            how many nodes, from node-1 on, have a public interface (0)
#   PROVIDER_ID        spec.providerID of the nodes, %d is a node's number; none if empty
#   PROXY_MODE         mode of kube-proxy: nftables (default) or iptables
#   FLANNEL            folder of `scripts/assets.sh flannel`: the pods have its VXLAN; empty: bridges, and routes between the nodes
#   GRACE              seconds until a silent node is NotReady (12)
#   EVICT              seconds until the pods of such a node are evicted (30)
#   TIMEOUT_FACTOR     factor for all timeouts (10): a busy machine is slow, an emulated one slower
set -euo pipefail
shopt -s nullglob

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export HERE CLUSTER_NUMBER ASSETS CONTROL_ASSETS PROVIDER_ID=${PROVIDER_ID-} PROXY_MODE=${PROXY_MODE:-nftables} FLANNEL=${FLANNEL-}
export CLUSTER=perimeter-$CLUSTER_NUMBER
export STATE=${STATE:-${TMPDIR:-/var/tmp}/$CLUSTER} # On a file system that can be below an overlay: ext4, xfs, tmpfs.
export NET=10.$((200 + CLUSTER_NUMBER))             # The private network, a /16.
export KUBECONFIG=$STATE/admin.conf
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=true # Of cgroup v1.
PATH=$CONTROL_ASSETS:$ASSETS:$PATH

# NET.0.1 is the network's own router on every cable; NET.0.10 the control plane, NET.0.11 node-1, NET.0.12 node-2 …;
# NET.0.254 this machine. NET.64.0/18 are Services, NET.129.0/24 the pods of node-1, NET.130.0/24 those of node-2 …
ROUTER=$NET.0.1
API=$NET.0.10
THIS_MACHINE=$NET.0.254
SERVICES=$NET.64.0/18
PODS=$NET.128.0/17
API_SERVICE=$NET.64.1
DNS_SERVICE=$NET.64.10
address_of() { echo "$NET.0.$((10 + $1))"; }   # NUMBER of a node
pods_of() { echo "$NET.$((128 + $1)).0/24"; }  # NUMBER of a node
public_of() { echo "192.0.2.$((10 + $1))"; }   # NUMBER of a node
PUBLIC_GATEWAY=172.31.1.1 # Of each public interface, as at Hetzner.
INTERNET_HOST=203.0.113.9 # A host in the Internet.
PAUSE_IMAGE=perimeter.dev/pause:1
DNS_IMAGE=perimeter.dev/coredns:1

say() { echo "$CLUSTER: $*" >&2; }
die() { say "$*"; exit 1; }

# until_ok SECONDS COMMAND...: repeats the command until it succeeds, at last every 2 s. A dozen loops with kubectl, which takes tenths of a
# second of a processor, would delay what they wait for.
until_ok() {
  local end=$((SECONDS + $1 * ${TIMEOUT_FACTOR:-10})) tenths=1; shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || die "still failing: $*"
    sleep "$((tenths / 10)).$((tenths % 10))"
    ((tenths = tenths < 10 ? tenths * 2 : 20))
  done
}

# serve NAME COMMAND...: keeps a program running, with its output in NAME.log of the current folder
serve() { (while :; do "${@:2}" || :; sleep 1; done) >>"$1.log" 2>&1 & }
