//! The configuration by flags, validated before anything else runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::api::routegc::{NodePrefixLength, NodesFrom, RouteGCSpec, Safety};
use common::api::{IdentityRef, Period};
use common::cloud::openstack::{CloudConf, Credentials};
use common::routes::Policy;
use common::runtime::ConfigError;

use crate::args::{ModeArg, SingleArgs};

/// The policies that routegc serves.
#[derive(Clone, Debug)]
pub enum Config {
    /// The RouteGC objects of routegc's namespace.
    Objects,
    /// One router, by flags.
    Single(Box<Single>),
}

/// One router, by flags.
#[derive(Clone, Debug)]
pub struct Single {
    /// The spec of an equivalent RouteGC. Its `identityRef` is not used.
    pub spec: RouteGCSpec,
    /// Source of the credentials.
    pub login: Login,
}

/// Source of the credentials. They are read in each reconciliation, so that renewed ones are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// A cloud.conf.
    CloudConf(PathBuf),
    /// clouds.yaml and OS_* variables.
    Usual(Option<String>),
}

/// A shorter interval would only load the cloud. The schema has the same limit.
const LEAST_INTERVAL: Duration = Duration::from_secs(10);

/// The default of --interval, as the schema has it.
const INTERVAL: Duration = Duration::from_secs(300);

impl Config {
    /// Checks the flags, and reads the login once.
    ///
    /// # Errors
    /// One line that names the flag or the file, and what is allowed.
    pub fn new(args: &SingleArgs) -> Result<Config, ConfigError> {
        // An empty variable counts as unset.
        let file = args.cloud_config.as_ref().filter(|file| !file.is_empty());
        let given = args.router_id.clone().filter(|id| !id.is_empty());
        let login = match (file, &given) {
            (Some(_), _) if args.cloud.is_some() => {
                return refuse(
                    "--cloud and --cloud-config cannot be used together: each of them selects the credentials",
                );
            }
            (Some(file), _) => Login::CloudConf(file.into()),
            (None, Some(_)) => Login::Usual(args.cloud.clone()),
            (None, None) => {
                let Some(flag) = of_one_router(args) else { return Ok(Config::Objects) };
                return refuse(&format!(
                    "{flag} needs --router-id or --cloud-config; without them, policies are RouteGC objects"
                ));
            }
        };
        let (_, from_file) = login.read()?;
        let from_file = from_file.map(|id| ("[Route] router-id of the cloud.conf", id));
        let Some((place, router_id)) = given.map(|id| ("--router-id", id)).or(from_file) else {
            return refuse("--router-id is needed: the cloud.conf has no [Route] router-id");
        };
        if !is_router_id(&router_id) {
            return refuse(&format!(
                "{place}: {router_id:?} is not an ID: letters, digits and -, as `openstack router list` shows it"
            ));
        }
        if args.interval < LEAST_INTERVAL {
            return refuse("--interval must be 10s or more");
        }
        let length =
            NodePrefixLength { ipv4: args.node_cidr_mask_size_ipv4, ipv6: args.node_cidr_mask_size_ipv6 };
        let spec = RouteGCSpec {
            identity_ref: IdentityRef {
                kind: Default::default(),
                name: String::new(),
                cloud_name: String::new(),
                region: None,
            },
            router_id: Some(router_id),
            router_name: None,
            open_stack_cluster_ref: None,
            pod_cidrs: networks(args).cloned().collect(),
            node_prefix_length: Some(length),
            interval: Period::seconds(args.interval.as_secs()),
            mode: args.mode.into(),
            safety: Safety {
                confirmations: args.confirmations,
                min_age: Period::seconds(args.min_age.as_secs()),
                max_removals: args.max_removals,
                max_percent: args.max_percent,
                allow_unsafe_update: args.allow_unsafe_update,
                ignore_open_ports: args.ignore_open_ports,
                all_next_hops_are_ports: args.all_next_hops_are_ports,
            },
            nodes_from: args.nodes.then_some(NodesFrom { secret_ref: None, in_cluster: true }),
        };
        Policy::of(&spec).map_err(|error| ConfigError(format!("--cluster-cidr: {error}")))?;
        Ok(Config::Single(Box::new(Single { spec, login })))
    }
}

