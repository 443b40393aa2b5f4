#!/usr/bin/env bash
# Process 1 of the Internet: one host, and the routes to all public interfaces. Servers are started in it from outside.
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
. "$HERE/machines.sh"
ip link set lo up
ip address add $INTERNET_HOST/32 dev lo
for i in all default; do echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter; done
record internet
exec sleep infinity
