//! One running cloud: its folder, its ports and its programs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use http::Method;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::api::exchange;
use super::broker::Broker;
use super::conf::Conf;
use super::installation::Installation;
use super::{Api, Endpoints, Knobs, Login, PASSWORD, Part, Parts, Release, Service};
use crate::program::{Launch, Program};
use crate::state_dir::StateDir;
use crate::wait::TIMEOUT;

/// Poll interval.
const POLL: Duration = Duration::from_millis(100);

/// Fields are dropped in order: the programs are stopped before their folder is removed.
#[derive(Debug)]
pub(super) struct Site {
    programs: Mutex<BTreeMap<Part, Program>>,
    pub(super) parts: Parts,
    pub(super) knobs: Knobs,
    pub(super) endpoints: Endpoints,
    pub(super) broker: Option<Broker>,
    pub(super) installation: Installation,
    pub(super) dir: StateDir,
}

impl Site {
    pub(super) async fn new(parts: Parts, release: Release, knobs: Knobs) -> Result<Self> {
        ensure!(
            (parts, release) != (Parts::All, Release::Oldest),
            "the oldest release has Keystone and Neutron only"
        );
        let installation = Installation::locate(release).await?;
        let (endpoints, broker) = match parts {
            Parts::KeystoneNeutron => (Endpoints::choose(&[Service::Identity, Service::Network])?, None),
            Parts::All => (Endpoints::choose(&Service::ALL)?, Some(Broker::choose()?)),
        };
        let programs = Mutex::default();
        Ok(Self { programs, parts, knobs, endpoints, broker, installation, dir: StateDir::create()? })
    }

    /// The folder in which the services keep the data that outlives their processes.
    pub(super) fn state(&self) -> PathBuf {
        self.dir.file("state")
    }

    pub(super) fn write_conf(&self, amphora_network: Option<&str>) -> Result<()> {
        Conf {
            endpoints: &self.endpoints,
            knobs: &self.knobs,
            venv: &self.installation.venv(),
            state: &self.state(),
            socket: &self.socket(),
            broker: self.broker.map(|ports| ports.amqp),
            amphora_network,
        }
        .write(&self.conf_folder())
    }

    /// The administrator of everything.
    pub(super) fn admin(&self) -> Api {
        let login = Login::Password {
            user: "admin".to_owned(),
            password: PASSWORD.to_owned(),
            project: "admin".to_owned(),
        };
        Api::new(self.endpoints.clone(), login)
    }

    /// Starts a program, if it does not run.
    pub(super) fn start(&self, part: Part) -> Result<()> {
        let mut programs = self.programs();
        if let Some(program) = programs.get(&part)
            && program.exited()?.is_none()
        {
            return Ok(());
        }
        // Some start processes of their own, which miss the end of their parent at times: who works in the folder ends
        // with it. And Python searches its working directory for modules first.
        let program = self.launch(part)?.folder(self.dir.path()).start()?;
        programs.insert(part, program);
        Ok(())
    }

    /// Kills a program and its children.
    pub(super) fn kill(&self, part: Part) -> Result<()> {
        let program = self.programs().remove(&part);
        let program = program.with_context(|| format!("{part:?} does not run"))?;
        let family = family(program.pid());
        program.kill()?;
        for pid in family {
            // Most children end by themselves; paused ones do not.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        Ok(())
    }

    /// Ends a program by SIGTERM, and waits until it has.
    pub(super) async fn stop(&self, part: Part) -> Result<()> {
        let program = self.programs().remove(&part);
        let program = program.with_context(|| format!("{part:?} does not run"))?;
        program.signal(Signal::SIGTERM)?;
        program.wait_exit().await?;
        Ok(())
    }

    /// Sends a signal to a program and to those that it started.
    pub(super) fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        let programs = self.programs();
        let program = programs.get(&part).with_context(|| format!("{part:?} does not run"))?;
        program.signal(signal)?;
        for pid in family(program.pid()) {
            kill(Pid::from_raw(pid), signal).with_context(|| format!("{signal} to a child of {part:?}"))?;
        }
        Ok(())
    }

    pub(super) fn pid(&self, part: Part) -> Result<u32> {
        Ok(self.programs().get(&part).with_context(|| format!("{part:?} does not run"))?.pid())
    }

    /// The lines that a program has written since its last start.
    pub(super) fn log(&self, part: Part) -> Result<Vec<String>> {
        let programs = self.programs();
        let program = programs.get(&part).with_context(|| format!("{part:?} does not run"))?;
        Ok(program.output().lines())
    }

    /// Database and, where there is one, broker: started, and ready to be used.
    pub(super) async fn start_stores(&self) -> Result<()> {
        self.start(Part::Database)?;
        if let Some(ports) = self.broker {
            self.start(Part::Epmd)?;
            self.until("epmd", || listens(ports.epmd)).await?;
            self.start(Part::Broker)?;
        }
        self.until("MariaDB", async || self.sql("select 1").map(drop)).await
    }

