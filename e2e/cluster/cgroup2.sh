#!/usr/bin/env bash
# cgroup2.sh machine: tests on a kernel with only cgroup v2 that a machine's cgroup delegates its controllers, contains no
#   process itself, survives a reset, and is removed at the end.
# cgroup2.sh node: tests the same with a whole node: the node is Ready, and the kernel has the limits of a Job's pod.
#   `make test-cgroup2` runs it on a stock Debian kernel.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
. "$HERE/cgroups.sh"
unified || die "this machine has the hierarchies of cgroup v1"
trap '"$HERE/down.sh"; [[ ! -e /sys/fs/cgroup/$CLUSTER ]] || die "a cgroup is left"' EXIT

prove_machine() {
  local group=/sys/fs/cgroup/$CLUSTER/internet pid
  mkdir -p "$STATE"
  "$HERE/machine.sh" start internet
  pid=$(<"$STATE/internet/pid")
  "$HERE/machine.sh" reboot internet
  # shellcheck disable=SC2317 # until_ok calls it
  rebooted() { [[ $(<"$STATE/internet/pid") != "$pid" ]] && kill -0 "$(<"$STATE/internet/pid")"; }
  until_ok 10 rebooted
  [[ -z $(<"$group/cgroup.procs") ]] || die "the machine's own cgroup holds processes, so it cannot hand controllers on"
  grep -qx "$(<"$STATE/internet/pid")" "$group/init/cgroup.procs" || die "process 1 is not in init"
  # A node's process 1 does this, and then its kubelet.
  delegate "$group"
  mkdir "$group/kubepods"
  echo "controllers that reach kubepods: $(<"$group/kubepods/cgroup.controllers")"
  echo "50000 100000" >"$group/kubepods/cpu.max"
  echo 33554432 >"$group/kubepods/memory.max"
  [[ -e $group/kubepods/cpu.weight && -e $group/kubepods/pids.max ]] || die "cpu or pids does not reach kubepods"
}

prove_node() {
  local image=perimeter.dev/busybox:1 limits
  "$HERE/up.sh" 1
  echo "Ready after $SECONDS s"
  "$HERE/image.sh" $image /bin/busybox:/bin/cat
  kubectl apply -f - <<YAML
apiVersion: batch/v1
kind: Job
metadata: {name: limits}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: limits
          image: $image
          args: [/sys/fs/cgroup/cpu.max, /sys/fs/cgroup/memory.max]
          resources: {limits: {cpu: 500m, memory: 32Mi}}
YAML
  kubectl wait --for=condition=Complete job/limits --timeout=$((60 * ${TIMEOUT_FACTOR:-10}))s
  limits=$(kubectl logs job/limits)
  echo "the pod's limits in its kernel: ${limits//$'\n'/; }"
  [[ $limits == $'50000 100000\n33554432' ]] || die "they are not 500m and 32Mi"
}

"prove_$1"
echo "done after $SECONDS s"
