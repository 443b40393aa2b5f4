#!/bin/bash
# natgw teardown: removes from this Node exactly what setup made for FLOATING_IP, also what a setup left half-way.
# Succeeds when nothing is there. IP forwarding and rp_filter stay: kubelet and CNI need them.
#
# Runs as setup does. Needs FLOATING_IP only; NODE_NAME is for messages.
# Ends with 0: nothing is left; 1: failed half-way, run again; 2: refused, wrong environment; 3: refused, the Node does
# not fit; 4: another natgw script is running. After 2, 3 and 4 nothing has been touched.

set -euf -o pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C # an image's PATH may lack sbin

step="it read its environment"
refused=
say() { echo "natgw-teardown${NODE_NAME:+ on $NODE_NAME}: $*"; }
refuse() { refused=$1 && shift && say "refused, nothing was touched: $*" >&2 && exit "$refused"; }
at_exit() {
  local code=$?
  [[ $code == 0 || -n $refused ]] && return
  say "failed while $step; run teardown again" >&2
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

FLOATING_IP=${FLOATING_IP:-}
[[ -n $FLOATING_IP ]] || refuse 2 "FLOATING_IP is not set: set it to the address whose setup shall be removed"
is_ipv4 "$FLOATING_IP" || refuse 2 "FLOATING_IP=$FLOATING_IP is no IPv4 address: setup cannot have made anything for it"
tag=$(printf 'NATGW-%08X' "$(number "$FLOATING_IP")")

step="it looked at the Node"
for tool in ip flock; do
  command -v "$tool" >/dev/null || refuse 3 "$tool is missing on the Node: install iproute2 and util-linux"
done
# Without iptables it is unknown what is left: the script must not succeed.
command -v iptables >/dev/null || refuse 3 "iptables is missing on the Node, so what setup left cannot be seen: install the package iptables"
for table in nat filter mangle; do
  why=$(iptables -w 10 -t "$table" -S 2>&1 >/dev/null) ||
    refuse 3 "iptables cannot read its table $table: ${why//$'\n'/ }; load the kernel's netfilter modules or choose the other iptables (update-alternatives)"
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

# clear IPTABLES TABLE PARENT
clear() {
  local iptables=$1 table=$2 parent=$3 line rules IFS=$'\n'
  step="removing chain $tag from table $table ($iptables)"
  rules=$("$iptables" -w 10 -t "$table" -S)
  for line in $rules; do # a call for each time it is there
    [[ $line != "-A $parent -j $tag" ]] || "$iptables" -w 10 -t "$table" -D "$parent" -j "$tag"
  done
  for line in $rules; do
    [[ $line == "-N $tag" ]] || continue
    "$iptables" -w 10 -t "$table" -F "$tag"
    "$iptables" -w 10 -t "$table" -X "$tag"
  done
}
# The kernel can hold rules of both kinds: the Node's alternative may have changed since setup. iptables-legacy lists
# only tables that exist, because listing a table creates it.
legacy=
if command -v iptables-legacy >/dev/null && [[ -r /proc/net/ip_tables_names ]]; then
  legacy=$(</proc/net/ip_tables_names) legacy=" ${legacy//$'\n'/ } "
fi
for place in "nat POSTROUTING" "filter FORWARD" "mangle FORWARD"; do
  table=${place% *} parent=${place#* }
  clear iptables "$table" "$parent"
  if [[ $(iptables --version) != *nf_tables* ]]; then
    if command -v iptables-nft >/dev/null; then clear iptables-nft "$table" "$parent"; fi
  elif [[ $legacy == *" $table "* ]]; then
    clear iptables-legacy "$table" "$parent"
  fi
done

file=/etc/netplan/60-natgw-$tag.yaml added=/run/natgw-$tag.added
step="removing $file"
# After a boot, the file is the only record that the address is natgw's.
[[ ! -e $file ]] || : >"$added"
rm -f "$file.new"
if [[ -e $file ]]; then
  rm -f "$file"
  if command -v netplan >/dev/null; then
    netplan generate 9>&- || say "netplan generate failed after $file was removed: run it by hand" >&2
  fi
fi

step="removing $FLOATING_IP"
# own_address INTERFACE IP: it is the Node's own address and no floating IP: DHCP gave it, or the default route names it as source.
own_address() {
  local lines
  lines=$(ip -4 -o addr show dev "$1" && ip -4 route show default dev "$1")
  [[ $lines =~ " inet $2/"[^$'\n']*" dynamic " || " ${lines//$'\n'/ } " == *" src $2 "* ]]
}
ip -4 -o addr show | while read -r _ interface _ address _; do
  interface=${interface%@*}
  [[ $address == "$FLOATING_IP/32" ]] || continue
  if [[ ! -e $added ]] || own_address "$interface" "$FLOATING_IP"; then
    say "$FLOATING_IP stays on $interface: it is this Node's own address, which setup did not add" >&2
  else
    ip addr del "$FLOATING_IP/32" dev "$interface"
  fi
done

rm -f "$added"

# Open connections would still be translated to this address.
if command -v conntrack >/dev/null; then conntrack -D -f ipv4 -q "$FLOATING_IP" >/dev/null 2>&1 || true; fi
say "$FLOATING_IP removed"
