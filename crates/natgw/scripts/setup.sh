#!/bin/bash
# natgw setup: makes this Node a NAT gateway for FLOATING_IP. Run it again at any time: it repairs.
#
# Runs as root in a chroot of the Node's /, with the Node's network (hostNetwork), as `/bin/bash -c <this text>`.
# Needs bash 5, iproute2, iptables 1.8 (nft or legacy) and flock: Ubuntu 20.04 and later have them.
#
#   FLOATING_IP       the public IPv4 source address
#   NETWORK_CIDR      range of the private network
#   PRIVATE_IP        the Node's address in it; or NETWORK_GATEWAY, or PRIVATE_IFACE: one of the three finds the interface
#   NETWORK_GATEWAY   first address of NETWORK_CIDR
#   SNAT_SOURCES      optional list of ranges that get FLOATING_IP, instead of NETWORK_CIDR alone (add the pod range here)
#   PUBLIC_IFACE, PRIVATE_IFACE   optional names, when the interfaces cannot be found by address
#   PERSIST_NETPLAN   optional, 0: write no netplan file
#   NODE_NAME         optional, for messages
#   JOB_TYPE          optional, verify: compare the Node with what setup would make, and change nothing
#
# Ends with 0: done; 1: failed half-way, run again; 2: refused, wrong environment; 3: refused, the Node does not fit;
# 4: another natgw script is running; 5: verify has found a difference. After 2, 3, 4 and 5 nothing has been touched.

set -euf -o pipefail
shopt -s inherit_errexit # a comparison that cannot read is no difference
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C # an image's PATH may lack sbin
umask 022

