//! routegc's command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as Group, Parser, ValueEnum};
use common::api::routegc::Mode;
use common::args::{RuntimeArgs, duration};
use common::command::PlanArgs;

/// Finds, and in mode enforce removes, router routes whose next hop no longer exists. Without --router-id and --cloud-config it
/// serves the RouteGC objects of its namespace.
#[derive(Parser, Clone, Debug)]
#[command(name = "routegc", version = common::program!().version_text())]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub single: SingleArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub runtime: RuntimeArgs,
}

/// Flags that apply with and without RouteGC objects.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Route clean-up")]
pub struct OwnArgs {
    /// Reconcile each policy once, as the leader, and exit
    #[arg(long, env = "PERIMETER_ONCE", conflicts_with = "dry_run")]
    pub once: bool,
}

/// One router without a RouteGC.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "One router, without RouteGC objects")]
pub struct SingleArgs {
    /// cloud.conf of the cloud controller manager: the credentials, and router-id of its section Route. Without it and with --router-id:
    /// clouds.yaml and OS_* variables, as for the openstack command
    #[arg(long, env = "PERIMETER_CLOUD_CONFIG", value_name = "FILE")]
    // As text, which may be empty, as a template leaves it.
    pub cloud_config: Option<OsString>,
    /// Entry of clouds.yaml, instead of that of OS_CLOUD
    // The configuration refuses it beside --cloud-config: clap would also refuse it beside an empty variable of --cloud-config. Without
    // a variable of its own, because OS_CLOUD of the user's shell must not conflict with --cloud-config.
    #[arg(long, value_name = "NAME")]
    pub cloud: Option<String>,
    /// ID of the router [default: that of the cloud.conf]
    #[arg(long, env = "PERIMETER_ROUTER_ID", value_name = "ID")]
    pub router_id: Option<String>,
    /// Pod networks of the cluster, as for the controller manager: other routes are foreign; may be repeated, or joined with ','
    #[arg(long, env = "PERIMETER_CLUSTER_CIDR", value_name = "CIDR", value_delimiter = ',')]
    pub cluster_cidr: Vec<String>,
    /// Whether routes are removed, or only reported
    #[arg(long, env = "PERIMETER_MODE", value_enum, default_value_t = ModeArg::Audit, value_name = "MODE")]
    pub mode: ModeArg,
    /// Time between two reconciliations, plus or minus a tenth
    #[arg(long, env = "PERIMETER_INTERVAL", default_value = "5m", value_name = "DURATION", value_parser = duration::parse)]
    pub interval: Duration,
    /// Reconciliations in a row that must find a route orphaned
    #[arg(long, env = "PERIMETER_CONFIRMATIONS", default_value_t = 2, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub confirmations: u32,
    /// For how long a route must have been orphaned
    #[arg(long, env = "PERIMETER_MIN_AGE", default_value = "5m", value_name = "DURATION", value_parser = duration::parse)]
    pub min_age: Duration,
    /// If a reconciliation would remove more routes than this, it removes none
    #[arg(long, env = "PERIMETER_MAX_REMOVALS", default_value_t = 10, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub max_removals: u32,
    /// The same for a share of the routes in the pod networks; two may always be removed
    #[arg(long, env = "PERIMETER_MAX_PERCENT", default_value_t = 50, value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(1..=100))]
    pub max_percent: u8,
    /// Write the whole list of routes where the cloud has neither extraroute-atomic nor revision-if-match: a route that is added at the
    /// same moment is lost
    #[arg(long, env = "PERIMETER_ALLOW_UNSAFE_UPDATE")]
    pub allow_unsafe_update: bool,
    /// Assume that ports without port security use only the addresses that Neutron knows: otherwise no next hop of their network is
    /// orphaned only because no port has it
    #[arg(long, env = "PERIMETER_IGNORE_OPEN_PORTS")]
    pub ignore_open_ports: bool,
    /// Assume that every next hop in the pod networks is an address of a Neutron port. Without this and without --nodes, a next hop
    /// that has no port is unknown: it may be a machine outside of OpenStack
    #[arg(long, env = "PERIMETER_ALL_NEXT_HOPS_ARE_PORTS")]
    pub all_next_hops_are_ports: bool,
    /// Prefix length of a node's IPv4 pod network: routes of another length are foreign
    #[arg(long, env = "PERIMETER_NODE_CIDR_MASK_SIZE_IPV4", value_name = "LENGTH", value_parser = clap::value_parser!(u8).range(1..=32))]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    /// The same for IPv6
    #[arg(long, env = "PERIMETER_NODE_CIDR_MASK_SIZE_IPV6", value_name = "LENGTH", value_parser = clap::value_parser!(u8).range(1..=128))]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    /// Read the cluster's Nodes too: an address of a Node is live
    #[arg(long, env = "PERIMETER_NODES")]
    pub nodes: bool,
}

/// [`Mode`], as a flag has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Report what would be removed
    Audit,
    /// Remove it
    Enforce,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Mode {
        match mode {
            ModeArg::Audit => Mode::Audit,
            ModeArg::Enforce => Mode::Enforce,
        }
    }
}
