// A daemon around the packages of flannel, as k3s has one: flannel's own main package imports the backends of all clouds, and the
// module proxy does not serve the modules of one of them. Backend and network come from the file that upstream's ConfigMap has,
// NODE_NAME names the Node.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
	"k8s.io/klog/v2"
)

// Seconds until changed rules are written again; flannel's default.
const resync = 5

func main() {
	kubeconfig := flag.String("kubeconfig-file", "", "kubeconfig")
	conf := flag.String("net-config-path", "/etc/kube-flannel/net-conf.json", "the network")
	file := flag.String("subnet-file", "/run/flannel/subnet.env", "is written for the CNI plugin")
	name := flag.String("iface", "", "interface of the node's address")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *conf, *file, *name); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, conf, file, name string) error {
	manager, err := kube.NewSubnetManager(ctx, "", kubeconfig, "flannel.alpha.coreos.com", conf, true)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	external, err := ipmatch.LookupExtIface(name, "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	kind, err := backend.NewManager(ctx, manager, external).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	var tasks sync.WaitGroup
	network, err := kind.RegisterNetwork(ctx, &tasks, config)
	if err != nil {
		return err
	}
	var rules trafficmngr.TrafficManager = &iptables.IPTablesManager{}
	if config.EnableNFTables {
		rules = &nftables.NFTablesManager{}
	}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	lease := network.Lease()
	if err := rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network,
		ip.IP6Net{}, ip.IP6Net{}, lease, resync, false); err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	if err := manager.HandleSubnetFile(file, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return err
	}
	tasks.Go(func() { network.Run(ctx) })
	err = manager.CompleteLease(ctx, lease, &tasks)
	tasks.Wait()
	return err
}
