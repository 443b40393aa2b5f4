//! Real OpenStack services for tests: Keystone and Neutron, or Nova, Placement, Glance, Cinder and Octavia as well.
//!
//! ```text
//!   OpenStack::start(Parts::KeystoneNeutron, Release::Main, Knobs::default())   its own, gone when dropped
//!   OpenStack::shared(Parts::All, Release::Main)   one for all tests of a test binary: take a project() of your own
//! ```
//!
//! They are what PyPI delivers, in the versions of `e2e/openstack/*.lock`, behind uWSGI, with MariaDB and RabbitMQ of the
//! distribution. What is not real: no agent moves packets (`bind_anywhere.py` says that every port is bound), Nova's
//! virtual machines are its own fake driver's, Cinder's volumes its own logging driver's, and nothing runs inside of
//! Octavia's amphorae. Everything listens on loopback, on ports of its own; nothing outlives the test process.

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
pub(crate) mod wait;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::OnceCell;

pub use api::{Answer, Api, Login};
pub use endpoints::{Endpoints, Service};
pub use part::Part;
pub use project::{CLOUD, Project};

use seed::Facts;
use site::Site;

/// The one region.
pub const REGION: &str = "RegionOne";

/// Of the administrator and of the services: nothing is reached from outside of this machine.
const PASSWORD: &str = "secret";

static KEYSTONE_NEUTRON: OnceCell<Arc<Cloud>> = OnceCell::const_new();
static KEYSTONE_NEUTRON_OLDEST: OnceCell<Arc<Cloud>> = OnceCell::const_new();
static ALL: OnceCell<Arc<Cloud>> = OnceCell::const_new();

/// Which services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Keystone and Neutron: seconds to start, half a GiB.
    KeystoneNeutron,
    /// All of [`Service`], with their workers: under a minute, three GiB.
    All,
}

/// Which release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The newest that we claim.
    Main,
    /// The oldest that we claim: Keystone and Neutron only.
    Oldest,
}

impl Release {
    /// Those that a test about all of them runs on: the main one, and with `OPENSTACK=all` (`make test-full`) the oldest too.
    #[must_use]
    pub fn tested() -> &'static [Release] {
        let all = std::env::var_os("OPENSTACK").is_some_and(|asked| asked == "all");
        if all { &[Release::Main, Release::Oldest] } else { &[Release::Main] }
    }
}

/// What a test can set before the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// How long a token lives; an hour if not set. Whole seconds.
    pub token_ttl: Duration,
    /// The longest page of a list; 1000 if not set.
    pub page_max: u32,
    /// How long a service trusts a token that it has seen, revoked or not; 300 s if not set. `None`: it asks each time.
    pub token_cache: Option<Duration>,
    /// How many processes serve Neutron's API; one if not set. Most of a request is its Python, of which a process does one at
    /// a time.
    pub neutron_processes: u8,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            token_ttl: Duration::from_secs(3600),
            page_max: 1000,
            token_cache: Some(Duration::from_secs(300)),
            neutron_processes: 1,
        }
    }
}

/// A program that stands still: [`OpenStack::pause`].
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

/// A handle of a cloud; the last one ends it.
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
    /// Starts one, and returns when all of it answers. Installs what is missing first (minutes, once).
    ///
    /// # Errors
    /// A program is missing, ends, or does not answer; or [`Parts::All`] of [`Release::Oldest`] is asked for.
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

    /// Where the services are.
    pub fn endpoints(&self) -> &Endpoints {
        &self.0.site.endpoints
    }

    /// The administrator, who may do everything in every project.
    pub fn admin(&self) -> &Api {
        &self.0.admin
    }

    /// A new project with all that [`Project`] says; `name` gets a number behind it.
    ///
    /// # Errors
    /// A service refuses.
    pub async fn project(&self, name: &str) -> Result<Project> {
        let number = self.0.projects.fetch_add(1, Ordering::Relaxed);
        Project::create(&self.0.admin, &self.0.facts, &format!("{name}-{number}")).await
    }

    /// Another region, in which services of these types (`network`, `block-storage`) are at other addresses: behind a proxy, or
    /// played by a test. Whatever else there is, is not there.
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

    /// Sets the state of a volume, such as `error_deleting`, whatever it really is.
    ///
    /// # Errors
    /// Cinder refuses.
    pub async fn reset_volume(&self, id: &str, status: &str) -> Result<()> {
        self.reset(&format!("/volumes/{id}/action"), status).await
    }

    /// Sets the state of a snapshot, whatever it really is.
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

    /// Sets the provisioning status of a load balancer, such as `ERROR`, in Octavia's own database: no call does that.
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

    /// Stops a program, and those that it started, as a hung machine would, until the guard is dropped: a test that fails
    /// meanwhile leaves the next ones a cloud that works.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self, part: Part) -> Result<Paused> {
        self.0.site.signal(part, Signal::SIGSTOP)?;
        Ok(Paused { cloud: self.clone(), part })
    }

    /// Kills a program; its data stay.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.0.site.kill(part)
    }

    /// Starts a program again where it was, killing it first if it runs. An API answers then; a worker works soon.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart(&self, part: Part) -> Result<()> {
        // It may not run.
        let _ = self.0.site.kill(part);
        self.0.site.start(part)?;
        self.0.site.answers(part).await
    }

    /// The process of a program.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self, part: Part) -> Result<u32> {
        self.0.site.pid(part)
    }

    /// The folder of its files, which ends with it.
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
