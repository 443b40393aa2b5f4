//! deorbiter's command line.

use std::path::PathBuf;

use clap::{Args as Group, Parser};
use common::args::RuntimeArgs;
use common::command::PlanArgs;
use common::config::ConfigError;

use crate::settings::Settings;
use crate::trigger::hook::HookArgs;

/// Cleans up clusters before they are deleted: removes what they created in OpenStack and verifies that it is gone. Watches objects
/// of the kind Deorbit.
#[derive(Parser, Clone, Debug)]
#[command(name = "deorbiter", version = common::program!().version_text())]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub hook: HookArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub runtime: RuntimeArgs,
}

/// Flags that only deorbiter has.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Clean-up")]
pub struct OwnArgs {
    /// How many Deorbits are reconciled at the same time
    // A reconciliation takes one or two seconds, and nine seconds where a server does not respond: ten keep two hundred clusters moving.
    #[arg(long, env = "PERIMETER_MAX_CONCURRENT_RECONCILES", default_value_t = 10, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub max_concurrent_reconciles: u16,
    /// Namespace whose Deorbits are reconciled, with the Secrets that they name; all namespaces where this is not given. With it,
    /// DeorbitBindings are not served and --hook-address is refused: they are for the objects of all namespaces
    #[arg(long, env = "PERIMETER_WATCH_NAMESPACE", value_name = "NAME")]
    pub watch_namespace: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub settings: Settings,
    /// With --dry-run: the spec of the Deorbit (YAML), all defaults without it. The dry run is for the cluster of --kubeconfig and needs
    /// no Deorbit and no CRD
    #[arg(long, env = "PERIMETER_SPEC", value_name = "FILE", requires = "dry_run")]
    pub spec: Option<PathBuf>,
    /// With --dry-run: entry of clouds.yaml (or OS_* variables, as "envvars") that the cluster is in; without it OpenStack is
    /// not read
    #[arg(long, env = "PERIMETER_CLOUD", value_name = "NAME", requires = "dry_run")]
    pub cloud: Option<String>,
}

impl Args {
    /// The only namespace whose Deorbits are reconciled; None for all. What a template has left empty is not given.
    ///
    /// # Errors
    /// Another flag that needs all namespaces is given too.
    pub fn watched(&self) -> Result<Option<String>, ConfigError> {
        let watched = self.own.watch_namespace.clone().filter(|namespace| !namespace.is_empty());
        if watched.is_some() && self.hook.hook_address.is_some() {
            let why = "--watch-namespace cannot be combined with --hook-address: Cluster API calls the hook for the Clusters of all namespaces";
            return Err(ConfigError(why.to_owned()));
        }
        Ok(watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_for_all_namespaces_is_refused_where_one_is_watched() {
        let watched = |more: &[&str]| {
            let arguments = std::iter::once(&"deorbiter").chain(more);
            Args::try_parse_from(arguments).unwrap().watched().map_err(|error| error.to_string())
        };
        assert_eq!(watched(&[]), Ok(None));
        assert_eq!(watched(&["--watch-namespace="]), Ok(None), "a variable that a template has left empty");
        assert_eq!(watched(&["--watch-namespace=team"]), Ok(Some("team".to_owned())));
        assert_eq!(watched(&["--hook-address=[::]:9443"]), Ok(None));
        let error = watched(&["--watch-namespace=team", "--hook-address=[::]:9443"]).unwrap_err();
        assert!(error.contains("--hook-address") && !error.contains('\n'), "{error}");
    }
}
