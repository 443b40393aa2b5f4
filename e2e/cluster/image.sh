#!/usr/bin/env bash
# image.sh NAME BINARY[:PATH]...   makes an image of static programs (see image.py) and gives it to every node
# image.sh ARCHIVE.tar             gives an existing OCI archive to every node
#
# There is no registry: refer to it by NAME, with imagePullPolicy IfNotPresent or a tag other than latest. Nodes that start
# later load all images given so far.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/machines.sh"
new=$(mktemp "$STATE/images/.new.XXXXXX")
if [[ $# == 1 && -f $1 ]]; then
  file=$(basename "$1")
  cp "$1" "$new"
else
  file=${1//[\/:]/_}.tar
  python3 "$HERE/image.py" --out="$new" "$@" >/dev/null
fi
mv "$new" "$STATE/images/$file"
for dir in "$STATE"/node-*/; do
  node=$(basename "$dir")
  ! inside "$node" test -S /run/containerd/containerd.sock 2>/dev/null ||
    inside "$node" /opt/perimeter/assets/ctr -n k8s.io images import --local "/opt/perimeter/images/$file" >/dev/null
done
