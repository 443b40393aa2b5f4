// Command libcni calls plugins as runtimes (a list) and Multus (one plugin) do, with the library that both use:
// libcni add|check|del|gc|status|version, with a network configuration or a list on standard input, and of the environment
// CNI_PATH, CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, and CAP_ARGS (JSON; what goes into runtimeConfig).
// ADD prints its result; results are kept in /var/lib/cni, as runtimes do.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(verb string) error {
	ctx := context.Background()
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var head struct{ Plugins []any }
	if err := json.Unmarshal(stdin, &head); err != nil {
		return err
	}
	cni := libcni.NewCNIConfig([]string{os.Getenv("CNI_PATH")}, nil)
	rt := &libcni.RuntimeConf{
		ContainerID: os.Getenv("CNI_CONTAINERID"), NetNS: os.Getenv("CNI_NETNS"), IfName: os.Getenv("CNI_IFNAME"),
		Args: [][2]string{
			{"IgnoreUnknown", "true"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", os.Getenv("CNI_CONTAINERID")},
		},
	}
	if capabilities := os.Getenv("CAP_ARGS"); capabilities != "" {
		if err := json.Unmarshal([]byte(capabilities), &rt.CapabilityArgs); err != nil {
			return err
		}
	}
	if head.Plugins != nil {
		list, err := libcni.NetworkConfFromBytes(stdin)
		if err != nil {
			return err
		}
		switch verb {
		case "add":
			return show(cni.AddNetworkList(ctx, list, rt))
		case "check":
			return cni.CheckNetworkList(ctx, list, rt)
		case "del":
			return cni.DelNetworkList(ctx, list, rt)
		case "gc":
			valid := []types.GCAttachment{{ContainerID: rt.ContainerID, IfName: rt.IfName}}
			return cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
		case "status":
			return cni.GetStatusNetworkList(ctx, list)
		case "version":
			versions, err := cni.ValidateNetworkList(ctx, list)
			fmt.Println(versions)
			return err
		}
		return fmt.Errorf("%s is no verb of a list", verb)
	}
	conf, err := libcni.NetworkPluginConfFromBytes(stdin)
	if err != nil {
		return err
	}
	switch verb {
	case "add":
		return show(cni.AddNetwork(ctx, conf, rt))
	case "check":
		return cni.CheckNetwork(ctx, conf, rt)
	case "del":
		return cni.DelNetwork(ctx, conf, rt)
	case "version":
		info, err := cni.GetVersionInfo(ctx, conf.Network.Type)
		if err == nil {
			fmt.Println(info.SupportedVersions())
		}
		return err
	}
	return fmt.Errorf("%s is no verb of one plugin", verb)
}

func show(result types.Result, err error) error {
	if err != nil {
		return err
	}
	return result.Print()
}
