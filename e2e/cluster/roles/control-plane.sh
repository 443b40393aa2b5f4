#!/usr/bin/env bash
# Process 1 of the control plane: a machine without a root file system or a kubelet of its own.
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
. "$HERE/machines.sh"
. "$HERE/pki.sh"
hostname control-plane
plug_in control-plane "$API"
cd "$STATE/control-plane"

if [[ ! -e scheduler.conf ]]; then
  server kube-apiserver /CN=kube-apiserver "IP:$API,IP:$API_SERVICE,IP:127.0.0.1,DNS:localhost,DNS:kubernetes,\
DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  server etcd /CN=etcd IP:127.0.0.1
  client front-proxy /CN=front-proxy
  client kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  kubeconfig controllers /CN=system:kube-controller-manager >controllers.conf
  kubeconfig scheduler /CN=system:kube-scheduler >scheduler.conf
fi
record control-plane
mount -t proc proc /proc

# No fsync, because the data need not survive a power cut of the real machine.
serve etcd etcd --data-dir=etcd --unsafe-no-fsync --log-level=warn \
  --listen-client-urls=https://127.0.0.1:2379 --advertise-client-urls=https://127.0.0.1:2379 \
  --cert-file="$pki/etcd.crt" --key-file="$pki/etcd.key" --client-cert-auth --trusted-ca-file="$pki/ca.crt" \
  --listen-peer-urls=https://127.0.0.1:2380 --peer-auto-tls

# All writes, for tests that count them.
cat >audit.yaml <<EOT
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}]
EOT

# Aggregator routing: webhooks and aggregated APIs are called at their pods' addresses, which the network routes. This
# machine has no kube-proxy, so it does not reach the addresses of Services.
serve kube-apiserver kube-apiserver --advertise-address="$API" --bind-address=0.0.0.0 \
  --etcd-servers=https://127.0.0.1:2379 \
  --etcd-cafile="$pki/ca.crt" --etcd-certfile="$pki/kube-apiserver.crt" --etcd-keyfile="$pki/kube-apiserver.key" \
  --tls-cert-file="$pki/kube-apiserver.crt" --tls-private-key-file="$pki/kube-apiserver.key" \
  --client-ca-file="$pki/ca.crt" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged \
  --audit-policy-file=audit.yaml --audit-log-path=audit.log \
  --service-account-issuer=https://kubernetes.default.svc.cluster.local \
  --service-account-key-file="$pki/service-accounts.pub" --service-account-signing-key-file="$pki/service-accounts.key" \
  --service-cluster-ip-range="$SERVICES" \
  --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
  --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
  --enable-aggregator-routing --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
  --requestheader-extra-headers-prefix=X-Remote-Extra- \
  --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
  --default-not-ready-toleration-seconds="${EVICT:-30}" --default-unreachable-toleration-seconds="${EVICT:-30}"

until_ok 60 kubectl get --raw /readyz

serve kube-controller-manager kube-controller-manager --kubeconfig=controllers.conf --leader-elect=false \
  --authentication-kubeconfig=controllers.conf --authorization-kubeconfig=controllers.conf \
  --use-service-account-credentials --service-account-private-key-file="$pki/service-accounts.key" \
  --root-ca-file="$pki/ca.crt" --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
  --node-monitor-period=1s --node-monitor-grace-period="${GRACE:-12}s"

serve kube-scheduler kube-scheduler --kubeconfig=scheduler.conf --leader-elect=false \
  --authentication-kubeconfig=scheduler.conf --authorization-kubeconfig=scheduler.conf

wait
