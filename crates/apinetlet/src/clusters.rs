//! The two clusters. Their clients have types of their own, because upstream has used the wrong one four times.

use common::cache;
use common::cluster::{Cluster, ClusterName};
use common::runtime::Runtime;
use kube::{Api, Client};

use crate::api::{ApiNetKind, SourceKind};
use crate::names::Flavor;

/// The name of the apinet cluster in flags (`--api-net-kubeconfig`), metrics and readiness checks.
#[derive(Debug)]
pub struct ApiNetName;

impl ClusterName for ApiNetName {
    const NAME: &'static str = "api-net";
}

/// The source cluster: the one with the networking API.
#[derive(Clone)]
pub struct Source {
    client: Client,
    flavor: Flavor,
    /// The watched namespace; all if None.
    namespace: Option<String>,
}

impl Source {
    /// `namespace`: the watched one; all if None.
    #[must_use]
    pub fn new(client: Client, flavor: Flavor, namespace: Option<String>) -> Source {
        Source { client, flavor, namespace }
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn api<K: SourceKind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced_with(self.client.clone(), namespace, &self.flavor)
    }

    /// A cache of the watched objects.
    #[must_use]
    pub fn cache<K: SourceKind>(&self, runtime: &Runtime) -> cache::Builder<K> {
        let api = match &self.namespace {
            Some(namespace) => self.api(namespace),
            None => Api::all_with(self.client.clone(), &self.flavor),
        };
        let cache = cache::Builder::new(api, &self.flavor, &runtime.metrics);
        cache.readiness(&runtime.readiness).trim(without_unread)
    }
}

/// The apinet cluster, and the only namespace that is read and written there.
#[derive(Clone)]
pub struct ApiNet {
    cluster: Cluster<ApiNetName>,
    flavor: Flavor,
    namespace: String,
}

impl ApiNet {
    /// `namespace`: `--api-net-namespace`.
    #[must_use]
    pub fn new(cluster: Cluster<ApiNetName>, flavor: Flavor, namespace: String) -> ApiNet {
        ApiNet { cluster, flavor, namespace }
    }

    /// The objects of the namespace.
    #[must_use]
    pub fn api<K: ApiNetKind>(&self) -> Api<K> {
        Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &self.flavor)
    }

    /// A cache of the objects of the namespace.
    #[must_use]
    pub fn cache<K: ApiNetKind>(&self, runtime: &Runtime) -> cache::Builder<K> {
        let cache = cache::Builder::new(self.api(), &self.flavor, &runtime.metrics);
        self.cluster.attach(cache).trim(without_unread)
    }
}

/// The times, and kubectl's copy of the whole object, are not read.
fn without_unread<K: kube::Resource>(object: &mut K) {
    let metadata = object.meta_mut();
    metadata.creation_timestamp = None;
    metadata.generation = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
