#!/usr/bin/env bash
# Process 1 of a node, second half: only the node's files are visible from here on.
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
. "$HERE/cgroups.sh"
mount --make-rshared / # As systemd does, for pods that request mount propagation.
cd /var/log
! unified || delegate /sys/fs/cgroup

serve containerd containerd
until_ok 30 ctr version
for image in /opt/perimeter/images/*.tar; do ctr -n k8s.io images import --local "$image" >/dev/null; done

[[ -z $FLANNEL ]] || NODE_NAME=$(hostname) serve flanneld "$FLANNEL/flanneld" --kubeconfig-file=/etc/kubernetes/flannel.conf --iface=ens10
serve kube-proxy kube-proxy --config=/etc/kubernetes/kube-proxy.yaml
serve kubelet kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --node-ip="$IP"
wait
