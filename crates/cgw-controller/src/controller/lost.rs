//! Removes the entries of keepers that are lost from the store `hosts`: see [`super::plan::lost`].

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::cache::ObjectKey;
use common::executor::Executor;
use common::plan::Step;
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

use super::bindings::Bindings;
use super::error::Error;
use super::masters::Statuses;
use super::plan::lost::{Facts, Node, Unregister, lost};
use crate::api::stores::Host;

/// A start of a keeper: its address and its `boot`.
type Start = (SocketAddr, String);

/// Remembers since when status servers have not responded. A restart of this process forgets it, and waits again.
#[derive(Debug)]
pub struct Collector {
    timeout: Duration,
    /// Namespace and name of the keepers' ServiceAccount.
    account: ObjectKey,
    silent: Mutex<HashMap<Start, Instant>>,
}

impl Collector {
    /// Removes what has been silent for `timeout`; `account` is the keepers' ServiceAccount.
    #[must_use]
    pub fn new(timeout: Duration, account: ObjectKey) -> Collector {
        Collector { timeout, account, silent: Mutex::default() }
    }

    /// Removes the entries of keepers that are proven to be lost. The others are examined again after the next poll.
    pub async fn collect(&self, bindings: &Bindings, hosts: &[Host], statuses: &Statuses) {
        for host in self.overdue(hosts, statuses) {
            let of_node = |one: &&Host| one.node == host.node;
            let responds = |one: &&Host| statuses.get(&one.status()).is_some_and(Result::is_ok);
            let responding = hosts.iter().filter(of_node).filter(responds).count();
            match self.unregister(bindings, host, responding).await {
                // After a conflict the keeper is examined again.
                Ok(()) | Err(Error::Conflict(_)) => {}
                Err(error) => {
                    tracing::warn!(keeper = %host.status(), %error, "whether a keeper is lost is not known");
                }
            }
        }
    }

    /// The keepers that have not responded for longer than the timeout.
    fn overdue<'a>(&self, hosts: &'a [Host], statuses: &Statuses) -> Vec<&'a Host> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |host: &&Host| {
            let status = statuses.get(&host.status());
            status.is_some_and(|status| status.as_ref().is_err_and(|error| error.is_silent))
        };
        let start = |host: &Host| (host.status(), host.boot.clone());
        let current: BTreeSet<Start> = hosts.iter().filter(is_silent).map(start).collect();
        silent.retain(|start, _| current.contains(start));
        for start in current {
            silent.entry(start).or_insert_with(Instant::now);
        }
        let is_overdue =
            |host: &&Host| silent.get(&start(host)).is_some_and(|since| since.elapsed() >= self.timeout);
        hosts.iter().filter(is_overdue).collect()
    }

    async fn unregister(&self, bindings: &Bindings, host: &Host, responding: usize) -> Result<(), Error> {
        let (node, pods) = (self.node(bindings, host).await?, self.pods(bindings, host).await?);
        let Some(because) = lost(Facts { node, pods, responding }) else { return Ok(()) };
        let hosts = bindings.stores.read_hosts().await?;
        if !hosts.hosts.contains(host) {
            return Ok(());
        }
        let step = Step { action: Unregister { host: host.clone() }, because };
        let executor = Executor::from(&bindings.runtime);
        executor.execute(&step, bindings.stores.remove_host(host, &hosts.version)).await
    }

    async fn node(&self, bindings: &Bindings, host: &Host) -> Result<Node, Error> {
        let api = Api::<core::Node>::all(bindings.runtime.client.clone());
        let what = || format!("read Node {}", host.node);
        let node = api.get_opt(&host.node).await;
        let node = node.map_err(|cause| Error::Kubernetes { what: what(), cause })?;
        let Some(node) = node else { return Ok(Node::Absent) };
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        Ok(if is_ready { Node::Ready } else { Node::NotReady })
    }

    /// A list without a limit is complete.
    async fn pods(&self, bindings: &Bindings, host: &Host) -> Result<usize, Error> {
        let (namespace, name) = (self.account.namespace(), self.account.name());
        let api = Api::<core::Pod>::namespaced(bindings.runtime.client.clone(), namespace);
        let selector = format!(
            "spec.nodeName={},spec.serviceAccountName={name},status.phase!=Succeeded,status.phase!=Failed",
            host.node
        );
        let list = api.list_metadata(&ListParams::default().fields(&selector)).await;
        let what = || format!("list the Pods of ServiceAccount {} on Node {}", self.account, host.node);
        list.map(|list| list.items.len()).map_err(|cause| Error::Kubernetes { what: what(), cause })
    }
}

#[cfg(test)]
mod tests {
    use super::super::masters::NoStatus;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_keeper_is_overdue_after_the_timeout_without_any_response() {
        let collector = Collector::new(Duration::from_secs(60), ObjectKey::new("cgw", "keeper"));
        let host = |boot: &str| {
            let (ip, vips) = ("10.0.0.21".parse().unwrap(), Vec::new());
            let (node, boot) = ("g1".to_owned(), boot.to_owned());
            vec![Host { v: 1, ip, port: 63051, node, vrid: 51, vips, boot }]
        };
        let overdue = |boot: &str, is_silent: Option<bool>| {
            let hosts = host(boot);
            let status = is_silent.map(|is_silent| Err(NoStatus { is_silent, why: String::new() }));
            let statuses = status.map(|status| (hosts[0].status(), status)).into_iter().collect();
            collector.overdue(&hosts, &statuses).len()
        };
        let after = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(overdue("a", Some(true)), 0);
        after(59).await;
        assert_eq!(overdue("a", Some(true)), 0);
        after(1).await;
        assert_eq!(overdue("a", Some(true)), 1);
        // Any response, and a restart of the keeper, begin a new time.
        assert_eq!(overdue("a", Some(false)), 0);
        assert_eq!(overdue("a", Some(true)), 0);
        after(60).await;
        assert_eq!(overdue("b", Some(true)), 0);
        after(60).await;
        assert_eq!(overdue("b", None), 0, "it was not polled");
        assert_eq!(overdue("b", Some(true)), 0);
    }
}
