#!/usr/bin/env bash
# hold.sh: takes a free number for a cluster, prints it, and waits until its standard input closes. The input closes when the
# process at its other end exits or is killed. Then the cluster of that number is taken down, and its number is free again.
#
# A number is free when no process holds its lock and this machine has no route to its network. The leftovers of a killed
# holder are removed here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trap '' INT TERM HUP # A terminal's Ctrl-C must not keep it from cleaning up.

((EUID == 0)) || { echo "a cluster needs root: its nodes are namespaces with mounts, cgroups and routes of their own" >&2; exit 1; }

unused() { [[ -z $(ip -4 route show root "10.$((200 + $1)).0.0/16")$(ip -4 route show match "10.$((200 + $1)).0.0/16" | grep -v '^default') ]]; }

for ((number = 1; number <= 50; number++)); do
  file=/run/lock/perimeter-cluster-$number
  exec {lock}>"$file"
  if flock --nonblock "$lock" && [[ $file -ef /proc/self/fd/$lock ]]; then
    CLUSTER_NUMBER=$number "$here/down.sh" {lock}>&-
    if unused $number; then break; fi
    rm -f "$file"
  fi
  exec {lock}>&-
done
((number <= 50)) || { echo "no network of 10.201.0.0/16 to 10.250.0.0/16 is free on this machine" >&2; exit 1; }

echo "$number"
read -r _ || :
CLUSTER_NUMBER=$number "$here/down.sh" {lock}>&- || echo "cluster $number was not removed" >&2
rm -f "$file"
