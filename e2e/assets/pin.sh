#!/usr/bin/env bash
# pin.sh: writes the go.mod and go.sum of each folder here again. Edit the last lines and run it to move to other
# versions; nothing else needs it.
#
# A folder is a Go module without code of its own: its "tool" lines name the programs, the rest pins all that they are
# made of. Needs Go and the Go module proxy.
set -euo pipefail
cd "$(dirname "$0")"
export GOTOOLCHAIN=auto GOFLAGS=

pin() { # FOLDER MODULE@VERSION PROGRAM...: programs are paths within the module
  local folder=$1 module=${2%@*} version=${2#*@} upstream program
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
    awk -v v="v0.${version#v1.}" '$2 == "=>" && $3 ~ /^\.\/staging/ { print "replace", $1, "=>", $1, v }' \
      "$upstream" >>go.mod
    for program in "${@:3}"; do go get -tool "$module$program@$version"; done
    go mod tidy
  )
}

kubernetes=(/cmd/kube-apiserver /cmd/kube-controller-manager)
pin etcd go.etcd.io/etcd/server/v3@v3.6.11 ""
pin kubernetes-1.36 k8s.io/kubernetes@v1.36.3 "${kubernetes[@]}"
pin kubernetes-1.33 k8s.io/kubernetes@v1.33.13 "${kubernetes[@]}"
