#!/bin/bash
# natgw client setup: gives this Node a default route into the private network, where the cloud's route leads to the
# primary gateway. Its metric is worse than a public uplink's: a Node that has one keeps using it.
#
# Runs as setup does. Run it again at any time: it repairs.
#
#   NETWORK_GATEWAY   first address of the private network
#   NETWORK_CIDR      range of the private network
#   PRIVATE_IP        the Node's address in it; or PRIVATE_IFACE; without both the interface that leads to NETWORK_GATEWAY
#   CLIENT_METRIC     optional, metric of the route, 30000
#   PERSIST_NETPLAN   optional, 0: write no netplan file
#   NODE_NAME         optional, for messages
#
# Ends with 0: done; 1: failed half-way, run again; 2: refused, wrong environment; 3: refused, the Node does not fit;
# 4: another natgw script is running. After 2, 3 and 4 nothing has been touched.

set -euf -o pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C # an image's PATH may lack sbin
umask 022

step="it read its environment"
refused=
say() { echo "natgw-client-setup${NODE_NAME:+ on $NODE_NAME}: $*"; }
refuse() { refused=$1 && shift && say "refused, nothing was touched: $*" >&2 && exit "$refused"; }
at_exit() {
  local code=$?
  [[ $code == 0 || -n $refused ]] && return
  say "failed while $step; run client setup again to repair, or client teardown to remove what is there" >&2
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
is_cidr() {
  [[ $1 =~ ^([0-9.]+)/([1-9][0-9]?)$ ]] || return 1
  local ip=${BASH_REMATCH[1]} bits=${BASH_REMATCH[2]}
  is_ipv4 "$ip" && ((bits >= 8 && bits <= 32 && ($(number "$ip") & ((1 << (32 - bits)) - 1)) == 0))
}
in_cidr() { (((($(number "$1") ^ $(number "${2%/*}")) >> (32 - ${2#*/})) == 0)); }
is_interface_name() { [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$ ]]; }

NETWORK_GATEWAY=${NETWORK_GATEWAY:-} NETWORK_CIDR=${NETWORK_CIDR:-} PRIVATE_IP=${PRIVATE_IP:-}
priv=${PRIVATE_IFACE:-} metric=${CLIENT_METRIC:-30000}
[[ -n $NETWORK_GATEWAY ]] || refuse 2 "NETWORK_GATEWAY is not set: set it to the first address of the private network"
[[ -n $NETWORK_CIDR ]] || refuse 2 "NETWORK_CIDR is not set: set it to the range of the private network, as 10.0.0.0/8"
is_cidr "$NETWORK_CIDR" || refuse 2 "NETWORK_CIDR=$NETWORK_CIDR is no IPv4 range between /8 and /32: write it as 10.0.0.0/8"
for name in NETWORK_GATEWAY PRIVATE_IP; do
  [[ -n ${!name} ]] || continue
  is_ipv4 "${!name}" || refuse 2 "$name=${!name} is no IPv4 address: correct it"
  in_cidr "${!name}" "$NETWORK_CIDR" || refuse 2 "$name=${!name} lies outside NETWORK_CIDR=$NETWORK_CIDR: correct one of them"
done
[[ -z $priv ]] || is_interface_name "$priv" || refuse 2 "PRIVATE_IFACE=$priv is no name of an interface: correct it"
if [[ ! $metric =~ ^[1-9][0-9]{0,9}$ ]] || ((metric > 4294967295)); then
  refuse 2 "CLIENT_METRIC=$metric is no metric: give a number from 1 to 4294967295"
fi

step="it looked at the Node"
for tool in ip flock; do
  command -v "$tool" >/dev/null || refuse 3 "$tool is missing on the Node: install iproute2 and util-linux"
done
if [[ -z $priv && -n $PRIVATE_IP ]]; then
  priv=$(ip -4 -o addr show | while read -r _ interface _ address _; do
    if [[ ${address%/*} == "$PRIVATE_IP" ]]; then echo "${interface%@*}"; fi
  done)
  priv=${priv%%$'\n'*}
  [[ -n $priv ]] || refuse 3 "no interface holds PRIVATE_IP=$PRIVATE_IP: attach the server to the network, wait for its DHCP, or set PRIVATE_IFACE"
fi
[[ -z $priv || -e /proc/sys/net/ipv4/conf/$priv/rp_filter ]] || refuse 3 "the Node has no interface $priv: correct PRIVATE_IFACE"

# The gateway has to be a neighbour on that interface: not this Node itself, not behind another router (`via`).
way=$(ip -4 -o route get "$NETWORK_GATEWAY" 2>/dev/null) || way=
[[ -n $way ]] || refuse 3 "no route to NETWORK_GATEWAY=$NETWORK_GATEWAY: attach the server to the network, or wait for its DHCP"
leads=''
if [[ " $way" != *" via "* && " $way" != *" local "* && $way =~ \ dev\ ([^ ]+) ]]; then leads=${BASH_REMATCH[1]}; fi
[[ -n $leads && ${priv:-$leads} == "$leads" ]] ||
  refuse 3 "NETWORK_GATEWAY=$NETWORK_GATEWAY is not directly reachable${priv:+ on $priv} (${way%%\\*}): the Node is not in this network, or NETWORK_GATEWAY is wrong"
priv=$leads
inside=$(ip -4 -o addr show dev "$priv" | while read -r _ _ _ address _; do
  if in_cidr "${address%/*}" "$NETWORK_CIDR"; then echo "$address"; fi
done)
[[ -n $inside ]] || refuse 3 "$priv, which leads to NETWORK_GATEWAY=$NETWORK_GATEWAY, has no address in $NETWORK_CIDR: it is no interface of this network"

step="it took the lock /run/natgw.lock"
umask 077 # a process of any user that can open the file can hold the lock
exec 9>/run/natgw.lock
umask 022
if ! flock -n 9; then
  say "waiting for another natgw script on this Node"
  # A script takes about a second, netplan included; a minute leaves room for a slow disk, and for the Job's deadline.
  flock -w 60 9 || refuse 4 "another natgw script has held /run/natgw.lock for a minute: look at this Node's natgw Pods"
fi

step="adding the default route"
there=
routes=$(ip -4 route show default)
IFS=$'\n'
for route in $routes; do
  [[ "$route " == *" metric $metric "* ]] || continue
  there=$route
  [[ $route == "default via $NETWORK_GATEWAY dev "* ]] ||
    refuse 3 "there is another default route with metric $metric ($route): set CLIENT_METRIC to a number that is free"
done
unset IFS
if [[ "$there " != "default via $NETWORK_GATEWAY dev $priv "* ]]; then
  # The gateway need not lie in a connected range: servers have a /32.
  ip -4 route replace default via "$NETWORK_GATEWAY" dev "$priv" onlink metric "$metric"
fi

# See setup: only `generate`, and only an interface that netplan has under this very name. `to: default` is unknown to the
# netplan of Ubuntu 20.04.
in_netplan() {
  local file line
  set +f
  for file in /{lib,run,etc}/netplan/*.yaml; do
    [[ -r $file && $file != */60-natgw-* ]] || continue
    while IFS= read -r line || [[ -n $line ]]; do
      [[ $line =~ ^[[:space:]]+[\"\']?"$1"[\"\']?: ]] && set -f && return
    done <"$file"
  done
  set -f
  return 1
}
file=$(printf '/etc/netplan/60-natgw-client-%08X.yaml' "$(number "$NETWORK_GATEWAY")")
if [[ ${PERSIST_NETPLAN:-1} == 1 && -d /etc/netplan ]] && command -v netplan >/dev/null; then
  step="writing $file"
  if in_netplan "$priv"; then
    text=$(printf 'network:\n  version: 2\n  ethernets:\n    %s:\n      routes: [{to: 0.0.0.0/0, via: %s, on-link: true, metric: %s}]' \
      "$priv" "$NETWORK_GATEWAY" "$metric")
    if [[ ! -e $file || $(<"$file") != "$text" ]]; then
      (umask 077 && printf '%s\n' "$text" >"$file.new")
      mv -f "$file.new" "$file"
    fi
    if ! netplan generate 9>&-; then
      rm -f "$file"
      netplan generate 9>&- || true
      say "netplan refused $file: the route works, but a restart of systemd-networkd may remove it" >&2
    fi
  else
    say "netplan has no interface $priv: the route works, but a restart of systemd-networkd may remove it" >&2
  fi
fi

step="checking its work"
[[ $(ip -4 route show default) == *"default via $NETWORK_GATEWAY dev $priv "*"metric $metric"* ]]
say "default via $NETWORK_GATEWAY dev $priv metric $metric"
