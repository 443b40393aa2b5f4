//! The real providers with the real control plane and the real cloud: what they create, how they delete it, and what stays when they stop.

mod balancers;
mod deorbit;
mod garbage;
mod ingresses;
mod routes;
mod volumes;

use e2e::control_plane::ControlPlane;
use e2e::openstack::{OpenStack, Parts, Project, Release};
use e2e::providers::{self, Provider, Providers};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that need all workers of the cloud hold it to read, those that stop one hold it to write.
static WORKERS: RwLock<()> = RwLock::const_new(());

/// A cluster and a project for one test.
struct TestEnv {
    name: String,
    cloud: OpenStack,
    project: Project,
    control_plane: ControlPlane,
    providers: Providers,
}

impl TestEnv {
    async fn start(name: &str, providers_to_run: &[Provider]) -> Self {
        let cloud = OpenStack::shared(Parts::All, Release::Main).await.unwrap();
        let project = cloud.project(name).await.unwrap();
        let control_plane = providers::control_plane().start().await.unwrap();
        let providers = Providers::prepare(&control_plane, &project, name).await.unwrap();
        for &provider in providers_to_run {
            providers.run(provider).await.unwrap();
        }
        Self { name: name.to_owned(), cloud, project, control_plane, providers }
    }

    /// A server and its Node: the server's ID and address.
    async fn node(&self, name: &str) -> (String, String) {
        let (server, address) = self.project.server(name).await.unwrap();
        self.providers.node(name, &server, &address).await.unwrap();
        (server, address)
    }

    /// The first Node, with its route: a Node that is not initialised has no address, and becomes a member of load balancers later.
    async fn initialised(&self, name: &str) {
        self.node(name).await;
        until("an initialised Node", async || self.project.routes().await.unwrap().len() == 1).await;
    }
}

async fn workers() -> RwLockReadGuard<'static, ()> {
    WORKERS.read().await
}

async fn workers_alone() -> RwLockWriteGuard<'static, ()> {
    WORKERS.write().await
}

/// Waits for a condition.
async fn until(what: &str, done: impl AsyncFn() -> bool) {
    e2e::wait::until(what, async || Ok(done().await.then_some(()))).await.unwrap();
}
