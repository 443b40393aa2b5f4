//! The flags of the connections to both clusters. `--kubeconfig` is one of [`common::args::ClientArgs`], `--api-net-kubeconfig` and
//! `--api-net-kubeconfig-secret-name` of [`common::cluster::ClusterArgs`].

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use common::args::{ClientArgs, IssuedCertificate, KubeconfigSecret, RateLimit};

use crate::names::Flavor;

/// As client-go has it for a burst of 0.
const DEFAULT_BURST: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// Flags of the Go program, for both clusters.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct ConnectionArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub source_secret: SourceSecret,
    /// Kubeconfig file for the request of a client certificate (CertificateSigningRequest), if the kubeconfig of the source cluster
    /// has no valid one; it is written to that kubeconfig
    #[arg(long, env = "PERIMETER_BOOTSTRAP_KUBECONFIG", value_name = "FILE", default_value = "")]
    pub bootstrap_kubeconfig: String,
    /// The same for the apinet cluster
    #[arg(long, env = "PERIMETER_API_NET_BOOTSTRAP_KUBECONFIG", value_name = "FILE", default_value = "")]
    pub api_net_bootstrap_kubeconfig: String,
    /// Renew the client certificate of the source cluster before it expires
    #[arg(long, env = "PERIMETER_ROTATE_CERTIFICATES", default_missing_value = "true", default_value_t = false, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub rotate_certificates: bool,
    /// The same for the apinet cluster
    #[arg(long, env = "PERIMETER_API_NET_ROTATE_CERTIFICATES", default_missing_value = "true", default_value_t = false,
        num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub api_net_rotate_certificates: bool,
    /// The most requests a second to the source cluster, at least 0.001; 0: no limit
    #[arg(
        long,
        env = "PERIMETER_QPS",
        value_name = "NUMBER",
        default_value_t = 0.0,
        value_parser = qps,
        allow_negative_numbers = true
    )]
    pub qps: f32,
    /// The most requests to the source cluster at once, with --qps; 0: 10
    #[arg(long, env = "PERIMETER_BURST", value_name = "NUMBER", default_value_t = 0)]
    pub burst: u32,
    /// The same as --qps for the apinet cluster
    #[arg(
        long,
        env = "PERIMETER_API_NET_QPS",
        value_name = "NUMBER",
        default_value_t = 0.0,
        value_parser = qps,
        allow_negative_numbers = true
    )]
    pub api_net_qps: f32,
    /// The same as --burst for the apinet cluster
    #[arg(long, env = "PERIMETER_API_NET_BURST", value_name = "NUMBER", default_value_t = 0)]
    pub api_net_burst: u32,
    /// Not supported: it has to be empty
    #[arg(long, env = "PERIMETER_EGRESS_SELECTOR_CONFIG", value_name = "FILE", default_value = "", value_parser = empty)]
    pub egress_selector_config: String,
    /// Not supported: it has to be empty
    #[arg(long, env = "PERIMETER_API_NET_EGRESS_SELECTOR_CONFIG", value_name = "FILE", default_value = "", value_parser = empty)]
    pub api_net_egress_selector_config: String,
}

/// The Secret with the kubeconfig of the source cluster, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSecret(pub Option<KubeconfigSecret>);

/// The flags of [`SourceSecret`].
#[derive(Args)]
#[command(next_help_heading = "Kubernetes")]
struct SecretArgs {
    /// Secret with the kubeconfig of the source cluster under the key kubeconfig. It is read with the kubeconfig of KUBECONFIG, if the
    /// environment has one, and otherwise with the Pod's service account
    #[arg(long, env = "PERIMETER_KUBECONFIG_SECRET_NAME", value_name = "NAME", default_value = "")]
    kubeconfig_secret_name: String,
    /// Namespace of that Secret; the own one where this is not given
    #[arg(long, env = "PERIMETER_KUBECONFIG_SECRET_NAMESPACE", value_name = "NAMESPACE", default_value = "")]
    kubeconfig_secret_namespace: String,
}

