#!/usr/bin/env bash
# assets.sh [KUBERNETES]: makes sure that the control plane of the tests is built, and prints its folder: etcd,
# kube-apiserver and kube-controller-manager, as KUBEBUILDER_ASSETS would name it. KUBERNETES is 1.36 (default) or any
# other that e2e/assets/ pins; progress goes to standard error.
# assets.sh cluster: the same for what a cluster's nodes run besides: kubelet, kube-proxy, kube-scheduler, kubectl,
# containerd, its shim and ctr, CNI plugins, CoreDNS, pause and fetch. Never taken from KUBEBUILDER_ASSETS.
# assets.sh kubectl: the same for kubectl alone.
# assets.sh monitoring: the same for the resource definitions of prometheus-operator.
# assets.sh collector: the same for an OpenTelemetry collector.
# assets.sh cni: the same for what calls CNI plugins: cnitool, and libcni, a small program around the library of that name.
# assets.sh multus: the same for Multus' plugin, which calls those of a pod's networks.
# assets.sh flannel: the same for a pod network of flannel: the daemon, and the plugin.
# assets.sh providers: the same for what ties a cluster to OpenStack: openstack-cloud-controller-manager, cinder-csi-plugin,
# csi-provisioner, csi-snapshotter, csi-attacher, snapshot-controller, and the resource definitions of snapshots.
# assets.sh ironcore: the same for the API servers and controllers of ironcore and ironcore-net, and the Go apinetlet.
# assets.sh --print [KUBERNETES | cluster | ...]: prints the folder, there or not, and builds nothing.
# assets.sh --clean: deletes the folders of all versions, and what scripts/openstack.sh, python.sh and cargo-tool.sh installed.
#
# Programs are built once, from their modules, with Go 1.21 or newer, which fetches the Go that they ask for. They stay in
# ${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-~/.cache}/perimeter}, in a folder for each set of pins.
set -euo pipefail
shopt -s extglob
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly PINS=$HERE/e2e/assets
readonly ASSETS=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}
readonly RECIPE=1 # Counts up when the way of building below changes what is built.
readonly CLUSTER=(node containerd cni coredns kit) # Pins of a cluster's nodes.
readonly OPERATOR=github.com/prometheus-operator/prometheus-operator
readonly MULTUS=gopkg.in/k8snetworkplumbingwg/multus-cni.v4
readonly HEARTBEAT=20

say() { printf 'assets: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

version() { # FOLDER MODULE: the version pinned
  awk -v m="$2" '$1 == "require" { sub(/^require /, "") } $1 == m && $2 ~ /^v/ { print $2; exit }' "$PINS/$1/go.mod"
}

key_of() { # FILE...: of all that decides what is built
  cat "$@" <(echo "$RECIPE $(uname -sm)") | sha256sum | cut -c-12
}

folder_of() { # WHAT: the name holds all that decides what is in it
  local files
  if [[ $1 == cluster ]]; then
    mapfile -t files < <(cd "$PINS" && find "${CLUSTER[@]}" -type f | LC_ALL=C sort)
    echo "$ASSETS/cluster-$(version node k8s.io/kubernetes)-$(cd "$PINS" && key_of "${files[@]}")"
  elif [[ $1 == kubectl ]]; then
    echo "$ASSETS/kubectl-$(version node k8s.io/kubernetes)-$(key_of "$PINS"/node/go.{mod,sum})"
  elif [[ $1 == monitoring ]]; then
    echo "$ASSETS/monitoring-$(version prometheus-operator $OPERATOR)-$(key_of "$PINS"/prometheus-operator/go.{mod,sum})"
  elif [[ $1 == collector ]]; then
    echo "$ASSETS/collector-$(key_of "$PINS"/otelcol/{go.{mod,sum},main.go})"
  elif [[ $1 == cni ]]; then
    echo "$ASSETS/cni-$(version libcni github.com/containernetworking/cni)-$(key_of "$PINS"/libcni/{go.{mod,sum},main.go})"
  elif [[ $1 == multus ]]; then
    echo "$ASSETS/multus-$(version multus $MULTUS)-$(key_of "$PINS"/multus/go.{mod,sum})"
  elif [[ $1 == flannel ]]; then
    echo "$ASSETS/flannel-$(version flannel github.com/flannel-io/flannel)-$(
      key_of "$PINS"/flannel/{go.{mod,sum},main.go} "$PINS"/flannel-cni/go.{mod,sum})"
  elif [[ $1 == ironcore ]]; then
    echo "$ASSETS/ironcore-$(version ironcore github.com/ironcore-dev/ironcore)-$(
      key_of "$PINS"/{ironcore,ironcore-net}/go.{mod,sum})"
  elif [[ $1 == providers ]]; then
    echo "$ASSETS/providers-$(version providers k8s.io/cloud-provider-openstack)-$(key_of "$PINS"/providers/go.{mod,sum})"
  else
    echo "$ASSETS/kubernetes-$(version "kubernetes-$1" k8s.io/kubernetes)-$(
      key_of "$PINS"/{etcd,"kubernetes-$1"}/go.{mod,sum})"
  fi
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

