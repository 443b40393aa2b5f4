# shellcheck shell=bash
# The cluster's control groups; sourced after settings.sh.
#
#   CLUSTER/power      the power supplies of machines, and all processes without a machine
#   CLUSTER/node-1     the root of node-1's own cgroup namespace
#     init             all processes except pods (v2 only: a cgroup that delegates controllers must not contain processes)
#     kubepods         the kubelet's
#
# Every process of a cluster is in one of these cgroups, so that down.sh finds it.

# Whether the controllers are in the one hierarchy of cgroup v2. Otherwise they are in several of v1, as in Docker on old systems.
unified() { [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; }

# Of cgroup v1. A cgroup has the weight of one process of the root cgroup (1024) by default, whatever is in it: beside a hundred processes
# of other tests, a whole cluster would get a hundredth of the processors.
SHARES=32768

# cgroups NAME: the folders of the cgroup NAME, one for each hierarchy
cgroups() { findmnt -nro TARGET -t cgroup,cgroup2 | grep '^/sys/fs/cgroup' | sed "s|\$|/$1|"; }

# delegate DIR: enables all controllers of a cgroup v2 for its children
delegate() {
  local controller
  for controller in $(<"$1/cgroup.controllers"); do
    # One at a time, because a failure (cpu, with a realtime process outside of the root) must not affect the others.
    echo "+$controller" >"$1/cgroup.subtree_control" 2>/dev/null || say "$1: no controller $controller below"
  done
}

# make NAME: creates the cgroup CLUSTER/NAME
make() {
  local dir set
  for dir in $(cgroups "$CLUSTER/$1"); do
    mkdir -p "$dir"
    [[ ! -e ${dir%"/$1"}/cpu.shares ]] || echo "$SHARES" >"${dir%"/$1"}/cpu.shares"
    if unified; then
      delegate "${dir%"/$CLUSTER/$1"}"
      delegate "${dir%"/$1"}"
    elif [[ -e $dir/cpuset.cpus ]]; then # It is initially empty, and then no process can be added.
      for set in "${dir%"/$1"}" "$dir"; do
        cat "${set%/*}/cpuset.cpus" >"$set/cpuset.cpus"
        cat "${set%/*}/cpuset.mems" >"$set/cpuset.mems"
      done
    fi
  done
}

# enter NAME: moves the calling shell, and so all that it starts, into the cgroup CLUSTER/NAME
enter() {
  local dir
  for dir in $(cgroups "$CLUSTER/$1"); do echo $BASHPID >"$dir/cgroup.procs"; done
}

# members NAME: prints the processes in the cgroup NAME and below
members() {
  local dir
  for dir in $(cgroups "$1"); do [[ ! -d $dir ]] || find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null || :; done | sort -u
}

# remove NAME: removes the cgroup NAME and all below it, if their processes are gone
remove() {
  local dir
  for dir in $(cgroups "$1"); do
    [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || return 1
  done
}
