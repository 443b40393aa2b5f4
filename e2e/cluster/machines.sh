# shellcheck shell=bash
# Functions to control a machine from outside, and its network from its process 1; sourced after settings.sh.

# record NAME: writes the PID of the calling process 1 in the host's PID namespace, whose /proc it still has
record() {
  local pid
  read -r pid _ </proc/self/stat
  echo "$pid" >"$STATE/$1/pid"
}

# inside NAME COMMAND...: runs a command in all namespaces of a machine
inside() { nsenter --target "$(<"$STATE/$1/pid")" --mount --uts --ipc --net --pid --cgroup -- "${@:2}"; }

# on NAME COMMAND...: runs a command of this machine in the network namespace of another
on() { nsenter --net="/proc/$(<"$STATE/$1/pid")/ns/net" -- "${@:2}"; }

# hardware PREFIX IP: a fixed hardware address, so that neighbours need no update after a reboot
hardware() {
  # shellcheck disable=SC2086 # split on the dots
  printf "$1:%02x:%02x:%02x:%02x" ${2//./ }
}

# socket NETWORK NAME ADDRESS GATEWAY: the port of the machine NAME in the fabric or the Internet. A server of Hetzner has no
# neighbour except the network's router. The socket is a bridge with one port, so that routes to it survive a disconnected cable.
socket() {
  on "$1" ip link show "$2" &>/dev/null || on "$1" ip link add "$2" address "$(hardware 02:01 "$3")" type bridge
  on "$1" ip address replace "$4/32" dev "$2"
  on "$1" ip link set "$2" up
  on "$1" ip route replace "$3/32" dev "$2"
}

# cable NETWORK NAME INTERFACE ADDRESS GATEWAY: a cable from the calling process 1 of the machine NAME to its socket
cable() {
  socket "$1" "$2" "$4" "$5"
  on "$1" ip link delete "$2.p" 2>/dev/null || : # Of the previous boot.
  ip link add "$3" address "$(hardware 02:00 "$4")" type veth peer name "$2.p" netns "/proc/$(<"$STATE/$1/pid")/ns/net"
  on "$1" ip link set "$2.p" master "$2" up
  ip address add "$4/32" dev "$3"
  ip link set "$3" up
  ip route add "$5" dev "$3"
}

# plug_in NAME ADDRESS: the private interface, as Hetzner's DHCP makes it
plug_in() {
  ip link set lo up
  cable fabric "$1" ens10 "$2" "$ROUTER"
  ip route add "$NET.0.0/16" via "$ROUTER" dev ens10
}
