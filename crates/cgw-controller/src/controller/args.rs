//! Command line of `cgw controller`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use common::args::duration;
use common::cache::ObjectKey;
use common::config::ConfigError;

use super::plan::IpMode;
use crate::args::ProcessArgs;
use crate::names;

/// Serves the HTTP API and writes the annotations of the tenants' Services
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub api: ApiArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub bindings: BindingArgs,
}

/// The HTTP API.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "HTTP API")]
pub struct ApiArgs {
    /// Address of the HTTP API, over TLS
    #[arg(long, env = "PERIMETER_API_ADDRESS", default_value = "[::]:8443", value_name = "IP:PORT")]
    pub api_address: SocketAddr,
    /// File of the certificate chain, in PEM; read again when it changes
    #[arg(
        long,
        env = "PERIMETER_TLS_CERT_FILE",
        default_value = "/etc/cgw-controller/tls/tls.crt",
        value_name = "FILE"
    )]
    pub tls_cert_file: PathBuf,
    /// File of its private key, in PEM
    #[arg(
        long,
        env = "PERIMETER_TLS_PRIVATE_KEY_FILE",
        default_value = "/etc/cgw-controller/tls/tls.key",
        value_name = "FILE"
    )]
    pub tls_private_key_file: PathBuf,
    /// ServiceAccount of the keepers, in the namespace of this program or as NAMESPACE/NAME; no other user may call /master_notify
    #[arg(long, env = "PERIMETER_KEEPER_SERVICE_ACCOUNT", default_value = "cgw-keeper", value_name = "NAME")]
    pub keeper_service_account: String,
}

/// Bindings and gateways.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Bindings")]
pub struct BindingArgs {
    /// Service whose annotations are the registered keepers
    #[arg(long, env = "PERIMETER_HOSTS_SERVICE", default_value = names::HOSTS, value_name = "NAME")]
    pub hosts_service: String,
    /// Service whose annotations are the bindings
    #[arg(long, env = "PERIMETER_BINDS_SERVICE", default_value = names::BINDS, value_name = "NAME")]
    pub binds_service: String,
    /// Service whose annotations are the status servers of each VIP
    #[arg(long, env = "PERIMETER_PROVIDERS_SERVICE", default_value = names::PROVIDERS, value_name = "NAME")]
    pub providers_service: String,
    /// How long the status servers of a VIP may take to respond, all together
    #[arg(long, env = "PERIMETER_STATUS_TIMEOUT", default_value = "1s", value_name = "DURATION", value_parser = duration::parse)]
    pub status_timeout: Duration,
    /// Time between two polls of all status servers; all bindings are reconciled then
    #[arg(long, env = "PERIMETER_RESYNC_INTERVAL", default_value = "1m", value_name = "DURATION", value_parser = duration::parse)]
    pub resync_interval: Duration,
    /// How long a record and annotations must differ before they are repaired; a request that is in progress needs less
    #[arg(long, env = "PERIMETER_REPAIR_DELAY", default_value = "10s", value_name = "DURATION", value_parser = duration::parse)]
    pub repair_delay: Duration,
    /// How long the status server of a keeper must not respond before its entry is removed; only if the API server proves that the keeper
    /// does not run: its Node does not exist, or is ready without a Pod of it
    #[arg(long, env = "PERIMETER_LOST_KEEPER_TIMEOUT", default_value = "5m", value_name = "DURATION", value_parser = duration::parse)]
    pub lost_keeper_timeout: Duration,
    /// How many Services are patched at a time when a gateway changes
    #[arg(long, env = "PERIMETER_MAX_CONCURRENT_PATCHES", default_value_t = 32, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_patches: u16,
    /// ipMode in status.loadBalancer.ingress of Services of type LoadBalancer with our class: "VIP" lets kube-proxy DNAT the packets of nodes
    /// and of pods that are not bound where they are; "Proxy" lets them go to the gateway, which kube-proxy in mode ipvs needs
    #[arg(
        long,
        env = "PERIMETER_LOAD_BALANCER_IP_MODE",
        value_enum,
        default_value = "VIP",
        value_name = "MODE"
    )]
    pub load_balancer_ip_mode: IpMode,
    /// Add the VIP to spec.externalIPs of Services that are not of type LoadBalancer, so that kube-proxy DNATs it
    #[arg(long, env = "PERIMETER_EXTERNAL_IPS")]
    pub external_ips: bool,
}

impl Args {
    /// Refuses values that cannot be used together.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn check(&self) -> Result<(), ConfigError> {
        let BindingArgs { status_timeout, resync_interval, lost_keeper_timeout, .. } = &self.bindings;
        let name = &self.api.keeper_service_account;
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
            let allowed = "a name, or NAMESPACE/NAME";
            return Err(ConfigError(format!(
                "--keeper-service-account {name:?} is not allowed; it has to be {allowed}"
            )));
        }
        for (flag, value) in [
            ("--status-timeout", status_timeout),
            ("--resync-interval", resync_interval),
            ("--lost-keeper-timeout", lost_keeper_timeout),
        ] {
            if value.is_zero() {
                return Err(ConfigError(format!("{flag} has to be more than 0s")));
            }
        }
        let stores =
            [&self.bindings.hosts_service, &self.bindings.binds_service, &self.bindings.providers_service];
        if stores.iter().any(|store| store.is_empty()) {
            return Err(ConfigError(
                "--hosts-service, --binds-service and --providers-service must not be empty".to_owned(),
            ));
        }
        Ok(())
    }

    /// The keepers' ServiceAccount, where this program is in `namespace`.
    #[must_use]
    pub fn keeper_account(&self, namespace: &str) -> ObjectKey {
        let name = &self.api.keeper_service_account;
        let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
        ObjectKey::new(namespace, name)
    }

    /// Its user name.
    #[must_use]
    pub fn keepers(&self, namespace: &str) -> String {
        let account = self.keeper_account(namespace);
        format!("system:serviceaccount:{}:{}", account.namespace(), account.name())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &[&str]) -> Result<Args, String> {
        let cli = Cli::try_parse_from(std::iter::once(&"controller").chain(flags));
        let args = cli.map_err(|error| error.to_string())?.args;
        args.check().map_err(|error| error.to_string())?;
        Ok(args)
    }

    #[test]
    fn the_keepers_are_a_service_account_of_our_namespace_by_default() {
        assert_eq!(parse(&[]).unwrap().keepers("cgw"), "system:serviceaccount:cgw:cgw-keeper");
        let other = parse(&["--keeper-service-account=edge/keeper"]).unwrap();
        assert_eq!(other.keepers("cgw"), "system:serviceaccount:edge:keeper");
    }

    #[test]
    fn values_that_cannot_be_used_are_refused() {
        for flag in [
            "--keeper-service-account=",
            "--keeper-service-account=a/b/c",
            "--status-timeout=0s",
            "--resync-interval=0s",
            "--lost-keeper-timeout=0s",
            "--max-concurrent-patches=0",
            "--load-balancer-ip-mode=vip",
            "--hosts-service=",
        ] {
            assert!(parse(&[flag]).is_err(), "{flag}");
        }
    }
}
