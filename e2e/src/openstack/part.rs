//! The programs, and how each is started.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::site::Site;
use super::{Parts, Service};
use crate::program::{Launch, Program};

/// A program of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// MariaDB.
    Database,
    /// Erlang's name service, which RabbitMQ needs.
    Epmd,
    /// RabbitMQ.
    Broker,
    /// Keystone's API.
    Keystone,
    /// Neutron's API, which is all of Neutron here.
    Neutron,
    /// Placement's API.
    Placement,
    /// Glance's API.
    Glance,
    /// Nova's API.
    NovaApi,
    /// Nova's conductor.
    NovaConductor,
    /// Nova's scheduler.
    NovaScheduler,
    /// Nova's compute service, with the fake driver. Its servers are gone when it is started again.
    NovaCompute,
    /// Cinder's API.
    CinderApi,
    /// Cinder's scheduler.
    CinderScheduler,
    /// Cinder's worker: while it is paused, volumes stay `creating` and `deleting`.
    CinderVolume,
    /// Octavia's API.
    OctaviaApi,
    /// Octavia's worker: while it is paused, load balancers stay `PENDING_…`.
    OctaviaWorker,
}

impl Part {
    /// Its API.
    pub(super) fn service(self) -> Option<Service> {
        Some(match self {
            Self::Keystone => Service::Identity,
            Self::Neutron => Service::Network,
            Self::Placement => Service::Placement,
            Self::Glance => Service::Image,
            Self::NovaApi => Service::Compute,
            Self::CinderApi => Service::BlockStorage,
            Self::OctaviaApi => Service::LoadBalancer,
            _ => return None,
        })
    }

    /// A path of its API that is answered without a token.
    pub(super) fn open_path(self) -> &'static str {
        match self {
            Self::Keystone => "/v3",
            Self::Glance => "/versions",
            _ => "/",
        }
    }

    /// The programs that need nothing but the database and the broker, in the order in which they are started: those
    /// that take longest to load come first.
    pub(super) fn services(parts: Parts) -> &'static [Self] {
        match parts {
            Parts::KeystoneNeutron => &[Self::Neutron, Self::Keystone],
            Parts::All => &[
                Self::Neutron,
                Self::Keystone,
                Self::Placement,
                Self::NovaApi,
                Self::CinderApi,
                Self::OctaviaApi,
                Self::Glance,
                Self::NovaConductor,
                Self::NovaScheduler,
                Self::CinderScheduler,
            ],
        }
    }
}

/// Most of a request is Neutron's Python, and a process executes one thread of it at a time.
const NEUTRON_PROCESSES: usize = 2;

impl Site {
    /// How to start it.
    pub(super) fn launch(&self, part: Part) -> Result<Launch> {
        let wsgi = |name: &str, module: &str, threads| {
            let service = part.service().with_context(|| format!("{part:?} answers no API"))?;
            let port = self.endpoints.port(service)?;
            anyhow::Ok(self.installation.wsgi(name, port, module, threads))
        };
        // Cinder and Octavia look for their files on a command line, which belongs to uWSGI.
        let argv = |file: &str| format!("--config-file {}", self.conf(file).display());
        let worker =
            |name: &str, file: &str| self.installation.script(name).arg("--config-file").arg(self.conf(file));
        Ok(match part {
            Part::Database => self.database_launch(),
            Part::Epmd => Program::at("/usr/bin/epmd")
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .args(["-port".to_owned(), self.broker()?.epmd.to_string()]),
            Part::Broker => self.broker_launch()?,
            // With several threads it sees, now and then, a user without roles that were granted before: then a token lacks
            // them, or an application credential is refused.
            Part::Keystone => {
                wsgi("keystone", "keystone.wsgi.api", 1)?.env("OS_KEYSTONE_CONFIG_DIR", self.conf_folder())
            }
            Part::Neutron => wsgi("neutron", "neutron.wsgi.api", 4)?
                .args(["--processes".to_owned(), NEUTRON_PROCESSES.to_string()])
                .env("OS_NEUTRON_CONFIG_DIR", self.conf_folder())
                .env("OS_NEUTRON_CONFIG_FILES", "neutron.conf"),
            Part::Placement => {
                wsgi("placement", "placement.wsgi.api", 4)?.env("OS_PLACEMENT_CONFIG_DIR", self.conf_folder())
            }
            Part::Glance => {
                wsgi("glance", "glance.wsgi.api", 2)?.env("OS_GLANCE_CONFIG_DIR", self.conf_folder())
            }
            Part::NovaApi => {
                wsgi("nova-api", "nova.wsgi.osapi_compute", 4)?.env("OS_NOVA_CONFIG_DIR", self.conf_folder())
            }
            Part::CinderApi => {
                wsgi("cinder-api", "cinder.wsgi.api", 4)?.args(["--pyargv".to_owned(), argv("cinder.conf")])
            }
            Part::OctaviaApi => wsgi("octavia-api", "octavia.wsgi.api", 2)?
                .args(["--pyargv".to_owned(), argv("octavia.conf")]),
            Part::NovaConductor => worker("nova-conductor", "nova.conf"),
            Part::NovaScheduler => worker("nova-scheduler", "nova.conf"),
            Part::NovaCompute => worker("nova-compute", "nova.conf"),
            Part::CinderScheduler => worker("cinder-scheduler", "cinder.conf"),
            Part::CinderVolume => worker("cinder-volume", "cinder.conf"),
            Part::OctaviaWorker => worker("octavia-worker", "octavia.conf"),
        })
    }

    pub(super) fn conf_folder(&self) -> PathBuf {
        self.dir.file("conf")
    }

    pub(super) fn conf(&self, file: &str) -> PathBuf {
        self.conf_folder().join(file)
    }
}