build() { # PINS PACKAGE OUTPUT [LDFLAGS]
  local name=${3##*/} log=$3.log begun=$SECONDS next=$HEARTBEAT elapsed
  name="$name $(version "$1" "${2%%/@(cmd|cnitool|plugins/@(main|ipam|meta))/*}")"
  name=${name% } # A program of ours has no version.
  say "$name: building"
  go build -C "$PINS/$1" -v -o "$3" -ldflags "-s -w ${4-}" "$2" >"$log" 2>&1 &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.5
    elapsed=$((SECONDS - begun))
    ((elapsed >= next)) || continue
    next=$((elapsed + HEARTBEAT))
    say "$name: $(wc -l <"$log") packages after $(clock "$elapsed")"
  done
  wait "$child" || { tail -n 20 "$log" >&2; die "$name was not built"; }
  child=
  rm "$log"
  say "$name: built in $(clock $((SECONDS - begun)))"
}

stamp() { # PINS: a program of Kubernetes says the version that it was built of
  local v major minor at=k8s.io/component-base/version
  v=$(version "$1" k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${v#v}"
  echo "-X $at.gitVersion=$v -X $at.gitMajor=$major -X $at.gitMinor=$minor -X $at.gitTreeState=clean"
}

build_control_plane() { # KUBERNETES FOLDER
  local k8s=kubernetes-$1 program
  build etcd go.etcd.io/etcd/server/v3 "$2/etcd"
  for program in kube-apiserver kube-controller-manager; do
    build "$k8s" k8s.io/kubernetes/cmd/$program "$2/$program" "$(stamp "$k8s")"
  done
}

build_cluster() { # FOLDER
  local program containerd=github.com/containerd/containerd/v2
  for program in kubelet kube-proxy kube-scheduler kubectl; do
    build node k8s.io/kubernetes/cmd/$program "$1/$program" "$(stamp node)"
  done
  for program in containerd containerd-shim-runc-v2 ctr; do
    build containerd $containerd/cmd/$program "$1/$program" "-X $containerd/version.Version=$(version containerd $containerd)"
  done
  for program in main/bridge main/loopback ipam/host-local meta/portmap; do
    build cni "github.com/containernetworking/plugins/plugins/$program" "$1/${program#*/}"
  done
  build coredns . "$1/coredns"
  for program in pause fetch; do build kit ./$program "$1/$program"; done
}

build_monitoring() { # FOLDER
  local operator kind
  go mod download -C "$PINS/prometheus-operator" $OPERATOR
  operator=$(go list -C "$PINS/prometheus-operator" -m -f '{{.Dir}}' $OPERATOR)
  for kind in podmonitors prometheusrules; do
    install -m 644 "$operator/example/prometheus-operator-crd/monitoring.coreos.com_$kind.yaml" "$1/$kind.yaml"
  done
}

build_cni() { # FOLDER
  build libcni github.com/containernetworking/cni/cnitool "$1/cnitool"
  build libcni . "$1/libcni"
}

build_flannel() { # FOLDER
  build flannel . "$1/flanneld"
  build flannel-cni github.com/containernetworking/plugins/plugins/meta/flannel "$1/flannel"
}

build_providers() { # FOLDER
  local openstack=k8s.io/cloud-provider-openstack csi=github.com/kubernetes-csi program snapshots kind
  for program in openstack-cloud-controller-manager cinder-csi-plugin octavia-ingress-controller; do
    build providers "$openstack/cmd/$program" "$1/$program" \
      "-X $openstack/pkg/version.Version=$(version providers $openstack)"
  done
  for program in external-provisioner/v6/cmd/csi-provisioner external-attacher/v4/cmd/csi-attacher \
    external-snapshotter/v8/cmd/{csi-snapshotter,snapshot-controller}; do
    build providers "$csi/$program" "$1/${program##*/}" "-X main.version=$(version providers "$csi/${program%/cmd/*}")"
  done
  snapshots=$csi/external-snapshotter/client/v8
  go mod download -C "$PINS/providers" $snapshots
  snapshots=$(go list -C "$PINS/providers" -m -f '{{.Dir}}' $snapshots)/config/crd
  for kind in volumesnapshotclasses volumesnapshotcontents volumesnapshots; do
    install -m 644 "$snapshots/snapshot.storage.k8s.io_$kind.yaml" "$1/$kind.yaml"
  done
}

build_ironcore() { # FOLDER
  local program dev=github.com/ironcore-dev net
  for program in ironcore-apiserver ironcore-controller-manager; do
    build ironcore $dev/ironcore/cmd/$program "$1/$program"
  done
  for program in apiserver controller-manager apinetlet; do
    build ironcore-net $dev/ironcore-net/cmd/$program "$1/ironcore-net-$program"
  done
  # The Role and the Deployment that the Go apinetlet is installed with.
  net=$(go list -C "$PINS/ironcore-net" -m -f '{{.Dir}}' $dev/ironcore-net)
  cp -r "$net/config" "$1/ironcore-net-config"
  chmod -R u+w "$1/ironcore-net-config"
}

build_all() { # WHAT FOLDER
  export GOTOOLCHAIN=auto CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
  # A compiler of one package is gone before its garbage matters: a tenth less to compute. A large package still keeps within this.
  export GOGC=off GOMEMLIMIT=1GiB
  rm -rf "$ASSETS"/*.new.* # Of builds that were killed: the lock is ours.
  new=$(mktemp -d "$2.new.XXXXXX")
  chmod 755 "$new"
  case $1 in
    cluster) build_cluster "$new" ;;
    kubectl) build node k8s.io/kubernetes/cmd/kubectl "$new/kubectl" "$(stamp node)" ;;
    monitoring) build_monitoring "$new" ;;
    collector) build otelcol . "$new/otelcol" ;;
    cni) build_cni "$new" ;;
    multus) build multus $MULTUS/cmd/multus "$new/multus" ;;
    flannel) build_flannel "$new" ;;
    providers) build_providers "$new" ;;
    ironcore) build_ironcore "$new" ;;
    *) build_control_plane "$1" "$new" ;;
  esac
  mv -T "$new" "$2"
  new=
}

print_only=
if [[ ${1-} == --print ]]; then
  print_only=yes
  shift
fi
if [[ ${1-} == --clean ]]; then
  for folder in "$ASSETS"/{kubernetes,kubectl,cluster,monitoring,collector,cni,multus,flannel,providers,ironcore,openstack,hcloud-python,moto,cargo-deny}-*; do
    [[ ! -d $folder ]] || { say "deleting $folder"; rm -rf "$folder"; }
  done
  exit 0
fi
[[ $# -le 1 && ${1-} != -* ]] ||
  die "usage: assets.sh --clean | [--print] [KUBERNETES | kubectl | cluster | monitoring | collector | cni | multus | flannel | providers | ironcore]"

if [[ ${1-} == cluster ]]; then
  what=cluster title="what a cluster's nodes run"
elif [[ ${1-} == kubectl ]]; then
  what=kubectl title=kubectl
elif [[ ${1-} == monitoring ]]; then
  what=monitoring title="the resource definitions of prometheus-operator"
elif [[ ${1-} == collector ]]; then
  what=collector title="an OpenTelemetry collector"
elif [[ ${1-} == cni ]]; then
  what=cni title="what calls CNI plugins"
elif [[ ${1-} == multus ]]; then
  what=multus title="Multus' plugin"
elif [[ ${1-} == flannel ]]; then
  what=flannel title="a pod network of flannel"
elif [[ ${1-} == providers ]]; then
  what=providers title="what ties a cluster to OpenStack"
elif [[ ${1-} == ironcore ]]; then
  what=ironcore title="ironcore and ironcore-net"
elif [[ ${E2E_EXISTING_CLUSTER-} == 1 ]]; then
  say "E2E_EXISTING_CLUSTER=1: the tests use that cluster; nothing is built"
  exit 0
elif [[ -n ${KUBEBUILDER_ASSETS-} ]]; then
  [[ -n $print_only ]] || say "KUBEBUILDER_ASSETS is set: the tests use the programs there; nothing is built"
  echo "$KUBEBUILDER_ASSETS"
  exit 0
else
  what=${1:-${KUBERNETES:-1.36}} title="etcd and Kubernetes ${1:-${KUBERNETES:-1.36}}"
  [[ -f $PINS/kubernetes-$what/go.mod ]] ||
    die "Kubernetes $what is not pinned in e2e/assets; there is: $(cd "$PINS" && echo kubernetes-*)"
fi
folder=$(folder_of "$what")

if [[ -z $print_only && ! -d $folder ]]; then
  command -v go >/dev/null || die "Go 1.21 or newer is needed to build $title (or set KUBEBUILDER_ASSETS)"
  mkdir -p "$ASSETS"
  exec {lock}>"$ASSETS/.lock"
  flock --nonblock "$lock" || { say "another build is under way; waiting for it"; flock "$lock"; }
  if [[ ! -d $folder ]]; then
    child='' new=''
    trap '[[ -z $child ]] || kill "$child" 2>/dev/null; [[ -z $new ]] || rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    say "building $title, once; this takes some minutes"
    build_all "$what" "$folder"
    say "$folder is ready after $(clock "$SECONDS")"
  fi
fi
echo "$folder"
