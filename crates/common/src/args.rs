//! The flags that every controller has, in groups with headings.
//!
//! Each flag has an environment twin: `PERIMETER_` and the flag in upper case (`--graceful-shutdown-timeout`, `PERIMETER_GRACEFUL_SHUTDOWN_TIMEOUT`),
//! but where a standard variable means the same thing it is that one: `KUBECONFIG`, `RUST_LOG`, `POD_NAMESPACE`.
//! A flag wins over its variable.

#[cfg(feature = "certificates")]
use std::path::PathBuf;
use std::{
    collections::BTreeMap, ffi::OsString, net::SocketAddr, num::NonZeroU32, sync::OnceLock, time::Duration,
};

use clap::{ArgAction, ArgMatches, Args, Command, ValueEnum};

pub mod duration;

/// The commit that this was built from; `unknown` outside a checkout.
pub const REVISION: &str = env!("PERIMETER_REVISION");
/// The compiler that built this.
pub const RUSTC: &str = env!("PERIMETER_RUSTC");

/// Name, version, commit and compiler of the program. Made by [`crate::program!`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// `natgw`
    pub name: &'static str,
    /// `0.1.0`
    pub version: &'static str,
    /// The commit.
    pub revision: &'static str,
    /// `1.95.0`
    pub rustc: &'static str,
}

/// The [`Program`](crate::args::Program) of the crate that calls this.
#[macro_export]
macro_rules! program {
    () => {
        $crate::args::Program {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            revision: $crate::args::REVISION,
            rustc: $crate::args::RUSTC,
        }
    };
}

impl Program {
    /// The text after the name in `--version`: `0.1.0 (commit abc123, rustc 1.95.0)`. It is made once a process, for
    /// one program only.
    #[must_use]
    pub fn version_text(&self) -> &'static str {
        static TEXT: OnceLock<String> = OnceLock::new();
        TEXT.get_or_init(|| format!("{} (commit {}, rustc {})", self.version, self.revision, self.rustc))
    }

    /// `natgw/0.1.0 (linux/amd64) abc123`, as client-go writes its own.
    #[must_use]
    pub fn user_agent(&self) -> String {
        // Go's names, because access logs of a cluster are searched by them.
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        format!("{}/{} ({}/{architecture}) {}", self.name, self.version, std::env::consts::OS, self.revision)
    }
}

/// Every flag with its value in force, for `/flagz`: from the command line, the environment or the default; empty where
/// it has none. Secrets never come by flag; one that could hold something private is marked `hide_env_values`, and is not shown.
#[must_use]
pub fn in_force(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let value = |id: &str| match matches.try_get_raw(id) {
        Ok(Some(values)) => values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","),
        _ => String::new(),
    };
    let shown = |flag: &clap::Arg| match value(flag.get_id().as_str()) {
        text if !text.is_empty() && flag.is_hide_env_values_set() => "[redacted]".to_owned(),
        text => text,
    };
    let prints = |flag: &clap::Arg| {
        matches!(
            flag.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        )
    };
    let flags = command.get_arguments().filter(|flag| !prints(flag));
    let own: BTreeMap<_, _> =
        flags.filter_map(|flag| Some((flag.get_long()?.to_owned(), shown(flag)))).collect();
    let Some((name, matches)) = matches.subcommand() else { return own };
    let mut all =
        command.find_subcommand(name).map_or_else(BTreeMap::new, |command| in_force(command, matches));
    all.extend(own);
    all
}

/// All of them. `#[command(flatten)]` it into the program's own arguments.
#[derive(Args, Clone, Debug)]
pub struct RuntimeArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub client: ClientArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub admin: AdminArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub leader: LeaderArgs,
    /// How long a running reconciliation may take to finish after SIGTERM before it is stopped
    // 5 s less than the kubelet's default grace period of 30 s: the lease is released and traces are flushed in them.
    #[arg(long, env = "PERIMETER_GRACEFUL_SHUTDOWN_TIMEOUT", default_value = "25s", value_name = "DURATION",
        value_parser = duration::parse, help_heading = "Process")]
    pub graceful_shutdown_timeout: Duration,
}

/// Connection to the cluster: kubeconfig, context, namespace and impersonation.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kubernetes")]
pub struct ClientArgs {
    /// Kubeconfig file, or several joined with ':' as kubectl takes them. Without it: the Pod's service account, and outside
    /// of a Pod ~/.kube/config
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<OsString>,
    /// Context of the kubeconfig; its current one where this is not given
    #[arg(long, env = "PERIMETER_CONTEXT", value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Namespace of what this program makes; its own where this is not given: the Pod's, else the context's, else "default"
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", global = true)]
    pub namespace: Option<String>,
    /// User to impersonate
    #[arg(long = "as", env = "PERIMETER_AS", value_name = "USER", global = true)]
    pub impersonate: Option<String>,
    /// Group to impersonate; may be repeated, or joined with ','
    #[arg(
        long = "as-group",
        env = "PERIMETER_AS_GROUP",
        value_name = "GROUP",
        value_delimiter = ',',
        requires = "impersonate",
        global = true
    )]
    pub impersonate_groups: Vec<String>,
    /// A Secret with the kubeconfig of the cluster. It is read from the cluster that the other fields describe.
    #[arg(skip)]
    pub secret: Option<KubeconfigSecret>,
    /// A client certificate that the cluster issues, in the kubeconfig of the file or of the Secret.
    #[cfg(feature = "certificates")]
    #[arg(skip)]
    pub certificate: Option<IssuedCertificate>,
    /// The most requests to the cluster; no limit if None. It does not hold for the Lease.
    #[arg(skip)]
    pub rate: Option<RateLimit>,
}

