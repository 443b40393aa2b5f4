#!/bin/bash
# natgw client teardown: removes the default route via NETWORK_GATEWAY with metric CLIENT_METRIC and its netplan file,
# nothing else. Succeeds when nothing is there.
#
# Runs as setup does. Needs NETWORK_GATEWAY; CLIENT_METRIC (30000) as client setup had it; NODE_NAME is for messages.
# Ends with 0: nothing is left; 1: failed half-way, run again; 2: refused, wrong environment; 3: refused, the Node does
# not fit; 4: another natgw script is running. After 2, 3 and 4 nothing has been touched.

set -euf -o pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C # an image's PATH may lack sbin

step="it read its environment"
refused=
say() { echo "natgw-client-teardown${NODE_NAME:+ on $NODE_NAME}: $*"; }
refuse() { refused=$1 && shift && say "refused, nothing was touched: $*" >&2 && exit "$refused"; }
at_exit() {
  local code=$?
  [[ $code == 0 || -n $refused ]] && return
  say "failed while $step; run client teardown again" >&2
  exit 1 # tools fail with 2, 3 and 4 as well, which mean something else here
}
trap at_exit EXIT

# Leading zeros are refused: some tools read them as octal.
is_ipv4() {
  local o='(0|[1-9][0-9]{0,2})' octet
  [[ $1 =~ ^$o\.$o\.$o\.$o$ ]] || return 1
  for octet in "${BASH_REMATCH[@]:1}"; do ((octet <= 255)) || return 1; done
}
number() {
  local IFS=.
  # shellcheck disable=SC2086 # split on the dots
  set -- $1
  echo $((($1 << 24) + ($2 << 16) + ($3 << 8) + $4))
}

NETWORK_GATEWAY=${NETWORK_GATEWAY:-} metric=${CLIENT_METRIC:-30000}
[[ -n $NETWORK_GATEWAY ]] || refuse 2 "NETWORK_GATEWAY is not set: set it to the first address of the private network"
is_ipv4 "$NETWORK_GATEWAY" || refuse 2 "NETWORK_GATEWAY=$NETWORK_GATEWAY is no IPv4 address: correct it"
if [[ ! $metric =~ ^[1-9][0-9]{0,9}$ ]] || ((metric > 4294967295)); then
  refuse 2 "CLIENT_METRIC=$metric is no metric: give a number from 1 to 4294967295"
fi

step="it looked at the Node"
for tool in ip flock; do
  command -v "$tool" >/dev/null || refuse 3 "$tool is missing on the Node: install iproute2 and util-linux"
done

step="it took the lock /run/natgw.lock"
umask 077 # a process of any user that can open the file can hold the lock
exec 9>/run/natgw.lock
umask 022
if ! flock -n 9; then
  say "waiting for another natgw script on this Node"
  # A script takes about a second, netplan included; a minute leaves room for a slow disk, and for the Job's deadline.
  flock -w 60 9 || refuse 4 "another natgw script has held /run/natgw.lock for a minute: look at this Node's natgw Pods"
fi

# The file first: a restart of systemd-networkd in between must not bring the route back.
file=$(printf '/etc/netplan/60-natgw-client-%08X.yaml' "$(number "$NETWORK_GATEWAY")")
step="removing $file"
rm -f "$file.new"
if [[ -e $file ]]; then
  rm -f "$file"
  if command -v netplan >/dev/null; then
    netplan generate 9>&- || say "netplan generate failed after $file was removed: run it by hand" >&2
  fi
fi

step="removing the default route"
routes=$(ip -4 route show default)
IFS=$'\n'
for route in $routes; do
  [[ "$route " == "default via $NETWORK_GATEWAY dev "*" metric $metric "* ]] || continue
  [[ $route =~ \ dev\ ([^ ]+) ]]
  ip -4 route del default via "$NETWORK_GATEWAY" dev "${BASH_REMATCH[1]}" metric "$metric"
done
unset IFS
say "no default route via $NETWORK_GATEWAY with metric $metric is left"
