#!/usr/bin/env bash
# assets.sh [KUBERNETES]: makes sure that the control plane of the tests is built, and prints its folder: etcd,
# kube-apiserver and kube-controller-manager, as KUBEBUILDER_ASSETS would name it. KUBERNETES is 1.36 (default) or any
# other that e2e/assets/ pins; progress goes to standard error.
# assets.sh --print [KUBERNETES]: prints the folder, there or not, and builds nothing.
#
# Programs are built once, from their modules, with Go 1.21 or newer, which fetches the Go that they ask for. They stay in
# ${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-~/.cache}/perimeter}, in a folder for each set of pins.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly PINS=$HERE/e2e/assets
readonly ASSETS=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}
readonly RECIPE=1 # Counts up when the way of building below changes what is built.
readonly HEARTBEAT=20

say() { printf 'assets: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

version() { # FOLDER MODULE: the version pinned
  awk -v m="$2" '$1 == m && $2 ~ /^v/ { print $2; exit }' "$PINS/$1/go.mod"
}

folder_of() { # KUBERNETES: the name holds all that decides what is in it
  local key
  key=$(cat "$PINS"/{etcd,"kubernetes-$1"}/go.{mod,sum} <(echo "$RECIPE $(uname -sm)") | sha256sum)
  echo "$ASSETS/kubernetes-$(version "kubernetes-$1" k8s.io/kubernetes)-${key:0:12}"
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

build() { # PINS PACKAGE OUTPUT [LDFLAGS]
  local name=${3##*/} log=$3.log begun=$SECONDS next=$HEARTBEAT elapsed
  name="$name $(version "$1" "${2%%/cmd/*}")"
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

build_all() { # KUBERNETES FOLDER
  local k8s=kubernetes-$1 v major minor stamp=k8s.io/component-base/version
  export GOTOOLCHAIN=auto CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false -mod=readonly"
  v=$(version "$k8s" k8s.io/kubernetes)
  IFS=. read -r major minor _ <<<"${v#v}"
  stamp="-X $stamp.gitVersion=$v -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor -X $stamp.gitTreeState=clean"

  rm -rf "$ASSETS"/*.new.* # Of builds that were killed: the lock is ours.
  new=$(mktemp -d "$2.new.XXXXXX")
  chmod 755 "$new"
  build etcd go.etcd.io/etcd/server/v3 "$new/etcd"
  build "$k8s" k8s.io/kubernetes/cmd/kube-apiserver "$new/kube-apiserver" "$stamp"
  build "$k8s" k8s.io/kubernetes/cmd/kube-controller-manager "$new/kube-controller-manager" "$stamp"
  mv -T "$new" "$2"
  new=
}

print_only=
if [[ ${1-} == --print ]]; then
  print_only=yes
  shift
fi
[[ $# -le 1 && ${1-} != -* ]] || die "usage: assets.sh [--print] [KUBERNETES]"

if [[ ${E2E_EXISTING_CLUSTER-} == 1 ]]; then
  say "E2E_EXISTING_CLUSTER=1: the tests use that cluster; nothing is built"
  exit 0
elif [[ -n ${KUBEBUILDER_ASSETS-} ]]; then
  [[ -n $print_only ]] || say "KUBEBUILDER_ASSETS is set: the tests use the programs there; nothing is built"
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi

kubernetes=${1:-${KUBERNETES:-1.36}}
[[ -f $PINS/kubernetes-$kubernetes/go.mod ]] ||
  die "Kubernetes $kubernetes is not pinned in e2e/assets; there is: $(cd "$PINS" && echo kubernetes-*)"
folder=$(folder_of "$kubernetes")

if [[ -z $print_only && ! -d $folder ]]; then
  command -v go >/dev/null || die "Go 1.21 or newer is needed to build the control plane (or set KUBEBUILDER_ASSETS)"
  mkdir -p "$ASSETS"
  exec {lock}>"$ASSETS/.lock"
  flock --nonblock "$lock" || { say "another build is under way; waiting for it"; flock "$lock"; }
  if [[ ! -d $folder ]]; then
    child='' new=''
    trap '[[ -z $child ]] || kill "$child" 2>/dev/null; [[ -z $new ]] || rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    say "building etcd and Kubernetes $kubernetes, once; this takes some minutes"
    build_all "$kubernetes" "$folder"
    say "$folder is ready after $(clock "$SECONDS")"
  fi
fi
echo "$folder"
