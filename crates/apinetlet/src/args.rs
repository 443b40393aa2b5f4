//! apinetlet's command line. Flags that the Go program has too have its names and defaults, so that this one takes its place in a
//! Deployment.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use clap::{ArgAction, Args as Group, Parser, ValueEnum};
use common::args::{BindAddress, RuntimeArgs};
use common::cluster::ClusterArgs;
use common::command::PlanArgs;
use common::validation::{is_dns_label, is_label_value};

use crate::clusters::ApiNetName;
use crate::connection::ConnectionArgs;
use crate::metrics_server::MetricsArgs;
use crate::names::Flavor;
use crate::origin::Layout;
use crate::zap::ZapArgs;

/// The help of `--health-probe-bind-address`. Other programs of this project have no value for an admin server that is off.
const HEALTH_PROBE_BIND_ADDRESS: &str = "Address that serves /livez, /readyz, /healthz, /metrics, /statusz, /flagz and, to this host \
    only, /loglevel; 0 for none; port 0 takes any free port, which is logged";

/// Maps the networking API of this cluster onto the network control plane of another one: Networks, NetworkInterfaces, VirtualIPs,
/// LoadBalancers, NATGateways and NetworkPolicies.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "apinetlet",
    version = common::program!().version_text(),
    // --namespace is the watched one, as in the Go program.
    mut_arg("namespace", |arg| arg.long("own-namespace")),
    mut_arg("admin_address", |arg| arg.long("health-probe-bind-address").default_value(":8081").value_parser(bind_address)
        .value_name("[HOST]:PORT").help(HEALTH_PROBE_BIND_ADDRESS)),
    mut_arg("leader_elect", |arg| arg.default_value("false")),
)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub api_net: ClusterArgs<ApiNetName>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub zap: ZapArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub runtime: RuntimeArgs,
}

/// Flags that only apinetlet has.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Mapping")]
pub struct OwnArgs {
    /// API groups of both clusters
    #[arg(long, env = "PERIMETER_FLAVOR", value_enum, default_value_t = Flavor::Ironcore, value_name = "FLAVOR")]
    pub flavor: Flavor,
    /// Namespace of the apinet cluster in which all objects are managed; no other source cluster may use it
    #[arg(long, env = "PERIMETER_API_NET_NAMESPACE", value_name = "NAME", value_parser = namespace_name)]
    pub api_net_namespace: String,
    /// Namespace of the source objects; all where this is not given
    #[arg(
        id = "watched_namespace",
        long = "namespace",
        env = "PERIMETER_NAMESPACE",
        value_name = "NAME",
        default_value = ""
    )]
    pub namespace: String,
    /// Only source objects with this value of the label common.ironcore.dev/watch-filter (onmetal: common.api.onmetal.de/watch-filter);
    /// all where this is not given
    #[arg(long, env = "PERIMETER_WATCH_FILTER", value_name = "VALUE", default_value = "")]
    pub watch_filter: String,
    /// ID of the source cluster in the label of all apinet objects; the UID of the ConfigMap apinetlet-source-cluster in the own
    /// namespace where this is not given, which is created
    #[arg(long, env = "PERIMETER_SOURCE_CLUSTER_ID", value_name = "ID", default_value = "", value_parser = label_value)]
    pub source_cluster_id: String,
    /// Delete, as garbage, also apinet objects without that label if the source object that they name does not exist: the Go program
    /// writes none. Needed once, after a switch from it, if it has left such objects
    #[arg(long, env = "PERIMETER_ADOPT_UNMARKED")]
    pub adopt_unmarked: bool,
    /// Where apinet objects have the name of their source object: the Go program reads labels up to v0.3, and annotations since v0.4
    /// [default: labels for onmetal, annotations for ironcore]
    #[arg(long, env = "PERIMETER_SOURCE_NAME_IN", value_enum, value_name = "PLACE")]
    pub source_name_in: Option<Layout>,
    /// Create instances of load balancers only on the Nodes of their targets
    #[arg(long, env = "PERIMETER_IS_NODE_AFFINITY_AWARE", default_missing_value = "true", default_value_t = false, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub is_node_affinity_aware: bool,
    /// Write the status of source NetworkInterfaces; with false, another program writes it
    #[arg(long, env = "PERIMETER_NETWORK_INTERFACE_STATUS", default_missing_value = "true", default_value_t = true, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub network_interface_status: bool,
    /// Do not report the peerings of Networks
    #[arg(long, env = "PERIMETER_DISABLE_NETWORK_PEERING", default_missing_value = "true", default_value_t = false, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub disable_network_peering: bool,
    /// Has no effect: there is no migration before the start. Names in both places are read, and are moved to that of --source-name-in
    /// with the next reconciliation
    #[arg(long, env = "PERIMETER_SKIP_MIGRATIONS", default_missing_value = "true", default_value_t = false, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub skip_migrations: bool,
    /// The fewest public addresses of a NAT gateway
    #[arg(long, env = "PERIMETER_NAT_GATEWAY_MIN_PUBLIC_IPS", default_value_t = 1, value_name = "NUMBER",
        value_parser = clap::value_parser!(i32).range(0..))]
    pub nat_gateway_min_public_ips: i32,
    /// The most public addresses of a NAT gateway
    #[arg(long, env = "PERIMETER_NAT_GATEWAY_MAX_PUBLIC_IPS", default_value_t = 10, value_name = "NUMBER",
        value_parser = clap::value_parser!(i32).range(1..))]
    pub nat_gateway_max_public_ips: i32,
}