    /// Starts the services that only need database and broker, and waits until they respond.
    pub(super) async fn start_services(&self) -> Result<()> {
        // They ask for it once and give up for seconds if it is not there.
        if let Some(ports) = self.broker {
            self.until("RabbitMQ", || listens(ports.amqp)).await?;
        }
        for &part in Part::services(self.parts) {
            self.start(part)?;
        }
        for &part in Part::services(self.parts) {
            self.wait_until_ready(part).await?;
        }
        Ok(())
    }

    /// Waits until the API of this program responds. uWSGI accepts connections earlier, while it loads the application.
    pub(super) async fn wait_until_ready(&self, part: Part) -> Result<()> {
        let Some(service) = part.service() else { return Ok(()) };
        let url = self.endpoints.address(service)? + part.open_path();
        self.until(&format!("answer of {part:?}"), async || {
            let response = exchange(Method::GET, &url, &[], None).await?;
            ensure!(matches!(response.status.as_u16(), 200 | 300 | 401), "{url}: {}", response.status);
            Ok(())
        })
        .await
    }

    /// Sends requests to each process of each API before others do, because Neutron loads its policies with the first request
    /// and refuses concurrent ones.
    pub(super) async fn warm_up(&self) -> Result<()> {
        let admin = self.admin();
        for service in self.endpoints.services() {
            let path = match service {
                Service::Identity => "/projects",
                Service::Network => "/networks",
                Service::Placement => "/resource_providers",
                Service::Image => "/images",
                Service::Compute => "/servers",
                Service::BlockStorage => "/volumes",
                Service::LoadBalancer => "/loadbalancers",
            };
            // More than the threads of one process, so that no process is left out.
            let requests = if service == Service::Network { 12 } else { 1 };
            self.until(&format!("response of {service:?}"), async || {
                try_join_all((0..requests).map(|_| admin.get(service, path))).await.map(drop)
            })
            .await?;
        }
        Ok(())
    }

    /// The workers of Nova and Cinder have reported, and servers and volumes can be placed.
    pub(super) async fn start_workers(&self) -> Result<()> {
        // It gives up at once if Placement does not answer.
        self.start(Part::NovaCompute)?;
        self.reported(Service::BlockStorage, &["cinder-scheduler"]).await?;
        // Cinder's worker reports its capabilities at its start and then once a minute, so the scheduler must already run.
        self.start(Part::CinderVolume)?;
        self.reported(Service::Compute, &["nova-conductor", "nova-scheduler", "nova-compute"]).await?;
        self.reported(Service::BlockStorage, &["cinder-volume"]).await?;
        let admin = self.admin();
        let project = admin.get(Service::Identity, "/projects?name=admin").await?;
        let project =
            project.pointer("/projects/0/id").and_then(Value::as_str).context("no project admin")?;
        let path = format!("/{project}/scheduler-stats/get_pools");
        self.until("pool of volumes", async || {
            let pools = admin.get(Service::BlockStorage, &path).await?;
            let pools = pools.get("pools").and_then(Value::as_array).context("no pools")?;
            ensure!(!pools.is_empty(), "the scheduler knows of no pool");
            Ok(())
        })
        .await
    }

    async fn reported(&self, service: Service, workers: &[&str]) -> Result<()> {
        let admin = self.admin();
        self.until(&format!("reports of {workers:?}"), async || {
            let list = admin.get(service, "/os-services").await?;
            let list = list.get("services").and_then(Value::as_array).context("no services")?.clone();
            for worker in workers {
                let up = list.iter().any(|each| {
                    each.get("binary").is_some_and(|binary| binary == worker)
                        && each.get("state").is_some_and(|state| state == "up")
                });
                ensure!(up, "{worker} has not reported");
            }
            Ok(())
        })
        .await
    }

    /// Waits, and fails as soon as a program has exited.
    pub(super) async fn until(&self, what: &str, done: impl AsyncFn() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let result = done().await;
            if result.is_ok() {
                return Ok(());
            }
            for (part, program) in &*self.programs() {
                if let Some(status) = program.exited()? {
                    bail!("{part:?} ended: {status}{}", program.output().tail());
                }
            }
            if Instant::now() > deadline {
                return result.with_context(|| format!("no {what} after {TIMEOUT:?}"));
            }
            sleep(POLL).await;
        }
    }

    /// Runs one of the services' own tools to its end.
    pub(super) async fn tool(&self, launch: Launch) -> Result<Vec<String>> {
        let launch = launch.folder(self.dir.path());
        let program = launch.start()?;
        let status = program.wait_exit().await?;
        ensure!(status.success(), "{launch:?}: {status}{}", program.output().tail());
        Ok(program.output().lines())
    }

    fn programs(&self) -> MutexGuard<'_, BTreeMap<Part, Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is a listener on this loopback port.
async fn listens(port: u16) -> Result<()> {
    Ok(TcpStream::connect(("127.0.0.1", port)).await.map(drop)?)
}

/// All descendants of a process; those that exit meanwhile may be missing.
fn family(pid: u32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut waiting = vec![pid];
    while let Some(pid) = waiting.pop() {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()) {
                found.extend(i32::try_from(child).ok());
                waiting.push(child);
            }
        }
    }
    found
}
