#!/usr/bin/env bash
# pin.sh [FOLDER...]: writes the go.mod and go.sum of these folders (without arguments, of all folders) again. To move to other
# versions, edit the last lines and run it; nothing else needs it.
#
# A folder is a Go module with almost no code of its own. Its "tool" lines, or the imports of its main.go, name the programs.
# The rest pins all their dependencies. Needs Go and the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")"
export GOTOOLCHAIN=auto GOFLAGS=
readonly SELECTED=("$@")

# FOLDER MODULE@VERSION [PROGRAM | MODULE@VERSION...]: programs are paths within the module. A folder with a main.go needs
# none; the further modules are those that main.go imports. TAGS: only dependencies of a build with these tags are pinned.
# STAGING: the version of Kubernetes whose staging modules are used, if several modules would each require their own.
pin() {
  local folder=$1 module=${2%@*} version=${2#*@} upstream staging program
  [[ ${#SELECTED[@]} == 0 || " ${SELECTED[*]} " == *" $folder "* ]] || return 0
  mkdir -p "$folder"
  rm -f "$folder"/go.mod "$folder"/go.sum
  upstream=$(cd / && go mod download -json "$2" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  (
    cd "$folder"
    go mod init "perimeter.dev/e2e/assets/$folder"
    # The version of Go that the programs require, not the installed one: an older Go then downloads exactly this version.
    go mod edit -go="$(awk '$1 == "go" { print $2 }' "$upstream")"
    # k8s.io/kubernetes requires its own staging modules as v0.0.0 and finds them in its own tree. Other modules have to
    # name the published ones: v0.X.Y belongs to v1.X.Y.
    staging=${STAGING-$version}
    [[ -z ${STAGING-} ]] ||
      upstream=$(cd / && go mod download -json "k8s.io/kubernetes@$STAGING" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    awk -v v="v0.${staging#v1.}" '$2 == "=>" && $3 ~ /^\.\/staging/ { print "replace", $1, "=>", $1, v }' \
      "$upstream" >>go.mod
    # `go get` would resolve the root package too, which is not the one that main.go imports.
    if [[ -f main.go && $# == 2 ]]; then go mod edit -require="$module@$version"; else go get "$module@$version"; fi
    for program in "${@:3}"; do
      if [[ $program == */cmd/*@* ]]; then
        go get -tool "$program"
      elif [[ $program == *@* ]]; then
        go get "$program"
      else
        go get -tool -tags "${TAGS-}" "$module$program@$version"
      fi
    done
    # `go mod tidy` considers every tag, and would drop a module of which nothing is built.
    # TIDY=no: it needs the modules of tests too, and one of them is not served.
    [[ -n ${TAGS-}${TIDY-} || ! (-f main.go || $# -gt 2) ]] || go mod tidy
  )
}

kubernetes=(/cmd/kube-apiserver /cmd/kube-controller-manager)
pin etcd go.etcd.io/etcd/server/v3@v3.6.11 ""
pin kubernetes-1.36 k8s.io/kubernetes@v1.36.3 "${kubernetes[@]}"
pin kubernetes-1.33 k8s.io/kubernetes@v1.33.13 "${kubernetes[@]}"

# The other programs of a cluster's nodes, of the same version of Kubernetes as the control plane.
pin node k8s.io/kubernetes@v1.36.3 /cmd/{kubelet,kube-proxy,kube-scheduler,kubectl}
pin containerd github.com/containerd/containerd/v2@v2.2.1 /cmd/{containerd,containerd-shim-runc-v2,ctr}
pin cni github.com/containernetworking/plugins@v1.9.1 /plugins/{main/{bridge,loopback},ipam/host-local,meta/portmap}
pin coredns github.com/coredns/coredns@v1.14.7
# A pod network with an overlay: main.go, and the plugin. Its own module is not served either; v0.9.1 is the last version of this
# module that has it.
pin flannel github.com/flannel-io/flannel@v0.28.10
pin flannel-cni github.com/containernetworking/plugins@v0.9.1 /plugins/meta/flannel

# Monitoring: a collector with the components that its main.go imports, and the module that
# contains the resource definitions of PodMonitor and PrometheusRule as YAML.
otel=go.opentelemetry.io/collector
pin otelcol $otel/otelcol@v0.162.0 $otel/{service,receiver/otlpreceiver,exporter/debugexporter}@v0.162.0 \
  $otel/confmap/provider/fileprovider@v1.68.0
pin prometheus-operator github.com/prometheus-operator/prometheus-operator@v0.85.0

# Callers of CNI plugins: cnitool, and main.go, which uses the library of the runtimes and Multus.
pin libcni github.com/containernetworking/cni@v1.3.0 /cnitool
# The plugin that a runtime calls for a pod with several networks.
pin multus gopkg.in/k8snetworkplumbingwg/multus-cni.v4@v4.2.3 /cmd/multus

# Both sides of apinetlet: the API servers and controllers of ironcore and of ironcore-net, and the Go apinetlet. v0.3.0 is the newest
# version of ironcore-net that the module proxy serves.
TIDY=no pin ironcore github.com/ironcore-dev/ironcore@v0.5.0 /cmd/{ironcore-apiserver,ironcore-controller-manager}
TIDY=no pin ironcore-net github.com/ironcore-dev/ironcore-net@v0.3.0 /cmd/{apiserver,controller-manager,apinetlet}

# A cluster's OpenStack: cloud controller manager, Cinder's CSI driver and the side-cars that call it, and the controller of
# Ingresses. The versions of these four modules are resolved together: 1.36.0 is the last version of the first module that
# resolves with the others, and v6.3.0 is the last version of the second module that compiles.
csi=github.com/kubernetes-csi
STAGING=v1.36.3 pin providers k8s.io/cloud-provider-openstack@v1.36.0 \
  /cmd/{openstack-cloud-controller-manager,cinder-csi-plugin,octavia-ingress-controller} \
  $csi/external-provisioner/v6/cmd/csi-provisioner@v6.3.0 \
  $csi/external-snapshotter/v8/cmd/{csi-snapshotter,snapshot-controller}@v8.7.0 \
  $csi/external-attacher/v4/cmd/csi-attacher@v4.13.0
