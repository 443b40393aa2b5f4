//! The three programs and their flags, and nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::assets::Assets;
use super::pki::Identity;
use crate::program::{Launch, free_port};

/// The user of the aggregator.
pub(super) const FRONT_PROXY: &str = "front-proxy-client";

/// Loopback ports, chosen once, so that a restarted API server has the same address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    etcd_peer: u16,
    pub(super) api_server: u16,
}

/// The files that the API server and the controllers share.
#[derive(Debug)]
pub(super) struct Keys<'a> {
    pub(super) ca: &'a Path,
    pub(super) ca_key: &'a Path,
    pub(super) serving: &'a Identity,
    pub(super) tokens: &'a Path,
    pub(super) service_account_key: &'a Path,
    pub(super) service_account_public: &'a Path,
    /// Of the aggregator, to the API servers behind it.
    pub(super) front_proxy: &'a Identity,
}

impl Ports {
    pub(super) fn choose() -> Result<Self> {
        Ok(Self { etcd: free_port()?, etcd_peer: free_port()?, api_server: free_port()? })
    }
}

/// Plain HTTP on loopback, and no fsync.
pub(super) fn etcd(assets: &Assets, dir: &Path, ports: Ports) -> Result<Launch> {
    let (client, peer) =
        (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.etcd_peer));
    Ok(assets.program("etcd")?.args([
        format!("--data-dir={}", dir.join("etcd").display()),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]))
}

pub(super) fn api_server(
    assets: &Assets,
    keys: &Keys<'_>,
    ports: Ports,
    eviction: Duration,
) -> Result<Launch> {
    // Go's garbage collection would take a seventh of the time of its processors.
    Ok(assets.program("kube-apiserver")?.env("GOGC", "400").args([
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // The Service "kubernetes" must not have a loopback address, and is not used.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={}", ports.api_server),
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        format!("--tls-cert-file={}", keys.serving.certificate.display()),
        format!("--tls-private-key-file={}", keys.serving.key.display()),
        format!("--client-ca-file={}", keys.ca.display()),
        format!("--token-auth-file={}", keys.tokens.display()),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", keys.service_account_public.display()),
        format!("--service-account-signing-key-file={}", keys.service_account_key.display()),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        format!("--default-not-ready-toleration-seconds={}", eviction.as_secs()),
        format!("--default-unreachable-toleration-seconds={}", eviction.as_secs()),
        "--profiling=false".to_owned(),
        // It publishes these values for the API servers behind it.
        format!("--proxy-client-cert-file={}", keys.front_proxy.certificate.display()),
        format!("--proxy-client-key-file={}", keys.front_proxy.key.display()),
        format!("--requestheader-client-ca-file={}", keys.ca.display()),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]))
}

pub(super) fn controllers(
    assets: &Assets,
    keys: &Keys<'_>,
    kubeconfig: &Path,
    grace: Duration,
) -> Result<Launch> {
    Ok(controller_manager(assets, kubeconfig)?.args([
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials".to_owned(),
        format!("--service-account-private-key-file={}", keys.service_account_key.display()),
        format!("--root-ca-file={}", keys.ca.display()),
        format!("--cluster-signing-cert-file={}", keys.ca.display()),
        format!("--cluster-signing-key-file={}", keys.ca_key.display()),
        // The interval in which silent nodes are detected.
        "--node-monitor-period=1s".to_owned(),
        format!("--node-monitor-grace-period={}s", grace.as_secs()),
    ]))
}

/// A second kube-controller-manager that only contends for leadership: the one controller that it runs annotates nodes
/// with a TTL, as the first one does.
pub(super) fn contender(assets: &Assets, kubeconfig: &Path, name: &str) -> Result<Launch> {
    Ok(controller_manager(assets, kubeconfig)?
        .args(["--leader-elect=true", "--controllers=ttl-controller"])
        .name(name))
}

fn controller_manager(assets: &Assets, kubeconfig: &Path) -> Result<Launch> {
    Ok(assets.program("kube-controller-manager")?.args([
        format!("--kubeconfig={}", kubeconfig.display()),
        // 0 disables its port, which is not used.
        "--secure-port=0".to_owned(),
        // The default of 20 requests a second would add four seconds to each start.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]))
}
