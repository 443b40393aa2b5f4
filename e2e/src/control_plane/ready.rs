//! Waits until a control plane is ready.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, Client};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{Daemon, Part};
use crate::wait::TIMEOUT;

/// Poll interval: an API server that starts has no processor to spare for more requests.
const POLL: Duration = Duration::from_millis(50);

/// Waits, and fails as soon as one of the programs has exited.
pub(super) struct Readiness<'a> {
    client: &'a Client,
    programs: Vec<(Part, &'a Daemon)>,
    deadline: Instant,
}

impl<'a> Readiness<'a> {
    pub(super) fn new(client: &'a Client, programs: Vec<(Part, &'a Daemon)>) -> Self {
        Self { client, programs, deadline: Instant::now() + TIMEOUT }
    }

    /// There is a listener on this loopback port.
    pub(super) async fn port(&self, port: u16) -> Result<()> {
        self.until("port", async || Ok(TcpStream::connect(("127.0.0.1", port)).await.map(|_| true)?)).await
    }

    /// The API server is ready and has created its namespaces.
    pub(super) async fn api_server(&self) -> Result<()> {
        let ready = async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            timeout(Duration::from_secs(10), self.client.request_text(request)).await??;
            Ok(true)
        };
        self.until("ready API server", ready).await?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in ["default", "kube-system", "kube-node-lease"] {
            let made = async || Ok(namespaces.get_opt(name).await?.is_some());
            self.until(&format!("namespace {name}"), made).await?;
        }
        Ok(())
    }

    /// The controllers work: pods can be created in this namespace.
    pub(super) async fn default_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let made = async || Ok(accounts.get_opt("default").await?.is_some());
        self.until(&format!("default service account in {namespace}"), made).await
    }

    pub(super) async fn until(&self, what: &str, done: impl AsyncFn() -> Result<bool>) -> Result<()> {
        loop {
            let result = done().await;
            if matches!(result, Ok(true)) {
                return Ok(());
            }
            for (part, daemon) in &self.programs {
                let running = daemon.running();
                if let Some(status) = running.exited()? {
                    bail!("{part:?} ended: {status}{}", running.output().tail());
                }
            }
            if Instant::now() > self.deadline {
                result.with_context(|| format!("no {what} after {TIMEOUT:?}"))?;
                bail!("no {what} after {TIMEOUT:?}");
            }
            sleep(POLL).await;
        }
    }
}
