#!/usr/bin/env bash
# up.sh N: starts the cluster CLUSTER_NUMBER with N nodes, and returns when every node is Ready and DNS responds. settings.sh
# lists the other settings.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/cgroups.sh"

for tool in runc nft ip iptables nsenter unshare openssl python3 conntrack; do
  command -v $tool >/dev/null ||
    die "$tool is missing (Debian: runc nftables iproute2 iptables util-linux openssl python3 conntrack)"
done
# containerd, kubelet and kube-proxy of a node, and each API server, watch files: beside other tests, twelve nodes exceed Debian's limit of
# 128, and the kubelets end with "too many open files". The limit stays until the next boot.
limit=/proc/sys/fs/inotify/max_user_instances
(($(<$limit) >= 8192)) || echo 8192 >$limit || say "$limit is $(<$limit) and cannot be raised: beside other tests, kubelets may not start"
make power
enter power
mkdir -p "$STATE"/{pki,images}
chmod 700 "$STATE"
. "$HERE/pki.sh"
authority
kubeconfig admin /O=system:masters/CN=admin >"$KUBECONFIG"
"$HERE/image.sh" $PAUSE_IMAGE "$ASSETS/pause"
"$HERE/image.sh" $DNS_IMAGE "$ASSETS/coredns"

"$HERE/machine.sh" start fabric
"$HERE/machine.sh" start internet
"$HERE/machine.sh" start control-plane
starts=()
for ((i = 1; i <= $1; i++)); do
  "$HERE/machine.sh" start node-$i &
  starts+=($!)
done
until_ok 60 kubectl get --raw /readyz
sed "s|DNS_IMAGE|$DNS_IMAGE|; s|DNS_IP|$DNS_SERVICE|" "$HERE/coredns.yaml" | kubectl apply -f - >/dev/null
for start in "${starts[@]}"; do wait "$start"; done
kubectl wait --for=condition=Ready node --all --timeout=$((120 * ${TIMEOUT_FACTOR:-10}))s >/dev/null
kubectl -n kube-system rollout status deployment/coredns --timeout=$((120 * ${TIMEOUT_FACTOR:-10}))s >/dev/null
