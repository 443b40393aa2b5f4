//! Command line of `cgw agent`. Flags of a driver are refused with another driver, so none is ignored.

use std::{net::Ipv4Addr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args as Group, ValueEnum};
use common::{args::duration, cache::ObjectKey, command::PlanArgs};
use ipnet::Ipv4Net;

use super::{
    ovs::{self, plan::PortMode, profile::Profile},
    plan::{Config, MacRule},
    vxlan::{self, plan::max_tun_id},
};
use crate::{api::TunId, args::ProcessArgs, names};

/// Programs the datapath of this node
#[derive(Group, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub vxlan: VxlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub ovs: OvsArgs,
}

/// Flags of both drivers.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Agent")]
pub struct OwnArgs {
    /// Driver of the datapath
    #[arg(long, env = "PERIMETER_DRIVER", value_enum, default_value_t = DriverName::Vxlan, value_name = "NAME")]
    pub driver: DriverName,
    /// Name of the Node that this agent runs on
    #[arg(long, env = "NODE_NAME", value_name = "NAME", required_unless_present = "uninstall")]
    pub node_name: Option<String>,
    /// Pod network of IPv4; may be repeated, or joined with ','. Without it: spec.podCIDRs of all Nodes. Required for driver ovs
    #[arg(long, env = "PERIMETER_CLUSTER_CIDR", value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    pub cluster_cidr: Vec<Ipv4Net>,
    /// Network of the ClusterIPs, of IPv4; may be repeated, or joined with ','
    #[arg(long, env = "PERIMETER_SERVICE_CIDR", value_name = "CIDR", value_delimiter = ',', value_parser = network,
        required_unless_present = "uninstall")]
    pub service_cidr: Vec<Ipv4Net>,
    /// Destination that bound pods reach with the address that the CNI gives them, besides the nodes; may be repeated, or joined
    /// with ','
    #[arg(long, env = "PERIMETER_EXCLUDE_CIDR", value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    pub exclude_cidr: Vec<Ipv4Net>,
    /// Name of the store Service with the bindings, in --namespace
    #[arg(long, env = "PERIMETER_BINDS_SERVICE", default_value = names::BINDS, value_name = "NAME")]
    pub binds_service: String,
    /// How often the programmed datapath is compared with the desired one, and repaired
    #[arg(long, env = "PERIMETER_RESYNC_PERIOD", default_value = "10s", value_name = "DURATION", value_parser = resync)]
    pub resync_period: Duration,
    /// Remove everything that the driver has programmed on this node, and exit. Needs no API server
    #[arg(long, env = "PERIMETER_UNINSTALL")]
    pub uninstall: bool,
}

/// Name of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriverName {
    /// Kernel VXLAN device, policy routing and nf_tables, for any CNI that forwards packets with the kernel's routes
    Vxlan,
    /// Flows on the bridge of openshift-sdn, and iptables
    Ovs,
}

/// Flags of driver vxlan.
#[derive(Group, Clone, Debug, Default)]
#[command(next_help_heading = "Driver vxlan")]
pub struct VxlanArgs {
    /// UDP port of the VXLAN tunnels between nodes [default: 4790]
    // 4789 is that of the CNI's own tunnels; two devices of one port would need the same options.
    #[arg(long, env = "PERIMETER_VXLAN_PORT", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub vxlan_port: Option<u16>,
    /// VXLAN network identifier of the tunnels [default: 0x636777]
    #[arg(long, env = "PERIMETER_VXLAN_ID", value_name = "NUMBER", value_parser = vni)]
    pub vxlan_id: Option<u32>,
    /// Bits of the packet's mark that this program may use, contiguous, without 0x4000 (kube-proxy) and 0x8000 (kubelet). Calico
    /// uses 0xffff0000 by default [default: 0x3fff]
    #[arg(long, env = "PERIMETER_MARK_MASK", value_name = "MASK", value_parser = mark_mask)]
    pub mark_mask: Option<u32>,
    /// MTU of the tunnel device [default: 50 less than that of the node's interface]
    #[arg(long, env = "PERIMETER_MTU", value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    pub mtu: Option<u16>,
    /// Folder with the CNI configuration of the node: an unsupported CNI plugin is refused before it has created an interface
    #[arg(long, env = "PERIMETER_CNI_CONF_DIR", value_name = "FOLDER")]
    pub cni_conf_dir: Option<PathBuf>,
}

