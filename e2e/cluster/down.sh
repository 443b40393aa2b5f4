#!/usr/bin/env bash
# down.sh: takes the cluster CLUSTER_NUMBER down and removes all of it, also the leftovers of a killed up.sh.
#
# The kernel removes the namespaces, mounts, links, routes and rules with the processes, because none of them has a name outside.
# The cgroups and $STATE remain, and are removed here.
ASSETS='' CONTROL_ASSETS=''
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/cgroups.sh"

pids=
for ((i = 0; i < 200; i++)); do
  mapfile -t pids < <(members "$CLUSTER" | grep -vx -e $$ -e 0)
  ((${#pids[@]})) || break
  kill -9 "${pids[@]}" 2>/dev/null || :
  sleep 0.05
done
((${#pids[@]} == 0)) || die "these do not die: ${pids[*]}"
# The kernel removes the last process from a cgroup shortly after it has exited.
until_ok 10 remove "$CLUSTER"
rm -rf --one-file-system "$STATE"
