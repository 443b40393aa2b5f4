#!/usr/bin/env bash
# Process 1 of the private network: its router. Machines connect themselves; its default route is set from outside,
# by the cloud's API.
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
. "$HERE/machines.sh"
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
for i in all default; do
  echo 0 >/proc/sys/net/ipv4/conf/$i/send_redirects
  echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
done
record fabric

# This machine takes part as well, and reaches nodes, pods and the API.
socket fabric host "$THIS_MACHINE" "$ROUTER"
ip link add host.p type veth peer name "$CLUSTER" netns "$OUTER_NET"
ip link set host.p master host up
nsenter --net="$OUTER_NET" -- bash -ec "
  ip address add $THIS_MACHINE/32 dev $CLUSTER
  ip link set $CLUSTER up
  ip route add $NET.0.0/16 via $ROUTER dev $CLUSTER onlink"
exec sleep infinity