step="it read its environment"
refused=
say() { echo "natgw-setup${NODE_NAME:+ on $NODE_NAME}: $*"; }
refuse() { refused=$1 && shift && say "refused, nothing was touched: $*" >&2 && exit "$refused"; }
at_exit() {
  local code=$?
  [[ $code == 0 || -n $refused ]] && return
  say "failed while $step; run setup again to repair, or teardown to remove what is there" >&2
  exit 1 # tools fail with 2 to 5 as well, which mean something else here
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
  # Wider than /8 is no private range, and would translate the Node's own addresses too.
  is_ipv4 "$ip" && ((bits >= 8 && bits <= 32 && ($(number "$ip") & ((1 << (32 - bits)) - 1)) == 0))
}
in_cidr() { (((($(number "$1") ^ $(number "${2%/*}")) >> (32 - ${2#*/})) == 0)); }
is_interface_name() { [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$ ]]; }

FLOATING_IP=${FLOATING_IP:-} NETWORK_CIDR=${NETWORK_CIDR:-} PRIVATE_IP=${PRIVATE_IP:-} NETWORK_GATEWAY=${NETWORK_GATEWAY:-}
pub=${PUBLIC_IFACE:-} priv=${PRIVATE_IFACE:-}
[[ -n $FLOATING_IP ]] || refuse 2 "FLOATING_IP is not set: set it to the floating IPv4 address of this Node"
is_ipv4 "$FLOATING_IP" || refuse 2 "FLOATING_IP=$FLOATING_IP is no IPv4 address: correct the Node's floating-IP label"
case $FLOATING_IP in
  0.* | 127.* | 22[4-9].* | 23[0-9].* | 24[0-9].* | 25[0-5].*)
    refuse 2 "FLOATING_IP=$FLOATING_IP is no address of a host: correct the Node's floating-IP label" ;;
esac
[[ -n $NETWORK_CIDR ]] || refuse 2 "NETWORK_CIDR is not set: set it to the range of the private network, as 10.0.0.0/8"
is_cidr "$NETWORK_CIDR" || refuse 2 "NETWORK_CIDR=$NETWORK_CIDR is no IPv4 range between /8 and /32: write it as 10.0.0.0/8"
! in_cidr "$FLOATING_IP" "$NETWORK_CIDR" ||
  refuse 2 "FLOATING_IP=$FLOATING_IP lies in the private network $NETWORK_CIDR: give a public address"
for name in PRIVATE_IP NETWORK_GATEWAY; do
  [[ -n ${!name} ]] || continue
  is_ipv4 "${!name}" || refuse 2 "$name=${!name} is no IPv4 address: correct it or leave it out"
  in_cidr "${!name}" "$NETWORK_CIDR" || refuse 2 "$name=${!name} lies outside NETWORK_CIDR=$NETWORK_CIDR: correct one of them"
done
for name in PUBLIC_IFACE PRIVATE_IFACE; do
  [[ -z ${!name:-} ]] || is_interface_name "${!name}" || refuse 2 "$name=${!name} is no name of an interface: correct it"
done
[[ -n $priv$PRIVATE_IP$NETWORK_GATEWAY ]] ||
  refuse 2 "the private interface is not known: set PRIVATE_IP, NETWORK_GATEWAY or PRIVATE_IFACE"
sources=${SNAT_SOURCES:-$NETWORK_CIDR} sources=${sources//,/ }
for range in $sources; do
  is_cidr "$range" || refuse 2 "SNAT_SOURCES: $range is no IPv4 range between /8 and /32: write a list as '10.0.0.0/8 10.244.0.0/16'"
  ! in_cidr "$FLOATING_IP" "$range" || refuse 2 "SNAT_SOURCES: $range contains FLOATING_IP=$FLOATING_IP: correct one of them"
done
[[ -n ${sources// /} ]] || refuse 2 "SNAT_SOURCES holds no range: name one or leave it out"

step="it looked at the Node"
for tool in ip flock; do
  command -v "$tool" >/dev/null || refuse 3 "$tool is missing on the Node: install iproute2 and util-linux"
done
for tool in iptables iptables-restore; do
  command -v "$tool" >/dev/null || refuse 3 "$tool is missing on the Node: install the package iptables"
done
for table in nat filter mangle; do
  why=$(iptables -w 10 -t "$table" -S 2>&1 >/dev/null) ||
    refuse 3 "iptables cannot read its table $table: ${why//$'\n'/ }; load the kernel's netfilter modules or choose the other iptables (update-alternatives)"
done

# The interface that a packet to $1 leaves by; nothing if there is no route.
way_to() {
  local word previous=''
  for word in $(ip -4 -o route get "$1" 2>/dev/null || true); do
    [[ $previous != dev ]] || { echo "$word" && return; }
    previous=$word
  done
}
# The interface that holds the address $1.
holder_of() {
  ip -4 -o addr show | while read -r _ interface _ address _; do
    if [[ ${address%/*} == "$1" ]]; then echo "${interface%@*}"; fi
  done
}
# has_address INTERFACE IP. Ends the script if the addresses cannot be read.
has_address() {
  local lines
  lines=$(ip -4 -o addr show dev "$1") || exit
  [[ $lines == *" inet $2/"* ]]
}
# own_address INTERFACE IP: it is the Node's own address and no floating IP: DHCP gave it, or the default route names it as source.
own_address() {
  local lines
  lines=$(ip -4 -o addr show dev "$1" && ip -4 route show default dev "$1")
  [[ $lines =~ " inet $2/"[^$'\n']*" dynamic " || " ${lines//$'\n'/ } " == *" src $2 "* ]]
}
# Never by a fixed name: eth1, ens10 and enp7s0 all occur. 172.31.1.1 is the gateway of each public interface at Hetzner.
pub=${pub:-$(way_to 172.31.1.1)}
[[ -n $pub ]] || refuse 3 "this Node has no public uplink (no route to 172.31.1.1): take the floating-IP label off it, or set PUBLIC_IFACE"
if [[ -z $priv && -n $PRIVATE_IP ]]; then
  priv=$(holder_of "$PRIVATE_IP") priv=${priv%%$'\n'*}
  [[ -n $priv ]] || refuse 3 "no interface holds PRIVATE_IP=$PRIVATE_IP: attach the server to the network, wait for its DHCP, or set PRIVATE_IFACE"
elif [[ -z $priv ]]; then
  priv=$(way_to "$NETWORK_GATEWAY")
  [[ -n $priv ]] || refuse 3 "no route to NETWORK_GATEWAY=$NETWORK_GATEWAY: attach the server to the network, or set PRIVATE_IFACE"
fi
for interface in "$pub" "$priv"; do
  [[ -e /proc/sys/net/ipv4/conf/$interface/rp_filter ]] || refuse 3 "the Node has no interface $interface: correct PUBLIC_IFACE or PRIVATE_IFACE"
done
[[ $pub != "$priv" ]] ||
  refuse 3 "$pub is the way to the public side and to the private network: this Node has no public uplink; take the floating-IP label off it, or set PUBLIC_IFACE and PRIVATE_IFACE"
# A gateway whose own default route goes through the private network would send packets in a circle. 1.1.1.1 is only looked up.
default=$(way_to 1.1.1.1)
[[ $default == "$pub" ]] ||
  refuse 3 "this Node's own default route leaves by '${default:-nothing}', not by its public interface $pub: give it its own uplink, or take the floating-IP label off it"

! own_address "$pub" "$FLOATING_IP" ||
  refuse 3 "$FLOATING_IP is this Node's own address on $pub, not a floating IP: a teardown would take it away; correct the Node's floating-IP label"

step="it took the lock /run/natgw.lock"
umask 077 # a process of any user that can open the file can hold the lock
exec 9>/run/natgw.lock
umask 022
if ! flock -n 9; then
  say "waiting for another natgw script on this Node"
  # A script takes about a second, netplan included; a minute leaves room for a slow disk, and for the Job's deadline.
  flock -w 60 9 || refuse 4 "another natgw script has held /run/natgw.lock for a minute: look at this Node's natgw Pods"
fi

tag=$(printf 'NATGW-%08X' "$(number "$FLOATING_IP")")

nat=() filter=() mangle=()
for range in $sources; do
  for near in 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16; do nat+=("-s $range -d $near -j RETURN"); done
  nat+=("-s $range -o $pub -j SNAT --to-source $FLOATING_IP --random-fully")
  # Only what comes by the private interface: this Node's own Pods are left to the CNI and its network policies.
  filter+=("-i $priv -o $pub -s $range -j ACCEPT")
  filter+=("-i $pub -o $priv -d $range -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
done
# The private network's MTU is 1450, the public one's is 1500.
clamp="-p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu"
mangle=("-o $pub $clamp" "-o $priv $clamp")

# compare TABLE PARENT RULE…: prints how chain $tag differs from these rules, and whether PARENT calls it. Its place in PARENT is not
# compared: a CNI that puts its own call first would lose that place again and again.
compare() {
  local table=$1 parent=$2 line rule lines code count=0 called=
  shift 2
  lines=$(iptables -w 10 -t "$table" -S)
  while IFS= read -r line; do
    [[ $line != "-A $tag "* ]] || count=$((count + 1))
    [[ $line != "-A $parent -j $tag" ]] || called=1
  done <<<"$lines"
  [[ -n $called ]] || echo "$parent of table $table does not call chain $tag"
  ((count == $#)) || { echo "chain $tag of table $table has $count rules instead of $#" && return; }
  for rule; do
    code=0
    # shellcheck disable=SC2086 # split into words
    iptables -w 10 -t "$table" -C "$tag" $rule 2>/dev/null || code=$?
    ((code < 2)) || return "$code"
    ((code == 0)) || echo "chain $tag of table $table lacks the rule $rule"
  done
}
differences() {
  local interface conf
  has_address "$pub" "$FLOATING_IP" || echo "$pub does not have the address $FLOATING_IP"
  [[ $(</proc/sys/net/ipv4/ip_forward) == 1 ]] || echo "forwarding is off"
  for interface in all "$pub" "$priv"; do
    conf=/proc/sys/net/ipv4/conf/$interface/rp_filter
    [[ $(<"$conf") != 1 ]] || echo "rp_filter of $interface is strict"
  done
  compare nat POSTROUTING "${nat[@]}"
  compare filter FORWARD "${filter[@]}"
  compare mangle FORWARD "${mangle[@]}"
}

step="comparing the Node with its setup"
found=$(differences)
if [[ ${JOB_TYPE:-} == verify ]]; then
  [[ -n $found ]] || { say "$FLOATING_IP is set up on $pub" && exit; }
  say "the Node differs from its setup: ${found//$'\n'/; }" >&2
  refused=5
  exit "$refused"
fi
[[ -z $found ]] || say "to be set up: ${found//$'\n'/; }"

# An address that the server has by itself, as by a static configuration, stays when natgw leaves. natgw's own is recorded before
# it is added, until the next boot, after which netplan has added it by natgw's file.
file=/etc/netplan/60-natgw-$tag.yaml added=/run/natgw-$tag.added own=
step="adding $FLOATING_IP to $pub"
if has_address "$pub" "$FLOATING_IP" && [[ ! -e $added && ! -e $file ]]; then
  own=1
  say "$pub has $FLOATING_IP by another configuration: a teardown leaves it there"
else
  : >"$added"
  ip addr replace "$FLOATING_IP/32" dev "$pub"
fi

step="turning on forwarding"
[[ $(</proc/sys/net/ipv4/ip_forward) == 1 ]] || echo 1 >/proc/sys/net/ipv4/ip_forward
# The kernel uses the larger value of `all` and the interface. Strict (1) drops packets whose replies leave by another interface.
for interface in all "$pub" "$priv"; do
  conf=/proc/sys/net/ipv4/conf/$interface/rp_filter
  [[ $(<"$conf") != 1 ]] || echo 2 >"$conf"
done

# fill TABLE PARENT RULE…: chain $tag gets exactly these rules, and PARENT calls it once, first. One transaction: a gateway
# that is in use never forwards a packet untranslated while setup runs again.
fill() {
  local table=$1 parent=$2 hook line first='' calls=0 rules IFS=$'\n'
  shift 2
  step="filling chain $tag in table $table"
  hook="-A $parent -j $tag"
  rules=$(iptables -w 10 -t "$table" -S "$parent")
  for line in $rules; do
    [[ $line == -A* ]] || continue
    first=${first:-$line}
    [[ $line != "$hook" ]] || calls=$((calls + 1))
  done
  {
    echo "*$table"
    echo ":$tag - [0:0]" # made, or emptied
    printf -- "-A $tag %s\n" "$@"
    if [[ $first != "$hook" || $calls != 1 ]]; then
      while ((calls-- > 0)); do echo "-D $parent -j $tag"; done
      echo "-I $parent 1 -j $tag"
    fi
    echo COMMIT
  } | iptables-restore -w 10 --noflush
}
fill nat POSTROUTING "${nat[@]}"
fill filter FORWARD "${filter[@]}"
fill mangle FORWARD "${mangle[@]}"

# With the file, the address is back at boot, and stays where systemd-networkd removes addresses that it does not know. (Version 252
# keeps them when it restarts.) Only `generate`: `apply` would reconfigure the Node's uplink. Only an interface that netplan has under
# this name: a second definition of one interface would replace the first (with DHCP) at the next boot.
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
if [[ -z $own && ${PERSIST_NETPLAN:-1} == 1 && -d /etc/netplan ]] && command -v netplan >/dev/null; then
  step="writing $file"
  if in_netplan "$pub"; then
    text=$(printf 'network:\n  version: 2\n  ethernets:\n    %s:\n      addresses: ["%s/32"]' "$pub" "$FLOATING_IP")
    if [[ ! -e $file || $(<"$file") != "$text" ]]; then
      (umask 077 && printf '%s\n' "$text" >"$file.new")
      mv -f "$file.new" "$file"
    fi
    if ! netplan generate 9>&-; then
      rm -f "$file"
      netplan generate 9>&- || true
      say "netplan refused $file: the address works, but a restart of systemd-networkd may remove it" >&2
    fi
  else
    say "netplan has no interface $pub: the address works, but a restart of systemd-networkd may remove it" >&2
  fi
fi

step="checking its work"
found=$(differences)
[[ -z $found ]] || { say "after setup, still: ${found//$'\n'/; }" >&2 && exit 1; }
say "$FLOATING_IP on $pub, SNAT for $sources from $priv"
