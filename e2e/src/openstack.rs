//! Real OpenStack services for tests: Keystone and Neutron, or Nova, Placement, Glance, Cinder and Octavia as well.
//!
//! ```text
//!   OpenStack::start(Parts::KeystoneNeutron, Release::Main, Knobs::default())   its own, gone when dropped
//!   OpenStack::shared(Parts::All, Release::Main)   one for all tests of a test binary: take a project() of your own
//! ```
//!
//! They are the packages of PyPI, in the versions of `e2e/openstack/*.lock`, behind uWSGI, with MariaDB and RabbitMQ of the distribution.
//! Simulated are: networking (`bind_anywhere.py` marks every port as bound), virtual machines (Nova's fake driver), storage (Cinder's logging
//! driver), and the inside of Octavia's amphorae. Everything listens on loopback, and nothing outlives the test process.

mod api;
mod broker;
mod catalogue;
mod conf;
mod database;
mod endpoints;
mod installation;
mod part;
mod ports;
mod project;
mod seed;
mod site;
mod volumes;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::OnceCell;

pub use api::{Api, Login, Response};
pub use endpoints::{Endpoints, Service};
pub use part::Part;
pub use project::{CLOUD, Project};

use seed::Facts;
use site::Site;

/// The one region.
pub const REGION: &str = "RegionOne";

/// The password of the administrator and the services. They are reachable from this machine only.
const PASSWORD: &str = "secret";

static KEYSTONE_NEUTRON: OnceCell<Arc<Cloud>> = OnceCell::const_new();
static KEYSTONE_NEUTRON_OLDEST: OnceCell<Arc<Cloud>> = OnceCell::const_new();
static ALL: OnceCell<Arc<Cloud>> = OnceCell::const_new();

/// The set of services that a cloud runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Keystone and Neutron: seconds to start, half a GiB.
    KeystoneNeutron,
    /// All of [`Service`], with their workers: under a minute, three GiB.
    All,
}

/// The OpenStack release of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The newest supported release.
    Main,
    /// The oldest supported release: Keystone and Neutron only.
    Oldest,
}

impl Release {
    /// The releases for a test of each: the main one, and with `OPENSTACK=all` (`make test-full`) the oldest too.
    #[must_use]
    pub fn tested() -> &'static [Release] {
        let all = std::env::var_os("OPENSTACK").is_some_and(|asked| asked == "all");
        if all { &[Release::Main, Release::Oldest] } else { &[Release::Main] }
    }
}

/// Options of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// Lifetime of tokens in whole seconds; an hour if not set.
    pub token_ttl: Duration,
    /// Maximum page size of lists; 1000 if not set.
    pub page_max: u32,
    /// How long a service caches the validity of a token; 300 s if not set, `None` without a cache.
    pub token_cache: Option<Duration>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            token_ttl: Duration::from_secs(3600),
            page_max: 1000,
            token_cache: Some(Duration::from_secs(300)),
        }
    }
}

/// A paused program: [`OpenStack::pause`].
#[must_use = "the program goes on when this is dropped"]
#[derive(Debug)]
pub struct Paused {
    cloud: OpenStack,
    part: Part,
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Err(error) = self.cloud.0.site.signal(self.part, Signal::SIGCONT) {
            eprintln!("{:?} stays paused: {error:#}", self.part);
        }
    }
}

/// A handle of a cloud; it is stopped with the last one.
#[derive(Debug, Clone)]
pub struct OpenStack(Arc<Cloud>);

#[derive(Debug)]
struct Cloud {
    site: Site,
    facts: Facts,
    admin: Api,
    projects: AtomicU32,
}

impl OpenStack {
    /// Starts one, and returns when all services respond. Installs missing packages first (minutes, once).
    ///
    /// # Errors
    /// A program is missing, exits or does not respond; or [`Parts::All`] of [`Release::Oldest`] is requested.
    pub async fn start(parts: Parts, release: Release, knobs: Knobs) -> Result<Self> {
        Ok(Self(Arc::new(Cloud::start(parts, release, knobs).await?)))
    }

    /// The cloud that all tests of this process share; the first one starts it.
    ///
    /// # Errors
    /// As [`OpenStack::start`].
    pub async fn shared(parts: Parts, release: Release) -> Result<Self> {
        let cell = match (parts, release) {
            (Parts::KeystoneNeutron, Release::Main) => &KEYSTONE_NEUTRON,
            (Parts::KeystoneNeutron, Release::Oldest) => &KEYSTONE_NEUTRON_OLDEST,
            (Parts::All, _) => &ALL,
        };
        let start =
            async || Ok::<_, anyhow::Error>(Arc::new(Cloud::start(parts, release, Knobs::default()).await?));
        Ok(Self(cell.get_or_try_init(start).await?.clone()))
    }

