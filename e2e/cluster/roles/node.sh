#!/usr/bin/env bash
# Process 1 of a node, first half: it still has the host's files, and creates the node's mounts.
# The second half is boot.sh, in there.
#
# A node's root is a plain folder, so that containerd finds no overlay below its own; only /usr and /etc are overlays
# over this machine's. All that a node or a privileged pod writes stays in $STATE/NAME.
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
. "$HERE/cgroups.sh"
. "$HERE/machines.sh"
. "$HERE/pki.sh"
name=$1 number=${1#node-}
dir=$STATE/$name root=$STATE/$name/root ip=$(address_of "$number")

hostname "$name"
# Sysctls of a network namespace may be inherited from the host; these are the values of systemd and a kubelet.
for i in all default; do echo 2 >/proc/sys/net/ipv4/conf/$i/rp_filter; done
echo 1 >/proc/sys/net/ipv4/ip_forward
plug_in "$name" "$ip"
[[ -n $FLANNEL ]] || on fabric ip route replace "$(pods_of "$number")" via "$ip" dev "$name" onlink
if ((number <= ${UPLINKS:-0})); then
  cable internet "$name" eth0 "$(public_of "$number")" $PUBLIC_GATEWAY
  ip route add default via $PUBLIC_GATEWAY dev eth0 src "$(public_of "$number")"
fi

# --- the root file system
mkdir -p "$root"/{usr,etc,proc,sys,dev,run,tmp,root,home,srv,opt/perimeter/{cluster,assets,images,flannel},media,mnt} "$root"/var/{lib,log,tmp,cache}
for link in bin sbin lib lib64; do ln -sfn usr/$link "$root/$link"; done
ln -sfn ../run "$root/var/run"
mount --bind "$root" "$root"
for share in usr etc; do
  mkdir -p "$dir/$share"/{upper,work}
  mount -t overlay -o "lowerdir=/$share,upperdir=$dir/$share/upper,workdir=$dir/$share/work" "$name" "$root/$share"
done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for share in cluster:"$HERE" assets:"$ASSETS" images:"$STATE/images" ${FLANNEL:+flannel:"$FLANNEL"}; do
  mount --bind -o ro "${share#*:}" "$root/opt/perimeter/${share%%:*}"
done

# --- /dev: none of this machine's disks, and no device with which a privileged pod could damage this machine
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root"/dev/{pts,shm,mqueue,net}
while read -r file major minor; do mknod -m 666 "$root/dev/$file" c "$major" "$minor"; done <<'EOT'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
kmsg 1 11
tty 5 0
fuse 10 229
net/tun 10 200
EOT
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"
for link in fd: stdin:/0 stdout:/1 stderr:/2; do ln -s "/proc/self/fd${link#*:}" "$root/dev/${link%:*}"; done

# --- /proc and /sys: cgroups from the node's own downwards
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
findmnt -nro TARGET,FSTYPE,FS-OPTIONS -t tmpfs,cgroup,cgroup2 | while read -r target type options; do
  [[ $target == /sys/fs/cgroup* ]] || continue
  mkdir -p "$root$target"
  mount -t "$type" -o "$options" cgroup "$root$target"
done

# over FILE CONTENT: covers one file of /proc for this node, if the kernel has the file
over() {
  [[ -e $root/$1 ]] || return 0
  echo "$2" >"$root/run/${1//\//-}"
  mount --bind "$root/run/${1//\//-}" "$root/$1"
}
over proc/sys/kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)" # a new one for each boot
over proc/sysrq-trigger ""                                                # would act on this machine
# Values that the kubelet would otherwise write to the host's kernel.
over proc/sys/vm/overcommit_memory 1
over proc/sys/vm/panic_on_oom 0
over proc/sys/kernel/panic 10
over proc/sys/kernel/panic_on_oops 1
over proc/sys/kernel/keys/root_maxkeys 1000000
over proc/sys/kernel/keys/root_maxbytes 25000000

# --- /etc
k8s=$root/etc/kubernetes
rm -f "$root"/etc/{hostname,hosts,resolv.conf,machine-id}
echo "$name" >"$root/etc/hostname"
printf '127.0.0.1 localhost\n%s %s\n' "$ip" "$name" >"$root/etc/hosts"
: >"$root/etc/resolv.conf"
echo "$CLUSTER/$name" | md5sum | cut -c-32 >"$root/etc/machine-id"
mkdir -p "$k8s" "$root/etc/containerd" "$root/etc/cni/net.d"
if [[ ! -e $k8s/kubelet.key ]]; then
  kubeconfig "$name" "/O=system:nodes/CN=system:node:$name" >"$k8s/kubelet.conf"
  kubeconfig "$name-proxy" /CN=system:kube-proxy >"$k8s/kube-proxy.conf"
  server "$name-kubelet" "/O=system:nodes/CN=system:node:$name" "IP:$ip,DNS:$name"
  cp "$pki/ca.crt" "$k8s/"
  cp "$pki/$name-kubelet.crt" "$k8s/kubelet.crt"
  cp "$pki/$name-kubelet.key" "$k8s/kubelet.key"
fi

cat >"$root/etc/containerd/config.toml" <<EOT
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "$PAUSE_IMAGE"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # lowering it needs CAP_SYS_RESOURCE, which this machine's root may lack
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/cni/bin", "/opt/perimeter/assets", "/opt/perimeter/flannel"] # Pods install plugins into the usual one.
EOT

if [[ -n $FLANNEL ]]; then
  # As upstream's ConfigMap has it. The daemon's rules are those of iptables, its default.
  mkdir -p "$root/etc/kube-flannel"
  echo '{"Network": "'"$PODS"'", "Backend": {"Type": "vxlan"}}' >"$root/etc/kube-flannel/net-conf.json"
  [[ -e $k8s/flannel.conf ]] || kubeconfig "$name-flannel" /O=system:masters/CN=flannel >"$k8s/flannel.conf"
  cat >"$root/etc/cni/net.d/10-flannel.conflist" <<EOT
{"cniVersion": "0.3.1", "name": "cbr0", "plugins": [
  {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOT
else
  # The network routes between the pods' ranges, so nothing is masqueraded: the source address of a pod is its own everywhere.
  cat >"$root/etc/cni/net.d/10-pods.conflist" <<EOT
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni/ipam", "ranges": [[{"subnet": "$(pods_of "$number")"}]]}},
  {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}]}
EOT
fi

cat >"$k8s/kubelet.yaml" <<EOT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
clusterDNS: [$DNS_SERVICE]
clusterDomain: cluster.local
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
providerID: "${PROVIDER_ID/\%d/$number}"
EOT

cat >"$k8s/kube-proxy.yaml" <<EOT
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $PROXY_MODE
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.conf}
clusterCIDR: $PODS
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s} # this machine's, not the node's
EOT

record "$name"
cd "$root"
pivot_root . mnt
umount -l /mnt
# The environment of the test must not be visible in a node.
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  CLUSTER_NUMBER="$CLUSTER_NUMBER" ASSETS=/opt/perimeter/assets CONTROL_ASSETS=/opt/perimeter/assets \
  FLANNEL="${FLANNEL:+/opt/perimeter/flannel}" STATE=/run TIMEOUT_FACTOR="${TIMEOUT_FACTOR:-10}" IP="$ip" bash /opt/perimeter/cluster/roles/boot.sh
