//! Command line of `cgw ctl`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Subcommand, ValueEnum};
use common::args::{AdminArgs, BindAddress, ClientArgs, LeaderArgs, LogArgs, RuntimeArgs};
use common::validation::{is_dns_label, is_dns_subdomain};

use crate::api::Vip;
use crate::names;

/// For the last Events of a command, of which there are none.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Binds, lists and traces VIPs
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub controller: ControllerArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Text, value_name = "FORMAT", global = true)]
    pub output: Output,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The cluster of the administrator.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct ClusterArgs {
    /// Kubeconfig file, or several joined with ':' as kubectl takes them. Without it: the Pod's service account, and outside
    /// of a Pod ~/.kube/config
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", global = true)]
    pub kubeconfig: Option<OsString>,
    /// Context of the kubeconfig; its current one where this is not given
    #[arg(long, env = "PERIMETER_CONTEXT", value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// User to impersonate
    #[arg(long = "as", env = "PERIMETER_AS", value_name = "USER", global = true)]
    pub impersonate: Option<String>,
}

/// The controller, and how it is reached: through the API server's proxy, unless there is an URL.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Controller")]
pub struct ControllerArgs {
    /// Namespace of the controller and of its stores
    #[arg(long, env = "POD_NAMESPACE", default_value = names::CONTROLLER, value_name = "NAME", value_parser = label, global = true)]
    pub controller_namespace: String,
    /// Service of the controller
    #[arg(long, env = "PERIMETER_CONTROLLER_SERVICE", default_value = names::SERVICE, value_name = "NAME", value_parser = label, global = true)]
    pub controller_service: String,
    /// ServiceAccount whose token is requested and sent
    #[arg(long, env = "PERIMETER_ADMIN_ACCOUNT", default_value = names::ADMIN_ACCOUNT, value_name = "NAME", value_parser = subdomain, global = true)]
    pub admin_account: String,
    /// Connect to this URL instead of the API server's proxy, and verify the controller's certificate
    #[arg(long, env = "PERIMETER_CONTROLLER_URL", value_name = "URL", value_parser = https, global = true)]
    pub controller_url: Option<http::Uri>,
    /// Certificate authorities for --controller-url (PEM)
    #[arg(
        long,
        env = "PERIMETER_CONTROLLER_CA",
        value_name = "FILE",
        requires = "controller_url",
        global = true
    )]
    pub controller_ca: Option<PathBuf>,
    /// Token for --controller-url, instead of one that is requested for the ServiceAccount
    #[arg(
        long,
        env = "PERIMETER_TOKEN_FILE",
        value_name = "FILE",
        requires = "controller_url",
        global = true
    )]
    pub token_file: Option<PathBuf>,
}

/// A command.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bind a VIP to a namespace or to one Service
    Bind {
        /// The VIP
        vip: Vip,
        /// Namespace that the VIP is bound to
        #[arg(value_parser = label)]
        namespace: String,
        /// Service that the VIP is bound to. Without it, every Service of the namespace may be bound later
        #[arg(value_parser = label)]
        service: Option<String>,
    },
    /// Undo a binding: of a Service, or of a namespace whose Services are no longer bound
    Unbind {
        /// The VIP
        vip: Vip,
        /// Namespace of the binding
        #[arg(value_parser = label)]
        namespace: String,
        /// Service that no longer carries the VIP
        #[arg(value_parser = label)]
        service: Option<String>,
    },
    /// Read the current gateway of a VIP, and write it to the Services that carry the VIP
    Notify {
        /// The VIP
        vip: Vip,
    },
    /// List the bindings
    List,
    /// Show one binding
    Get {
        /// The VIP
        vip: Vip,
    },
    /// Explain with which source address a pod leaves the cluster, and why
    Trace {
        /// The pod
        #[arg(value_parser = subdomain)]
        pod: String,
        /// Namespace of the pod
        #[arg(long, short, default_value = "default", value_name = "NAME", value_parser = label)]
        namespace: String,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person
    Text,
    /// JSON, as the controller responds
    Json,
}

impl Args {
    /// As the runtime takes them. Only warnings are logged unless a filter is given.
    #[must_use]
    pub fn runtime(&self) -> RuntimeArgs {
        let ClusterArgs { kubeconfig, context, impersonate } = self.cluster.clone();
        let mut log = self.log.clone();
        log.log_filter.get_or_insert_with(|| "warn".to_owned());
        RuntimeArgs {
            client: ClientArgs { kubeconfig, context, impersonate, ..ClientArgs::default() },
            log,
            // A command has no admin server.
            admin: AdminArgs { admin_address: BindAddress(None) },
            leader: LeaderArgs::disabled(),
            graceful_shutdown_timeout: SHUTDOWN,
        }
    }
}

/// A DNS label (RFC 1123): the name of a namespace or a Service.
fn label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("it has to be a DNS label, as web-1".to_owned())
    }
}

/// A DNS subdomain (RFC 1123): the name of a pod or a ServiceAccount.
fn subdomain(text: &str) -> Result<String, String> {
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("it has to be a DNS name, as web-0".to_owned())
    }
}

fn https(text: &str) -> Result<http::Uri, String> {
    let wrong = || "it has to be https://HOST[:PORT] without a path".to_owned();
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    let is_right = uri.scheme_str() == Some("https")
        && uri.authority().is_some()
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    if is_right { Ok(uri) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args as Whole, Role};

    fn parsed(line: &str) -> Result<Args, clap::Error> {
        match Whole::try_parse_from(["cgw", "ctl"].into_iter().chain(line.split(' ')))?.role {
            Role::Ctl(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_are_read() {
        let vip: Vip = "192.168.50.201".parse().unwrap();
        let bind = parsed("bind 192.168.50.201 shop web -o json").unwrap();
        let (namespace, service) = ("shop".to_owned(), Some("web".to_owned()));
        assert_eq!(bind.command, Command::Bind { vip, namespace, service });
        assert_eq!(bind.output, Output::Json);
        assert_eq!(parsed("notify 192.168.50.201").unwrap().command, Command::Notify { vip });
        let trace = Command::Trace { pod: "web-0.x".to_owned(), namespace: "shop".to_owned() };
        assert_eq!(parsed("trace web-0.x -n shop").unwrap().command, trace);
        assert_eq!(parsed("list").unwrap().runtime().log.log_filter.as_deref(), Some("warn"));
    }

    #[test]
    fn bad_input_is_refused() {
        for line in [
            "bind 127.0.0.1 shop",
            "bind 192.168.50.201",
            "bind 192.168.50.201 Shop",
            "bind 192.168.50.201 shop ../vips",
            "unbind 192.168.50.201 shop -x",
            "unbind 192.168.50.201 shop web- extra",
            "get 192.168.50",
            "get ::ffff:192.168.50.201",
            "trace web/0",
            "list --controller-url http://controller",
            "list --controller-url https://controller/vip",
            "list --controller-ca ca.crt",
            "list -o yaml",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        parsed("list --controller-url https://controller:8443 --controller-ca ca.crt").unwrap();
    }
}