impl VxlanArgs {
    /// The settings of the driver.
    #[must_use]
    pub fn config(&self) -> vxlan::Config {
        let default = vxlan::Config::default();
        vxlan::Config {
            port: self.vxlan_port.unwrap_or(default.port),
            vni: self.vxlan_id.unwrap_or(default.vni),
            mark_mask: self.mark_mask.unwrap_or(default.mark_mask),
            mtu: self.mtu.map(u32::from),
        }
    }

    fn is_given(&self) -> bool {
        let VxlanArgs { vxlan_port, vxlan_id, mark_mask, mtu, cni_conf_dir } = self;
        vxlan_port.is_some()
            || vxlan_id.is_some()
            || mark_mask.is_some()
            || mtu.is_some()
            || cni_conf_dir.is_some()
    }
}

/// Flags of driver ovs.
#[derive(Group, Clone, Debug, Default)]
#[command(next_help_heading = "Driver ovs")]
pub struct OvsArgs {
    /// Bridge of openshift-sdn [default: br0]
    #[arg(long, env = "PERIMETER_BRIDGE", value_name = "NAME")]
    pub bridge: Option<String>,
    /// Layout of the flow tables, by the first release of openshift-sdn that has it [default: 3.7]
    #[arg(long, env = "PERIMETER_OVS_PROFILE", value_enum, value_name = "RELEASE")]
    pub ovs_profile: Option<Profile>,
    /// Program that translates a VIP to a pod's address [default: own]
    #[arg(long, env = "PERIMETER_DNAT", value_enum, value_name = "PROGRAM")]
    pub dnat: Option<PortMode>,
}

impl OvsArgs {
    /// The settings of the driver.
    #[must_use]
    pub fn config(&self) -> ovs::Config {
        let default = ovs::Config::default();
        ovs::Config {
            profile: self.ovs_profile.unwrap_or(default.profile),
            ports: self.dnat.unwrap_or(default.ports),
            bridge: self.bridge.clone().unwrap_or(default.bridge),
            ..default
        }
    }

    fn is_given(&self) -> bool {
        let OvsArgs { bridge, ovs_profile, dnat } = self;
        bridge.is_some() || ovs_profile.is_some() || dnat.is_some()
    }
}

impl Args {
    /// Checks what the parser cannot.
    ///
    /// # Errors
    /// Flags that do not fit together.
    pub fn check(&self) -> anyhow::Result<()> {
        self.plan.check()?;
        let Args { plan, own, vxlan, ovs, .. } = self;
        anyhow::ensure!(!(own.uninstall && plan.dry_run), "--uninstall cannot be used with --dry-run");
        anyhow::ensure!(own.node_name.as_deref() != Some(""), "--node-name must not be empty");
        anyhow::ensure!(!own.binds_service.is_empty(), "--binds-service must not be empty");
        match own.driver {
            DriverName::Vxlan => {
                anyhow::ensure!(!ovs.is_given(), "a flag of driver ovs is set, and the driver is vxlan");
            }
            DriverName::Ovs => {
                anyhow::ensure!(!vxlan.is_given(), "a flag of driver vxlan is set, and the driver is ovs");
                anyhow::ensure!(
                    own.uninstall || !own.cluster_cidr.is_empty(),
                    "--cluster-cidr is required for driver ovs: openshift-sdn does not use spec.podCIDRs"
                );
            }
        }
        Ok(())
    }

    /// The settings of the plan; `namespace` is that of the stores.
    #[must_use]
    pub fn config(&self, namespace: &str) -> Config {
        let own = &self.own;
        Config {
            cluster_cidrs: own.cluster_cidr.clone(),
            service_cidrs: own.service_cidr.clone(),
            exclude_cidrs: own.exclude_cidr.clone(),
            mac_rule: match own.driver {
                DriverName::Vxlan => MacRule::Derived,
                DriverName::Ovs => MacRule::Annotated,
            },
            max_tun_id: match own.driver {
                DriverName::Vxlan => max_tun_id(self.vxlan.config().mark_mask),
                DriverName::Ovs => TunId::MAX,
            },
            store: ObjectKey::new(namespace, &own.binds_service),
        }
    }
}

/// Also an address without a length: the network of this one address.
fn network(text: &str) -> Result<Ipv4Net, String> {
    let address = || Ipv4Addr::from_str(text).ok().map(Ipv4Net::from);
    let network = text.parse().ok().or_else(address);
    network
        .map(|network: Ipv4Net| network.trunc())
        .ok_or_else(|| "it has to be a network of IPv4, as 10.244.0.0/16".to_owned())
}