    /// The endpoints of the services.
    pub fn endpoints(&self) -> &Endpoints {
        &self.0.site.endpoints
    }

    /// The administrator, with all permissions in every project.
    pub fn admin(&self) -> &Api {
        &self.0.admin
    }

    /// A new [`Project`] with its resources; a number is appended to `name`.
    ///
    /// # Errors
    /// A service refuses.
    pub async fn project(&self, name: &str) -> Result<Project> {
        let number = self.0.projects.fetch_add(1, Ordering::Relaxed);
        Project::create(&self.0.admin, &self.0.facts, &format!("{name}-{number}")).await
    }

    /// A region with only these services (`network`, `block-storage`), at other addresses: proxies, or simulated services.
    ///
    /// # Errors
    /// Keystone refuses.
    pub async fn region(&self, name: &str, services: &[(&str, String)]) -> Result<()> {
        catalogue::region(&self.0.admin, name, services).await
    }

    /// Sets a quota of Neutron for a project, such as `router` or `port`.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn set_network_quota(&self, project: &Project, resource: &str, limit: i64) -> Result<()> {
        let path = format!("/quotas/{}", project.id);
        self.0.admin.put(Service::Network, &path, json!({ "quota": { resource: limit } })).await.map(drop)
    }

    /// Sets the state of a volume, such as `error_deleting`.
    ///
    /// # Errors
    /// Cinder refuses.
    pub async fn reset_volume(&self, id: &str, status: &str) -> Result<()> {
        self.reset(&format!("/volumes/{id}/action"), status).await
    }

    /// Sets the state of a snapshot.
    ///
    /// # Errors
    /// Cinder refuses.
    pub async fn reset_snapshot(&self, id: &str, status: &str) -> Result<()> {
        self.reset(&format!("/snapshots/{id}/action"), status).await
    }

    async fn reset(&self, path: &str, status: &str) -> Result<()> {
        let body = json!({ "os-reset_status": { "status": status } });
        self.0.admin.post(Service::BlockStorage, path, body).await.map(drop)
    }

    /// Sets the provisioning status of a load balancer, such as `ERROR`, in Octavia's database, because no API call does this.
    ///
    /// # Errors
    /// There is no such load balancer.
    pub fn reset_load_balancer(&self, id: &str, status: &str) -> Result<()> {
        let known = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure!(known(id) && known(status), "neither an ID nor a status: {id} {status}");
        let changed = self.0.site.sql(&format!(
            "update octavia.load_balancer set provisioning_status = '{status}' where id = '{id}'; select row_count()"
        ))?;
        ensure!(changed.trim() == "1", "no load balancer {id}, or it is {status} already");
        Ok(())
    }

    /// Pauses a program and its children, like a hung machine, until the guard is dropped. So a failing test leaves a working cloud for the
    /// next ones.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self, part: Part) -> Result<Paused> {
        self.0.site.signal(part, Signal::SIGSTOP)?;
        Ok(Paused { cloud: self.clone(), part })
    }

    /// Kills a program; its data are kept.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.0.site.kill(part)
    }

    /// Restarts a program at the same address. An API responds when this returns; a worker is ready soon after.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&self, part: Part) -> Result<()> {
        // It may not run.
        let _ = self.0.site.kill(part);
        self.0.site.start(part)?;
        self.0.site.wait_until_ready(part).await
    }

    /// The process of a program.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self, part: Part) -> Result<u32> {
        self.0.site.pid(part)
    }

    /// The folder of its files, which is removed with it.
    pub fn folder(&self) -> &Path {
        self.0.site.dir.path()
    }

    /// The lines that a program has written since it was started last.
    ///
    /// # Errors
    /// It does not run.
    pub fn log(&self, part: Part) -> Result<Vec<String>> {
        self.0.site.log(part)
    }
}

impl Cloud {
    async fn start(parts: Parts, release: Release, knobs: Knobs) -> Result<Self> {
        let site = Site::new(parts, release, knobs).await?;
        let facts = seed::plant(&site, release).await?;
        site.write_conf(facts.amphora_network.as_deref())?;
        site.start_stores().await?;
        seed::adapt(&site, &facts)?;
        site.start_services().await?;
        if parts == Parts::All {
            site.start(Part::OctaviaWorker)?;
            site.start_workers().await.context("Nova and Cinder")?;
        }
        site.warm_up().await?;
        let admin = site.admin();
        Ok(Self { site, facts, admin, projects: AtomicU32::new(1) })
    }
}
