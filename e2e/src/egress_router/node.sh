# shellcheck shell=sh
# The node's side of a cluster, as a container runtime, a pod network and kube-proxy leave it.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
ip route add default via 192.168.50.1
ip -6 route add default via 2001:db8:50::1
ip link add cluster0 type bridge
ip addr add 10.244.1.1/24 dev cluster0
ip addr add fd00:244:1::1/64 dev cluster0 nodad
ip addr add fe80::1/64 dev cluster0 nodad
ip link set cluster0 up
ip route add 10.244.2.0/24 via 10.1.0.2
ip -6 route add fd00:244:2::/64 via fd00:1::2
nft -f - <<'RULES'
table ip cluster {
  chain services { type nat hook prerouting priority dstnat; ip daddr 172.30.0.10 dnat to 10.244.2.5; }
  chain own { type nat hook output priority -100; ip daddr 172.30.0.10 dnat to 10.244.2.5; }
  chain out { type nat hook postrouting priority srcnat; oifname "uplink*" ip saddr 10.244.0.0/16 masquerade; }
}
table ip6 cluster {
  chain services { type nat hook prerouting priority dstnat; ip6 daddr fd00:172::10 dnat to fd00:244:2::5; }
  chain own { type nat hook output priority -100; ip6 daddr fd00:172::10 dnat to fd00:244:2::5; }
  chain out { type nat hook postrouting priority srcnat; oifname "uplink*" ip6 saddr fd00:244::/32 masquerade; }
}
RULES
# State of its own, as /run and /etc are already.
mkdir -p /run/lab/lib
mount --rbind /var/lib /run/lab/lib
mount -t tmpfs -o mode=755 lab /var/lib
find /run/lab/lib -mindepth 1 -maxdepth 1 ! -name cni -exec ln -s -t /var/lib {} +
mount -t tmpfs -o mode=755 lab /var/log
mkdir -p /run/netns
rm -f /etc/cni
mkdir -p /etc/cni/net.d/egress-router.d