/// Less than 100 ms would keep a core busy with reading the datapath; after five minutes `/livez` takes the agent for stuck.
fn resync(text: &str) -> Result<Duration, String> {
    let period = duration::parse(text)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(300);
    range.contains(&period).then_some(period).ok_or_else(|| "it has to be between 100ms and 5m".to_owned())
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn vni(text: &str) -> Result<u32, String> {
    number(text)
        .filter(|number| (1..1 << 24).contains(number))
        .ok_or_else(|| "it has to be a number from 1 to 0xffffff".to_owned())
}

/// Marks of kube-proxy and of the kubelet, which mean SNAT and drop.
const RESERVED_MARKS: u32 = 0x4000 | 0x8000;

fn mark_mask(text: &str) -> Result<u32, String> {
    let mask = number(text).filter(|mask| *mask != 0).ok_or("it has to be a number, as 0x3fff")?;
    if mask & RESERVED_MARKS != 0 {
        return Err("it must not contain 0x4000 (kube-proxy) and 0x8000 (kubelet)".to_owned());
    }
    let bits = mask >> mask.trailing_zeros();
    let is_contiguous = bits & bits.wrapping_add(1) == 0;
    // One bit and a number for each VIP.
    if !is_contiguous || bits.count_ones() < 4 {
        return Err("its bits have to be contiguous, and at least four".to_owned());
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        agent: Args,
    }

    const MINIMUM: [&str; 5] = ["agent", "--node-name", "n1", "--service-cidr", "10.96.0.0/12"];

    fn parse(more: &[&str]) -> Result<Args, String> {
        let arguments = MINIMUM.iter().chain(more);
        let args = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?.agent;
        args.check().map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn defaults_are_as_documented() {
        let args = parse(&["--cluster-cidr", "10.244.0.9/16,10.245.0.1", "--namespace", "cgw"]).unwrap();
        let networks: Vec<String> = args.own.cluster_cidr.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.244.0.0/16", "10.245.0.1/32"]);
        let vxlan = args.vxlan.config();
        assert_eq!((vxlan.port, vxlan.vni, vxlan.mark_mask), (4790, 0x0063_6777, 0x3fff));
        let ovs = args.ovs.config();
        assert_eq!((ovs.bridge.as_str(), ovs.profile.name, ovs.ports), ("br0", "3.7", PortMode::Own));
        assert_eq!(args.own.resync_period, Duration::from_secs(10));
        let config = args.config("cgw");
        assert_eq!((config.mac_rule, config.store), (MacRule::Derived, ObjectKey::new("cgw", "cgw-binds")));
    }

    #[test]
    fn flags_that_cannot_be_used_are_refused() {
        for (arguments, message) in [
            (&["--bridge", "br0"][..], "driver ovs"),
            (&["--driver", "ovs", "--cluster-cidr", "10.128.0.0/14", "--mtu", "1400"], "driver vxlan"),
            (&["--driver", "ovs"], "--cluster-cidr is required"),
            (&["--uninstall", "--dry-run"], "--dry-run"),
            (&["--output", "json"], "--dry-run"),
            (&["--mark-mask", "0x7fff"], "0x4000"),
            (&["--mark-mask", "0x5"], "contiguous"),
            (&["--mark-mask", "0x3"], "contiguous"),
            (&["--vxlan-id", "0x1000000"], "0xffffff"),
            (&["--cluster-cidr", "fd00::/64"], "IPv4"),
            (&["--resync-period", "10m"], "5m"),
            (&["--binds-service="], "--binds-service must not be empty"),
        ] {
            let error = parse(arguments).map(|_| ()).unwrap_err();
            assert!(error.contains(message), "{arguments:?}: {error}");
        }
        let nameless = ["agent", "--node-name=", "--service-cidr=10.96.0.0/12"];
        let error = Cli::try_parse_from(nameless).unwrap().agent.check().unwrap_err();
        assert_eq!(error.to_string(), "--node-name must not be empty");
        for (text, mask) in [("0x00ff0000", 0x00ff_0000), ("0xffff0000", 0xffff_0000)] {
            assert_eq!(parse(&["--mark-mask", text]).unwrap().vxlan.config().mark_mask, mask);
        }
        let ovs = ["--driver", "ovs", "--cluster-cidr", "10.128.0.0/14", "--ovs-profile", "4.10"];
        assert_eq!(parse(&ovs).unwrap().ovs.config().profile.name, "4.10");
    }

    #[test]
    fn uninstall_needs_no_other_flag() {
        let args = Cli::try_parse_from(["agent", "--uninstall", "--driver=ovs"]).unwrap().agent;
        assert!(args.own.uninstall && args.check().is_ok());
        assert!(Cli::try_parse_from(["agent"]).is_err());
    }
}