/// A Secret with a kubeconfig under the key `kubeconfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigSecret {
    /// metadata.name
    pub name: String,
    /// The program's own namespace if None.
    pub namespace: Option<String>,
}

/// A client certificate of the signer `kubernetes.io/kube-apiserver-client`.
#[cfg(feature = "certificates")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// Kubeconfig file with the credential of the first request, for a kubeconfig that does not exist or has no valid certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Whether the certificate is renewed before it expires. Otherwise it is only requested at the start, if there is no valid one.
    pub rotate: bool,
    /// The common name: the user.
    pub user: String,
    /// The organization: the user's group.
    pub group: String,
}

/// Requests in a second, as client-go limits them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// In the long run; at least [`RateLimit::MIN_QPS`].
    pub qps: f32,
    /// At once, after a pause.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// One request in 1000 s. With much less, the time of the next request could not be represented.
    pub const MIN_QPS: f32 = 0.001;
}

impl ClientArgs {
    /// The context that is given. What a template has left empty is not given, as for kubectl's KUBECONFIG.
    #[must_use]
    pub fn given_context(&self) -> Option<&String> {
        self.context.as_ref().filter(|context| !context.is_empty())
    }

    /// The namespace that is given, else this one. What a template has left empty is not given.
    #[must_use]
    pub fn own_namespace(&self, default: String) -> String {
        self.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or(default)
    }
}

/// Filter and format of the log lines.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// How log lines look; plain on a terminal and JSON elsewhere where this is not given
    #[arg(long, env = "PERIMETER_LOG_FORMAT", value_enum, value_name = "FORMAT", global = true)]
    pub log_format: Option<LogFormat>,
    /// Filter of the log lines: a level, or levels by module ("info,natgw=debug"); "info" where this is not given
    #[arg(long, env = "RUST_LOG", value_name = "FILTER", global = true)]
    pub log_filter: Option<String>,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line
    Json,
    /// For a person
    Plain,
}

/// The admin server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Admin server")]
pub struct AdminArgs {
    /// Address that serves /livez, /readyz, /healthz, /metrics, /statusz, /flagz and, to this host only, /loglevel; port 0 takes any
    /// free port, which is logged
    // Both families: a Pod of a single-family cluster has an address of only one. 8080 is what probes commonly expect.
    #[arg(long, env = "PERIMETER_ADMIN_ADDRESS", default_value = "[::]:8080", value_name = "IP:PORT",
        value_parser = socket_address)]
    pub admin_address: BindAddress,
}

/// An address to listen on; None for no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress(pub Option<SocketAddr>);

/// Also without brackets around an address of IPv6: a manifest puts `$(HOST_IP):9470` together, and does not know of which
/// family that is.
fn socket_address(text: &str) -> Result<BindAddress, String> {
    let bare = || {
        let (ip, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    };
    text.parse()
        .ok()
        .or_else(bare)
        .map(|address| BindAddress(Some(address)))
        .ok_or_else(|| "it has to be an IP address and a port, as [::]:8080".to_owned())
}

/// Leader election, with the names and defaults of client-go.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderArgs {
    /// Whether to take a Lease before acting; needed wherever more than one replica can run
    #[arg(long, env = "PERIMETER_LEADER_ELECT", default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// How long others wait after the last renewal that they saw before they take the Lease
    #[arg(long, env = "PERIMETER_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_name = "DURATION",
        value_parser = duration::parse)]
    pub leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew before it gives up and exits; less than the lease duration
    #[arg(long, env = "PERIMETER_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_name = "DURATION",
        value_parser = duration::parse)]
    pub leader_elect_renew_deadline: Duration,
    /// How long between two tries
    #[arg(long, env = "PERIMETER_LEADER_ELECT_RETRY_PERIOD", default_value = "2s", value_name = "DURATION",
        value_parser = duration::parse)]
    pub leader_elect_retry_period: Duration,
    /// Name of the Lease; the program's name where this is not given
    #[arg(long, env = "PERIMETER_LEADER_ELECT_RESOURCE_NAME", value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease; the program's own where this is not given
    #[arg(long, env = "PERIMETER_LEADER_ELECT_RESOURCE_NAMESPACE", value_name = "NAME")]
    pub leader_elect_resource_namespace: Option<String>,
}

