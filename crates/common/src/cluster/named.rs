//! A further cluster of a program, with flags of its own. The first one is that of [`ClientArgs`].

use std::{ffi::OsString, fmt, marker::PhantomData};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource, value_parser};
use kube::{Client, Resource};

use crate::{
    args::{ClientArgs, KubeconfigSecret, Program},
    cache,
    config::ConfigError,
    metrics::Metrics,
    readiness::Readiness,
};

/// The name of a further cluster. A type for each name: the client of one cluster cannot be mistaken for that of another.
pub trait ClusterName: Send + Sync + 'static {
    /// In the flags (`--<name>-kubeconfig`), the label `api` of metrics, and the names of readiness checks: lower case, digits
    /// and `-`.
    const NAME: &'static str;
}

/// The flags of a further cluster; `#[command(flatten)]` them into the program's arguments.
pub struct ClusterArgs<N> {
    /// `--<name>-kubeconfig`: a file. `--<name>-context`: its context. `--<name>-kubeconfig-secret-name`: a Secret of the first
    /// cluster. `--<name>-kubeconfig-secret-namespace`: the program's own namespace where it is not given.
    pub client: ClientArgs,
    name: PhantomData<fn() -> N>,
}

impl<N> Clone for ClusterArgs<N> {
    fn clone(&self) -> Self {
        ClusterArgs { client: self.client.clone(), name: PhantomData }
    }
}

impl<N: ClusterName> fmt::Debug for ClusterArgs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterArgs")
            .field("name", &N::NAME)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// `kubeconfig` of the cluster `a` is `a-kubeconfig`.
fn flag<N: ClusterName>(name: &str) -> String {
    format!("{}-{name}", N::NAME)
}

impl<N: ClusterName> Args for ClusterArgs<N> {
    fn augment_args(command: Command) -> Command {
        let arg = |name: &str, value: &'static str, help: String| {
            let long = flag::<N>(name);
            let variable = format!("PERIMETER_{}", long.to_uppercase().replace('-', "_"));
            Arg::new(long.clone())
                .long(long)
                .env(variable)
                .value_name(value)
                .help(help)
                .help_heading("Kubernetes")
        };
        let name = N::NAME;
        let kubeconfig = format!(
            "Kubeconfig file of the cluster {name}. Without it and without a Secret: the Pod's service account, and outside of \
             a Pod ~/.kube/config"
        );
        command
            .arg(arg("kubeconfig", "FILE", kubeconfig).value_parser(value_parser!(OsString)))
            .arg(arg("context", "NAME", format!("Context of the kubeconfig of the cluster {name}")))
            .arg(arg(
                "kubeconfig-secret-name",
                "NAME",
                format!(
                    "Secret with the kubeconfig of the cluster {name} under the key {}",
                    super::kubeconfig::SECRET_KEY
                ),
            ))
            .arg(arg(
                "kubeconfig-secret-namespace",
                "NAMESPACE",
                "Namespace of that Secret; the program's own where this is not given".to_owned(),
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<N: ClusterName> FromArgMatches for ClusterArgs<N> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // A flag that a template has left empty counts as not given.
        let text =
            |name: &str| matches.get_one::<String>(&flag::<N>(name)).cloned().filter(|text| !text.is_empty());
        let kubeconfig = matches.get_one::<OsString>(&flag::<N>("kubeconfig")).cloned();
        let mut kubeconfig = kubeconfig.filter(|file| !file.is_empty());
        let mut namespace = text("kubeconfig-secret-namespace");
        let mut secret = text("kubeconfig-secret-name")
            .map(|name| KubeconfigSecret { name, namespace: namespace.clone() });
        if kubeconfig.is_some() && secret.is_some() {
            // The command line wins over the environment.
            let is_flag =
                |name: &str| matches.value_source(&flag::<N>(name)) == Some(ValueSource::CommandLine);
            match (is_flag("kubeconfig"), is_flag("kubeconfig-secret-name")) {
                (true, false) => (secret, namespace) = (None, None),
                (false, true) => kubeconfig = None,
                _ => {}
            }
        }
        let client = ClientArgs { kubeconfig, context: text("context"), secret, ..ClientArgs::default() };
        let refuse = |why: &str| {
            let text = format!("--{}-kubeconfig{why}\n", N::NAME);
            Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, text))
        };
        match &client {
            ClientArgs { kubeconfig: Some(_), secret: Some(_), .. } => {
                refuse(" and a Secret exclude each other")
            }
            ClientArgs { context: Some(_), secret: Some(_), .. } => refuse(
                "-secret-name: only the current context of its kubeconfig is used, a context cannot be chosen",
            ),
            ClientArgs { secret: None, .. } if namespace.is_some() => {
                refuse("-secret-namespace has no effect without the name of a Secret")
            }
            _ => Ok(ClusterArgs { client, name: PhantomData }),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A further cluster.
pub struct Cluster<N> {
    /// For all calls. It has no lease client: the lease is in the first cluster.
    pub client: Client,
    readiness: Readiness,
    name: PhantomData<fn() -> N>,
}

impl<N> Clone for Cluster<N> {
    fn clone(&self) -> Self {
        Cluster { client: self.client.clone(), readiness: self.readiness.clone(), name: PhantomData }
    }
}

impl<N: ClusterName> fmt::Debug for Cluster<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &N::NAME).finish_non_exhaustive()
    }
}

impl<N: ClusterName> Cluster<N> {
    /// Makes the client; calls the API server of the first cluster where the kubeconfig is in a Secret, and no other. `first` and
    /// `namespace`: the client of the first cluster, and the program's own namespace.
    ///
    /// # Errors
    /// [`ConfigError`] where the kubeconfig cannot be used; another error where its Secret cannot be read at present.
    pub(crate) async fn connect(
        args: &ClusterArgs<N>,
        program: &Program,
        metrics: &Metrics,
        readiness: &Readiness,
        first: &Client,
        namespace: &str,
    ) -> anyhow::Result<Cluster<N>> {
        let factory = super::Factory { program: *program, metrics: metrics.clone(), api: N::NAME };
        let client = &args.client;
        let of_cluster = |error: anyhow::Error| match error.downcast::<ConfigError>() {
            Ok(ConfigError(text)) => ConfigError(format!("{}: {text}", N::NAME)).into(),
            Err(error) => error.context(N::NAME),
        };
        let configured = super::configured(client, &factory, Some((first, namespace.to_owned()))).await;
        let (config, connections) = configured.map_err(of_cluster)?;
        let server = super::server(&config);
        tracing::info!(server, namespace = config.default_namespace, "Kubernetes API of {}", N::NAME);
        let client = factory.client(&config, &connections, client.rate, Some(super::RETRIES))?;
        Ok(Cluster { client, readiness: readiness.clone(), name: PhantomData })
    }

    /// Makes the cache one of this cluster: its readiness check is `<name>/<plural>`, and its metrics have the label `api="<name>"`.
    pub fn attach<K>(&self, cache: cache::Builder<K>) -> cache::Builder<K>
    where
        K: Resource + Clone + Send + Sync + 'static,
    {
        cache.of_cluster(N::NAME).readiness(&self.readiness)
    }
}
