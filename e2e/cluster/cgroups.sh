# shellcheck shell=bash
# The cluster's control groups; sourced after settings.sh.
#
#   CLUSTER/power      what switches machines on, and everything that has no machine
#   CLUSTER/node-1     the root of node-1's own cgroup namespace
#     init             all that is not a pod there (v2 only: a cgroup that hands controllers on holds no process itself)
#     kubepods         the kubelet's
#
# Each process of a cluster is in here, whatever became of the script that started it: that is how down.sh finds it.

# Whether the controllers are in the one hierarchy of cgroup v2; else in several of v1, as Docker on old systems has them.
unified() { [[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]]; }

# cgroups NAME: the folders of the cgroup NAME, one for each hierarchy
cgroups() { findmnt -nro TARGET -t cgroup,cgroup2 | grep '^/sys/fs/cgroup' | sed "s|\$|/$1|"; }

# hand_on DIR: lets the groups below a cgroup of v2 have all the controllers that it has
hand_on() {
  local controller
  for controller in $(<"$1/cgroup.controllers"); do
    # One that cannot be (cpu, while a realtime process runs outside of the root) must not cost us the others.
    echo "+$controller" >"$1/cgroup.subtree_control" 2>/dev/null || say "$1: no controller $controller below"
  done
}

# make NAME: the cgroup CLUSTER/NAME
make() {
  local dir set
  for dir in $(cgroups "$CLUSTER/$1"); do
    mkdir -p "$dir"
    if unified; then
      hand_on "${dir%"/$CLUSTER/$1"}"
      hand_on "${dir%"/$1"}"
    elif [[ -e $dir/cpuset.cpus ]]; then # Born empty, and nothing can enter it so.
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

# members NAME: the processes in the cgroup NAME and below
members() {
  local dir
  for dir in $(cgroups "$1"); do [[ ! -d $dir ]] || find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null || :; done | sort -u
}

# remove NAME: the cgroup NAME and all below it, when what was in them is gone
remove() {
  local dir
  for dir in $(cgroups "$1"); do
    [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || return 1
  done
}
