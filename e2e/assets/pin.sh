#!/usr/bin/env bash
# pin.sh [FOLDER...]: writes the go.mod and go.sum of those folders here (of all, without a name) again. Edit the last lines
# and run it to move to other versions; nothing else needs it.
#
# A folder is a Go module with next to no code of its own: its "tool" lines, or the imports of its main.go, name the
# programs; the rest pins all that they are made of. Needs Go and the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")"
export GOTOOLCHAIN=auto GOFLAGS=
readonly SELECTED=("$@")

# FOLDER MODULE@VERSION [PROGRAM | MODULE@VERSION...]: programs are paths within the module; none where the folder has a
# main.go; then the modules beside the first are those that it imports. TAGS: what is built with them, and no more, is pinned.
# STAGING: the Kubernetes whose staging modules all are built with, where several modules would each bring their own.
pin() {
  local folder=$1 module=${2%@*} version=${2#*@} upstream staging program
  [[ ${#SELECTED[@]} == 0 || " ${SELECTED[*]} " == *" $folder "* ]] || return 0
  mkdir -p "$folder"
  rm -f "$folder"/go.mod "$folder"/go.sum
  upstream=$(cd / && go mod download -json "$2" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  (
    cd "$folder"
    go mod init "perimeter.dev/e2e/assets/$folder"
    # The Go that the programs themselves ask for, not the one at hand: an older Go then fetches just that one.
    go mod edit -go="$(awk '$1 == "go" { print $2 }' "$upstream")"
    # k8s.io/kubernetes asks for its own staging modules as v0.0.0 and finds them in its own tree; anyone else has to
    # name the published ones: v0.X.Y belongs to v1.X.Y.
    staging=${STAGING-$version}
    [[ -z ${STAGING-} ]] ||
      upstream=$(cd / && go mod download -json "k8s.io/kubernetes@$STAGING" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    awk -v v="v0.${staging#v1.}" '$2 == "=>" && $3 ~ /^\.\/staging/ { print "replace", $1, "=>", $1, v }' \
      "$upstream" >>go.mod
    go get "$module@$version"
    for program in "${@:3}"; do
      if [[ $program == */cmd/*@* ]]; then
        go get -tool "$program"
      elif [[ $program == *@* ]]; then
        go get "$program"
      else
        go get -tool -tags "${TAGS-}" "$module$program@$version"
      fi
    done
    # Tidying looks at every tag, and would drop a module of which nothing is built.
    [[ -n ${TAGS-} || ! (-f main.go || $# -gt 2) ]] || go mod tidy
  )
}

kubernetes=(/cmd/kube-apiserver /cmd/kube-controller-manager)
pin etcd go.etcd.io/etcd/server/v3@v3.6.11 ""
pin kubernetes-1.36 k8s.io/kubernetes@v1.36.3 "${kubernetes[@]}"
pin kubernetes-1.33 k8s.io/kubernetes@v1.33.13 "${kubernetes[@]}"

# What the nodes of a cluster run besides: of the same Kubernetes as the control plane.
pin node k8s.io/kubernetes@v1.36.3 /cmd/{kubelet,kube-proxy,kube-scheduler,kubectl}
pin containerd github.com/containerd/containerd/v2@v2.2.1 /cmd/{containerd,containerd-shim-runc-v2,ctr}
pin cni github.com/containernetworking/plugins@v1.9.1 /plugins/{main/{bridge,loopback},ipam/host-local,meta/portmap}
pin coredns github.com/coredns/coredns@v1.14.7

# What watches: a collector of the parts that its main.go names, and the module that
# holds the resource definitions of PodMonitor and PrometheusRule as YAML.
otel=go.opentelemetry.io/collector
pin otelcol $otel/otelcol@v0.162.0 $otel/{service,receiver/otlpreceiver,exporter/debugexporter}@v0.162.0 \
  $otel/confmap/provider/fileprovider@v1.68.0
pin prometheus-operator github.com/prometheus-operator/prometheus-operator@v0.85.0

# What calls CNI plugins: cnitool, and the library of runtimes and Multus behind main.go.
pin libcni github.com/containernetworking/cni@v1.3.0 /cnitool

# A cluster's OpenStack: cloud controller manager, Cinder's CSI driver and the side-cars that call it, and the controller of
# Ingresses. These four modules resolve together; of the first, 1.36.0 is the last version that does, and of the second, v6.3.0
# the last that compiles.
csi=github.com/kubernetes-csi
STAGING=v1.36.3 pin providers k8s.io/cloud-provider-openstack@v1.36.0 \
  /cmd/{openstack-cloud-controller-manager,cinder-csi-plugin,octavia-ingress-controller} \
  $csi/external-provisioner/v6/cmd/csi-provisioner@v6.3.0 \
  $csi/external-snapshotter/v8/cmd/{csi-snapshotter,snapshot-controller}@v8.7.0 \
  $csi/external-attacher/v4/cmd/csi-attacher@v4.13.0