impl Login {
    /// The login as it is now, and the router that it names.
    ///
    /// # Errors
    /// One line that names the file and what is wrong.
    pub fn read(&self) -> Result<(Credentials, Option<String>), ConfigError> {
        match self {
            Login::CloudConf(file) => {
                let conf = CloudConf::parse(&text(file)?)
                    .map_err(|error| ConfigError(format!("{}: {error}", file.display())))?;
                Ok((conf.credentials, conf.router_id))
            }
            Login::Usual(cloud) => {
                let credentials =
                    Credentials::find(cloud.as_deref()).map_err(|error| ConfigError(error.to_string()))?;
                Ok((credentials, None))
            }
        }
    }
}

fn text(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file)
        .map_err(|error| ConfigError(format!("{}: cannot be read: {error}", file.display())))
}

fn networks(args: &SingleArgs) -> impl Iterator<Item = &String> {
    args.cluster_cidr.iter().filter(|network| !network.is_empty())
}

/// As the schema of a RouteGC has it. The ID is also part of the name of the ConfigMap with the status.
fn is_router_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// A flag that only applies to one router, and is not at its default. With such a flag but without a router, the command line is refused,
/// so that it does not start to reconcile RouteGC objects, which have settings of their own.
fn of_one_router(args: &SingleArgs) -> Option<&'static str> {
    let default = Safety::default();
    let given = [
        ("--cluster-cidr", networks(args).next().is_some()),
        ("--cloud", args.cloud.is_some()),
        ("--mode", args.mode != ModeArg::Audit),
        ("--interval", args.interval != INTERVAL),
        ("--confirmations", args.confirmations != default.confirmations),
        ("--min-age", args.min_age != default.min_age.duration()),
        ("--max-removals", args.max_removals != default.max_removals),
        ("--max-percent", args.max_percent != default.max_percent),
        ("--allow-unsafe-update", args.allow_unsafe_update),
        ("--ignore-open-ports", args.ignore_open_ports),
        ("--all-next-hops-are-ports", args.all_next_hops_are_ports),
        ("--node-cidr-mask-size-ipv4", args.node_cidr_mask_size_ipv4.is_some()),
        ("--node-cidr-mask-size-ipv6", args.node_cidr_mask_size_ipv6.is_some()),
        ("--nodes", args.nodes),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

fn refuse<T>(why: &str) -> Result<T, ConfigError> {
    Err(ConfigError(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Args;

    fn config(flags: &[&str]) -> Result<Config, String> {
        let args =
            Args::try_parse_from(std::iter::once(&"routegc").chain(flags)).map_err(|e| e.to_string())?;
        Config::new(&args.single).map_err(|error| error.to_string())
    }

    fn cloud_conf(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    const GLOBAL: &str = "[Global]\nauth-url=http://127.0.0.1:1/v3\napplication-credential-id=a\napplication-credential-secret=b\n";

    #[test]
    fn without_flags_policies_are_objects() {
        assert!(matches!(config(&[]), Ok(Config::Objects)));
    }

    #[test]
    fn flags_of_one_router_are_refused_without_it() {
        for (flags, named) in [
            (&["--cluster-cidr", "10.244.0.0/16"][..], "--cluster-cidr"),
            (&["--cloud", "prod"][..], "--cloud"),
            (&["--mode", "enforce"][..], "--mode"),
            (&["--cloud", "prod", "--mode", "enforce"][..], "--cloud"),
        ] {
            let refused = config(flags).unwrap_err();
            assert!(
                refused.starts_with(&format!("{named} needs --router-id or --cloud-config")),
                "{refused}"
            );
        }
    }

    #[test]
    fn every_flag_of_one_router_is_refused_without_it() {
        let values = [
            ("cluster-cidr", "10.244.0.0/16"),
            ("cloud", "prod"),
            ("mode", "enforce"),
            ("interval", "1m"),
            ("confirmations", "3"),
            ("min-age", "1m"),
            ("max-removals", "11"),
            ("max-percent", "51"),
            ("node-cidr-mask-size-ipv4", "24"),
            ("node-cidr-mask-size-ipv6", "64"),
        ];
        let command = Args::command();
        let single = command
            .get_arguments()
            .filter(|one| one.get_help_heading() == Some("One router, without RouteGC objects"));
        let names = single.filter_map(clap::Arg::get_long);
        for name in names.filter(|name| !["cloud-config", "router-id"].contains(name)) {
            let flag = format!("--{name}");
            let value = values.iter().find(|(of, _)| *of == name).map(|(_, value)| *value);
            let given: Vec<&str> = std::iter::once(flag.as_str()).chain(value).collect();
            let refused = config(&given).unwrap_err();
            assert!(refused.starts_with(&format!("{flag} needs --router-id or --cloud-config")), "{refused}");
        }
    }

    #[test]
    fn a_cloud_conf_has_the_router_and_a_flag_overrides_it() {
        let file = cloud_conf(&format!("{GLOBAL}[Route]\nrouter-id=r-1\n"));
        let file = file.path().to_str().unwrap();
        let nets = ["--cluster-cidr", "10.244.0.0/16,fd00:10::/56", "--cluster-cidr", "10.245.0.0/16"];
        let Config::Single(one) = config(&[&["--cloud-config", file], &nets[..]].concat()).unwrap() else {
            panic!("objects");
        };
        assert_eq!((one.spec.router_id.as_deref(), one.spec.pod_cidrs.len()), (Some("r-1"), 3));
        assert_eq!(one.spec.mode, common::api::routegc::Mode::Audit);
        let other = [&["--cloud-config", file, "--router-id", "r-2"], &nets[..]].concat();
        let Config::Single(one) = config(&other).unwrap() else { panic!("objects") };
        assert_eq!(one.spec.router_id.as_deref(), Some("r-2"));
        // As with PERIMETER_ROUTER_ID= in the environment.
        let empty = [&["--cloud-config", file, "--router-id", ""], &nets[..]].concat();
        let Config::Single(one) = config(&empty).unwrap() else { panic!("objects") };
        assert_eq!(one.spec.router_id.as_deref(), Some("r-1"));
    }

    #[test]
    fn empty_flags_count_as_unset() {
        let empty = ["--cloud-config", "", "--router-id", "", "--cluster-cidr", ""];
        assert!(matches!(config(&empty), Ok(Config::Objects)));
        // Not a conflict with --cloud: the flag needs a router only.
        let refused = config(&["--cloud-config", "", "--cloud", "prod"]).unwrap_err();
        assert!(refused.starts_with("--cloud needs --router-id"), "{refused}");
        let file = cloud_conf(&format!("{GLOBAL}[Route]\nrouter-id = r-1\n"));
        let file = file.path().to_str().unwrap();
        let trailing = ["--cloud-config", file, "--cluster-cidr", "10.244.0.0/16,"];
        let Config::Single(one) = config(&trailing).unwrap() else { panic!("objects") };
        assert_eq!(one.spec.pod_cidrs, ["10.244.0.0/16"]);
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_flag() {
        let file = cloud_conf(GLOBAL);
        let file = file.path().to_str().unwrap();
        let refused = |more: &[&str]| config(&[&["--cloud-config", file], more].concat()).unwrap_err();
        assert!(refused(&["--cluster-cidr", "10.244.0.0/16"]).contains("[Route] router-id"));
        assert!(
            refused(&["--cloud", "prod"]).starts_with("--cloud and --cloud-config cannot be used together")
        );
        let router = ["--router-id", "r"];
        assert!(refused(&router).starts_with("--cluster-cidr: no pod network"));
        assert!(
            refused(&[&router[..], &["--cluster-cidr", "10.244.1.0/16"]].concat()).contains("10.244.0.0/16")
        );
        assert!(
            refused(&[&router[..], &["--cluster-cidr", "10.244.0.0/16", "--interval", "1s"]].concat())
                .contains("10s")
        );
        let network = ["--cluster-cidr", "10.244.0.0/16"];
        for name in ["edge.prod", "edge 1", "edge_1", "../r"] {
            let refused = refused(&[&["--router-id", name][..], &network].concat());
            assert!(refused.starts_with(&format!("--router-id: {name:?} is not an ID")), "{refused}");
        }
        let file = cloud_conf(&format!("{GLOBAL}[Route]\nrouter-id = edge.prod\n"));
        let named = [&["--cloud-config", file.path().to_str().unwrap()][..], &network].concat();
        assert!(
            config(&named).unwrap_err().starts_with("[Route] router-id of the cloud.conf: \"edge.prod\"")
        );
        assert!(
            config(&["--cloud-config", "/nonexistent"])
                .unwrap_err()
                .starts_with("/nonexistent: cannot be read")
        );
    }
}
