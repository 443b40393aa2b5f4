#!/usr/bin/env bash
# machine.sh ACTION NAME [COMMAND...]: the switches of one machine: fabric, internet, control-plane, node-1, node-2 …
#   start    power on (a new node joins the cluster)       stop     power off at once
#   reboot   the reset button                              cut      pull its network cables
#   exec     runs a command in it                          join     plug them in again
#
# A machine is a set of namespaces with one process 1. When process 1 exits, the kernel removes all processes, mounts and links of
# the machine. reboot(2) in a PID namespace kills its process 1 with SIGHUP, halt with SIGINT. So a privileged pod with hostPID
# can reboot its node, and never this machine.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/cgroups.sh"
. "$HERE/machines.sh"
action=$1 name=$2 dir=$STATE/$2
shift 2

# runs FILE: whether the process with the PID in the file runs; a zombie does not
runs() { [[ -e $1 ]] && grep -q '^State:[[:space:]]*[^Z]' "/proc/$(<"$1")/status" 2>/dev/null; }
alive() { runs "$dir/pid"; }
# The machine is off when its power supply has exited too; otherwise it would boot a second instance.
gone() { ! alive && ! runs "$dir/power"; }
# Before the end of process 1 they are cut: the kernel removes the nf_tables rules of a network namespace before its links, so
# that a machine without rules would forward packets for some milliseconds, as no machine without power does.
cables() { # up | down
  local network port
  for network in fabric internet; do
    for port in "$name.p" "$name.s"; do # .s: of the segment
      ! on $network ip link show "$port" &>/dev/null || on $network ip link set "$port" "$1"
    done
  done
}

case $action in
  start)
    mkdir -p "$dir"
    gone || die "$name is running"
    rm -f "$dir"/{off,pid}
    setsid "$HERE/machine.sh" power "$name" </dev/null >>"$dir/log" 2>&1 &
    echo $! >"$dir/power"
    (until_ok 60 alive) || { tail -n 20 "$dir/log" >&2; die "$name does not start"; }
    if [[ $name == node-* ]]; then # Only for readers of the API: the node's CNI configuration already contains the range.
      range=$(pods_of "${name#node-}")
      until_ok 60 kubectl get node "$name"
      kubectl patch node "$name" -p '{"spec": {"podCIDR": "'"$range"'", "podCIDRs": ["'"$range"'"]}}' >/dev/null
    fi
    ;;
  power) # Not for the command line: the power supply of a machine.
    make power
    enter power
    export OUTER_NET=/proc/$$/ns/net # Of this machine: process 1 starts in a namespace of its own.
    until [[ -e $dir/off ]]; do
      # Cgroups of the previous boot would cost the kubelet's cadvisor 3 s for each container.
      until_ok 10 remove "$CLUSTER/$name"
      make "$name"
      status=0
      (enter "$name" && exec unshare --cgroup "$HERE/machine.sh" boot "$name") || status=$?
      ((status != 128 + 2)) || touch "$dir/off"
      sleep 0.2 # Limits the rate of failed boots.
    done
    ;;
  boot) # Not for the command line either.
    # The node's cgroup namespace is made: from here on its root contains no process, so that it can delegate controllers.
    if unified; then
      mkdir -p "/sys/fs/cgroup/$CLUSTER/$name/init"
      enter "$name/init"
    fi
    exec unshare --mount --uts --ipc --net --pid --fork --kill-child "$HERE/roles/${name%-[0-9]*}.sh" "$name"
    ;;
  stop)
    touch "$dir/off"
    cables down
    kill -9 "$(<"$dir/pid")" || :
    until_ok 10 gone
    ;;
  reboot)
    cables down
    kill -9 "$(<"$dir/pid")"
    ;;
  cut) cables down ;;
  join) cables up ;;
  exec) inside "$name" "$@" ;;
  *) die "unknown action $action" ;;
esac