impl LeaderArgs {
    /// No election, for a program whose replicas are all active and that has no flags for it.
    #[must_use]
    pub fn disabled() -> LeaderArgs {
        LeaderArgs {
            leader_elect: false,
            leader_elect_lease_duration: Duration::from_secs(15),
            leader_elect_renew_deadline: Duration::from_secs(10),
            leader_elect_retry_period: Duration::from_secs(2),
            leader_elect_resource_name: None,
            leader_elect_resource_namespace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        runtime: RuntimeArgs,
        #[command(subcommand)]
        command: Option<Command>,
    }

    #[derive(clap::Subcommand)]
    enum Command {
        Status,
    }

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"natgw").chain(arguments))
    }

    #[test]
    fn defaults_are_client_go_s() {
        let args = parse(&[]).unwrap().runtime;
        assert!(args.leader.leader_elect);
        assert_eq!(args.leader.leader_elect_lease_duration, Duration::from_secs(15));
        assert_eq!(args.leader.leader_elect_renew_deadline, Duration::from_secs(10));
        assert_eq!(args.leader.leader_elect_retry_period, Duration::from_secs(2));
        assert_eq!(args.graceful_shutdown_timeout, Duration::from_secs(25));
    }

    #[test]
    fn the_admin_address_is_of_either_family_with_brackets_or_without() {
        for (text, address) in [
            ("10.0.0.2:9470", "10.0.0.2:9470"),
            ("[fd00::2]:9470", "[fd00::2]:9470"),
            ("fd00::2:9470", "[fd00::2]:9470"),
            ("::1:0", "[::1]:0"),
        ] {
            let args = parse(&["--admin-address", text]).unwrap().runtime.admin;
            assert_eq!(args.admin_address, BindAddress(Some(address.parse().unwrap())));
        }
        for text in ["9470", ":9470", "localhost:9470", "10.0.0.2", "10.0.0.2:94700"] {
            assert!(parse(&["--admin-address", text]).is_err(), "{text}");
        }
    }

    #[test]
    fn the_election_is_switched_as_go_programs_switch_it() {
        assert!(!parse(&["--leader-elect=false"]).unwrap().runtime.leader.leader_elect);
        assert!(parse(&["--leader-elect"]).unwrap().runtime.leader.leader_elect);
        assert!(parse(&["--leader-elect=maybe"]).is_err());
    }

    #[test]
    fn client_flags_stand_before_or_after_a_sub_command() {
        for arguments in [["--context", "a", "status"], ["status", "--context", "a"]] {
            let cli = parse(&arguments).unwrap();
            assert!(matches!(cli.command, Some(Command::Status)));
            assert_eq!(cli.runtime.client.context.as_deref(), Some("a"));
        }
    }

    #[test]
    fn a_group_without_a_user_is_refused_because_it_would_be_ignored() {
        assert!(parse(&["--as-group", "g"]).is_err());
        let args = parse(&["--as", "u", "--as-group", "g,h"]).unwrap().runtime.client;
        assert_eq!(args.impersonate_groups, ["g", "h"]);
    }

    #[test]
    fn every_flag_has_its_heading_its_help_and_its_environment_twin() {
        let standard = ["KUBECONFIG", "RUST_LOG", "POD_NAMESPACE"];
        let command = Cli::command();
        let flags: Vec<_> = command.get_arguments().filter(|flag| flag.get_id() != "help").collect();
        assert!(flags.len() >= 15, "flattened groups are missing");
        for flag in flags {
            let long = flag.get_long().unwrap();
            let variable =
                flag.get_env().unwrap_or_else(|| panic!("--{long} has no variable")).to_str().unwrap();
            let ours = format!("PERIMETER_{}", long.to_uppercase().replace('-', "_"));
            assert!(variable == ours || standard.contains(&variable), "--{long}: {variable}");
            assert!(flag.get_help().is_some() && flag.get_help_heading().is_some(), "--{long}");
        }
    }

    #[test]
    fn flags_in_force_are_listed_and_private_ones_hidden() {
        let command =
            Cli::command().arg(clap::Arg::new("token-file").long("token-file").hide_env_values(true));
        let arguments = ["natgw", "--context", "a", "--as", "u", "--as-group", "g,h", "--token-file", "/t"];
        let matches = command.clone().try_get_matches_from(arguments).unwrap();
        let flags = in_force(&command, &matches);
        let of = |flag: &str| flags[flag].as_str();
        assert_eq!((of("context"), of("as-group"), of("token-file")), ("a", "g,h", "[redacted]"));
        assert_eq!(
            (of("graceful-shutdown-timeout"), of("leader-elect"), of("log-format")),
            ("25s", "true", "")
        );
        assert!(!flags.contains_key("help"));
    }

    #[test]
    fn the_version_names_commit_and_compiler() {
        let program = crate::program!();
        assert_eq!(program.version_text(), format!("{} (commit {REVISION}, rustc {RUSTC})", program.version));
        assert!(RUSTC.starts_with("1."), "{RUSTC}");
        assert!(program.user_agent().starts_with("common/0.1.0 (linux/"), "{}", program.user_agent());
    }
}