impl ValueEnum for Layout {
    fn value_variants<'a>() -> &'a [Layout] {
        &[Layout::Labels, Layout::Annotated]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let (name, help) = match self {
            Layout::Labels => ("labels", "In a label; in an annotation if it is too long for one"),
            Layout::Annotated => ("annotations", "In an annotation"),
        };
        Some(clap::builder::PossibleValue::new(name).help(help))
    }
}

/// The name of a namespace, a DNS label. The API server refuses objects in another one, each by itself.
fn namespace_name(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err("it has to be a DNS label: 1 to 63 lower case letters, digits and -, with a letter or digit at both ends".to_owned())
}

/// The value of a label, or nothing. The API server refuses objects with another one, each by itself.
fn label_value(text: &str) -> Result<String, String> {
    if is_label_value(text) {
        return Ok(text.to_owned());
    }
    Err("it has to be the value of a label: at most 63 letters, digits, - _ and ., with a letter or digit at both ends".to_owned())
}

/// As Go programs write it: `:8081` is any address of this host, `localhost:8081` one address of this name, and `0` no server.
pub(crate) fn bind_address(text: &str) -> Result<BindAddress, String> {
    if matches!(text, "" | "0") {
        return Ok(BindAddress(None));
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        return Ok(BindAddress(Some((Ipv6Addr::UNSPECIFIED, port).into())));
    }
    let form = "it has to be 0, or a host and a port, as :8081, localhost:8081 or 127.0.0.1:8081";
    let resolved = text.to_socket_addrs().map_err(|error| format!("{form}: {error}"))?;
    let addresses: Vec<SocketAddr> = resolved.collect();
    // As net.Listen: the first IPv4 address of a name, if it has one.
    let address = addresses.iter().find(|one| one.is_ipv4()).or(addresses.first()).copied();
    Ok(BindAddress(Some(address.ok_or(form)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory as _;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once(&"apinetlet").chain(arguments))
    }

    #[test]
    fn the_arguments_of_upstreams_deployment_are_understood() {
        let args = parse(&[
            "--metrics-bind-address=:8443",
            "--health-probe-bind-address=:8081",
            "--leader-elect",
            "--api-net-namespace=apinet",
        ]);
        let args = args.unwrap();
        assert!(args.runtime.leader.leader_elect);
        assert_eq!(args.runtime.admin.admin_address.0, Some("[::]:8081".parse().unwrap()));
        assert_eq!(args.metrics.metrics_bind_address.0, Some("[::]:8443".parse().unwrap()));
        assert_eq!((args.own.flavor, args.own.namespace.as_str()), (Flavor::Ironcore, ""));
        assert!(!parse(&["--api-net-namespace=apinet"]).unwrap().runtime.leader.leader_elect);
    }

    #[test]
    fn addresses_to_listen_on_are_those_of_the_go_program() {
        for (text, addresses) in [
            (":8081", vec!["[::]:8081"]),
            ("127.0.0.1:8080", vec!["127.0.0.1:8080"]),
            ("[::1]:8080", vec!["[::1]:8080"]),
            ("localhost:8080", vec!["127.0.0.1:8080", "[::1]:8080"]),
            ("0", vec![]),
            ("", vec![]),
        ] {
            let flags = ["health-probe", "metrics"].map(|flag| format!("--{flag}-bind-address={text}"));
            let args = parse(&["--api-net-namespace=a", flags[0].as_str(), flags[1].as_str()]).unwrap();
            let probes = args.runtime.admin.admin_address;
            assert_eq!(probes, args.metrics.metrics_bind_address, "{text}");
            let is_expected = |address: SocketAddr| addresses.contains(&address.to_string().as_str());
            assert_eq!(probes.0.is_some_and(is_expected), !addresses.is_empty(), "{text}: {probes:?}");
        }
        for text in ["localhost", "localhost:", ":", ":99999", "127.0.0.1"] {
            assert!(bind_address(text).is_err(), "{text}");
        }
    }

    /// A Deployment of the Go program may have any of them.
    #[test]
    fn flags_of_the_go_program_that_change_nothing_are_understood() {
        for (flag, is_refused) in [
            ("--skip-migrations", false),
            ("--skip-migrations=false", false),
            ("--enable-http2=false", false),
            ("--enable-http2", true),
        ] {
            let args = parse(&["--api-net-namespace=apinet", flag]).unwrap();
            assert_eq!(args.metrics.check().is_err(), is_refused, "{flag}");
        }
    }

    #[test]
    fn the_apinet_namespace_is_required() {
        assert!(parse(&[]).unwrap_err().to_string().contains("--api-net-namespace"));
        assert!(parse(&["--api-net-namespace="]).is_err());
    }

    #[test]
    fn names_that_the_api_server_would_refuse_are_refused_at_the_start() {
        for (text, is_namespace, is_id) in
            [("apinet", true, true), ("", false, true), ("Team_1.a", false, true), ("a/b", false, false)]
        {
            let namespace = format!("--api-net-namespace={text}");
            assert_eq!(parse(&[namespace.as_str()]).is_ok(), is_namespace, "{namespace}");
            let id = format!("--source-cluster-id={text}");
            assert_eq!(parse(&["--api-net-namespace=a", id.as_str()]).is_ok(), is_id, "{id}");
        }
    }

    #[test]
    fn the_watched_namespace_and_the_own_one_are_two_flags() {
        let args = parse(&["--api-net-namespace=a", "--namespace=team", "--own-namespace=system"]).unwrap();
        assert_eq!(
            (args.own.namespace.as_str(), args.runtime.client.namespace.as_deref()),
            ("team", Some("system"))
        );
    }

    #[test]
    fn the_command_is_consistent() {
        Args::command().debug_assert();
    }
}