impl Args for SourceSecret {
    fn augment_args(command: Command) -> Command {
        SecretArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SecretArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for SourceSecret {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let SecretArgs { kubeconfig_secret_name: name, kubeconfig_secret_namespace: namespace } =
            SecretArgs::from_arg_matches(matches)?;
        let Some(name) = given(&name) else { return Ok(SourceSecret(None)) };
        let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let file = matches.get_one::<OsString>("kubeconfig").filter(|file| !file.is_empty());
        // A file of the environment is no conflict: the Secret is read with it, as the Go program does.
        match (file.is_some() && is_flag("kubeconfig"), is_flag("kubeconfig_secret_name")) {
            (true, true) => {
                let text = "--kubeconfig and --kubeconfig-secret-name exclude each other\n";
                Err(clap::Error::raw(ErrorKind::ArgumentConflict, text))
            }
            (true, false) => Ok(SourceSecret(None)),
            (false, _) => Ok(SourceSecret(Some(KubeconfigSecret { name, namespace: given(&namespace) }))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ConnectionArgs {
    /// Refuses a dry run that could request a certificate, and write it to a kubeconfig.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn check(&self, dry_run: bool) -> anyhow::Result<()> {
        let requesting = [
            ("bootstrap-kubeconfig", !self.bootstrap_kubeconfig.is_empty()),
            ("rotate-certificates", self.rotate_certificates),
            ("api-net-bootstrap-kubeconfig", !self.api_net_bootstrap_kubeconfig.is_empty()),
            ("api-net-rotate-certificates", self.api_net_rotate_certificates),
        ];
        match requesting.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if dry_run => anyhow::bail!(
                "--{flag} can request a certificate and write the kubeconfig, and --dry-run writes nothing: run it without --{flag}, \
                 with a kubeconfig that has a valid credential"
            ),
            _ => Ok(()),
        }
    }

    /// Adds them to those of the two clusters. The certificates are for the users of the Go program, which the controllers of both
    /// APIs approve.
    pub fn fill(
        &self,
        flavor: Flavor,
        api_net_namespace: &str,
        source: &mut ClientArgs,
        api_net: &mut ClientArgs,
    ) {
        let names = flavor.names();
        source.secret = self.source_secret.0.clone();
        source.rate = rate(self.qps, self.burst);
        api_net.rate = rate(self.api_net_qps, self.api_net_burst);
        let plugin = names.provider_id.trim_end_matches("://");
        source.certificate = certificate(&self.bootstrap_kubeconfig, self.rotate_certificates, || {
            let prefix = format!("{}:system:networkplugin", names.networking);
            (format!("{prefix}:{plugin}"), format!("{prefix}s"))
        });
        api_net.certificate =
            certificate(&self.api_net_bootstrap_kubeconfig, self.api_net_rotate_certificates, || {
                let prefix = format!("{}:system:apinetlet", names.finalizers);
                (format!("{prefix}:{api_net_namespace}"), format!("{prefix}s"))
            });
    }
}

/// `identity`: user and group.
fn certificate(
    bootstrap: &str,
    rotate: bool,
    identity: impl FnOnce() -> (String, String),
) -> Option<IssuedCertificate> {
    let bootstrap_kubeconfig = given(bootstrap).map(PathBuf::from);
    (rotate || bootstrap_kubeconfig.is_some()).then(|| {
        let (user, group) = identity();
        IssuedCertificate { bootstrap_kubeconfig, rotate, user, group }
    })
}

/// client-go takes 0 as 5 requests a second, which the API servers' own limits (Priority and Fairness) make unnecessary.
fn rate(qps: f32, burst: u32) -> Option<RateLimit> {
    (qps > 0.0).then(|| RateLimit { qps, burst: NonZeroU32::new(burst).unwrap_or(DEFAULT_BURST) })
}

/// A flag that a template has left empty is not given.
pub(crate) fn given(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// A negative number is no limit, as for client-go.
fn qps(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(qps) if qps <= 0.0 || qps >= RateLimit::MIN_QPS => Ok(qps),
        _ => Err(format!("it has to be 0 or a number of at least {}", RateLimit::MIN_QPS)),
    }
}

fn empty(text: &str) -> Result<String, String> {
    match text {
        "" => Ok(String::new()),
        _ => Err(
            "connections through a konnectivity server are not supported; use a kubeconfig with a proxy-url"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Args;

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["apinetlet", "--api-net-namespace=a"].iter().chain(more))
    }

    fn clients(more: &[&str]) -> (ClientArgs, ClientArgs) {
        let mut args = parse(more).unwrap();
        let (source, api_net) = (&mut args.runtime.client, &mut args.api_net.client);
        args.connection.fill(Flavor::Ironcore, "a", source, api_net);
        (args.runtime.client, args.api_net.client)
    }

    #[test]
    fn an_egress_selector_is_refused_and_an_empty_one_is_not() {
        assert!(parse(&["--egress-selector-config="]).is_ok());
        let refused = parse(&["--api-net-egress-selector-config=/etc/egress.yaml"]);
        assert!(refused.unwrap_err().to_string().contains("proxy-url"));
    }

    #[test]
    fn a_kubeconfig_and_a_secret_exclude_each_other() {
        assert!(parse(&["--kubeconfig=/a", "--kubeconfig-secret-name=b"]).is_err());
        let (source, _) = clients(&["--kubeconfig-secret-name=b"]);
        assert_eq!(source.secret, Some(KubeconfigSecret { name: "b".to_owned(), namespace: None }));
    }

    #[test]
    fn an_empty_kubeconfig_is_not_given() {
        let (source, _) = clients(&["--kubeconfig=", "--kubeconfig-secret-name=b"]);
        assert_eq!(source.secret.map(|secret| secret.name).as_deref(), Some("b"));
        assert_eq!(clients(&["--kubeconfig=/a", "--kubeconfig-secret-name="]).0.secret, None);
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        // A variable that every test has stands for that of the flag.
        let secret = |id: &'static str, arguments: &[&str]| {
            let command = Args::command().mut_arg(id, |arg| arg.env("PATH"));
            let own = ["apinetlet", "--api-net-namespace=a"];
            let arguments = own.into_iter().chain(arguments.iter().copied());
            let args = Args::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap();
            args.connection.source_secret.0.map(|secret| secret.name)
        };
        let of_flag = secret("kubeconfig", &["--kubeconfig-secret-name=b"]);
        assert_eq!(of_flag.as_deref(), Some("b"), "KUBECONFIG is no flag");
        assert_eq!(secret("kubeconfig_secret_name", &["--kubeconfig=/a"]), None);
        assert_eq!(secret("kubeconfig_secret_name", &["--kubeconfig="]), std::env::var("PATH").ok());
    }

    #[test]
    fn certificates_are_for_the_users_of_the_go_program() {
        assert_eq!(clients(&[]).0.certificate, None);
        let (source, api_net) =
            clients(&["--bootstrap-kubeconfig=/bootstrap", "--api-net-rotate-certificates"]);
        let source = source.certificate.unwrap();
        assert_eq!(
            (source.user.as_str(), source.group.as_str(), source.rotate),
            (
                "networking.ironcore.dev:system:networkplugin:ironcore-net",
                "networking.ironcore.dev:system:networkplugins",
                false
            )
        );
        assert_eq!(source.bootstrap_kubeconfig, Some("/bootstrap".into()));
        let expected = IssuedCertificate {
            bootstrap_kubeconfig: None,
            rotate: true,
            user: "apinet.ironcore.dev:system:apinetlet:a".to_owned(),
            group: "apinet.ironcore.dev:system:apinetlets".to_owned(),
        };
        assert_eq!(api_net.certificate, Some(expected));
    }

    #[test]
    fn a_dry_run_that_could_request_a_certificate_is_refused() {
        for (flag, is_refused) in [
            ("--bootstrap-kubeconfig=/bootstrap", true),
            ("--rotate-certificates", true),
            ("--api-net-bootstrap-kubeconfig=/bootstrap", true),
            ("--api-net-rotate-certificates", true),
            ("--bootstrap-kubeconfig=", false),
            ("--rotate-certificates=false", false),
            ("--kubeconfig=/a", false),
        ] {
            let connection = parse(&[flag]).unwrap().connection;
            assert_eq!(connection.check(true).is_err(), is_refused, "{flag}");
            assert!(connection.check(false).is_ok(), "{flag}");
        }
    }

    #[test]
    fn requests_are_limited_only_where_a_flag_says_so() {
        let (source, api_net) = clients(&["--qps=-1", "--api-net-qps=20", "--api-net-burst=30"]);
        assert_eq!(source.rate, None);
        assert_eq!(api_net.rate, Some(RateLimit { qps: 20.0, burst: NonZeroU32::new(30).unwrap() }));
        assert_eq!(clients(&["--qps=0.5"]).0.rate.unwrap().burst, DEFAULT_BURST);
    }

    #[test]
    fn a_limit_near_zero_or_without_a_number_is_refused() {
        for text in ["1e-40", "0.0009", "NaN", "many"] {
            for flag in ["--qps", "--api-net-qps"] {
                let refused = parse(&[&format!("{flag}={text}")]).unwrap_err().to_string();
                assert!(refused.contains("at least 0.001"), "{refused}");
            }
        }
        assert!(parse(&["--qps=0.001", "--api-net-qps=-0"]).is_ok());
    }
}
