//! The services with a port of their own, and their addresses.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::program::free_port;

/// An API, as the catalogue of Keystone knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Neutron.
    Network,
    /// Placement.
    Placement,
    /// Glance.
    Image,
    /// Nova.
    Compute,
    /// Cinder.
    BlockStorage,
    /// Octavia.
    LoadBalancer,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Identity,
        Self::Network,
        Self::Placement,
        Self::Image,
        Self::Compute,
        Self::BlockStorage,
        Self::LoadBalancer,
    ];

    /// Name and type of its entries in the catalogue, and what follows the address in each. Cinder has two, as clouds do:
    /// one under its official name, and one under the name that older clients look for.
    pub(super) fn entries(self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            // `keystone-manage bootstrap` writes it.
            Self::Identity => &[],
            Self::Network => &[("neutron", "network", "")],
            Self::Placement => &[("placement", "placement", "")],
            Self::Image => &[("glance", "image", "")],
            Self::Compute => &[("nova", "compute", "/v2.1")],
            Self::BlockStorage => {
                &[("cinder", "block-storage", "/v3"), ("cinderv3", "volumev3", "/v3/%(project_id)s")]
            }
            Self::LoadBalancer => &[("octavia", "load-balancer", "")],
        }
    }

    /// The part of a URL between address and resource.
    fn version(self) -> &'static str {
        match self {
            Self::Identity | Self::BlockStorage => "/v3",
            Self::Network => "/v2.0",
            Self::Placement => "",
            Self::Image => "/v2",
            Self::Compute => "/v2.1",
            Self::LoadBalancer => "/v2/lbaas",
        }
    }
}

/// Loopback ports, chosen once, so that a service that is started again is where it was.
#[derive(Debug, Clone)]
pub struct Endpoints {
    ports: BTreeMap<Service, u16>,
}

impl Endpoints {
    pub(super) fn choose(services: &[Service]) -> Result<Self> {
        let ports = services.iter().map(|&service| anyhow::Ok((service, free_port()?)));
        Ok(Self { ports: ports.collect::<Result<_>>()? })
    }

    /// The services that run here.
    pub fn services(&self) -> impl Iterator<Item = Service> {
        self.ports.keys().copied()
    }

    /// Its port on 127.0.0.1.
    ///
    /// # Errors
    /// The cloud was started without it.
    pub fn port(&self, service: Service) -> Result<u16> {
        let port = self.ports.get(&service).copied();
        port.with_context(|| format!("this cloud was started without {service:?}: ask for Parts::All"))
    }

    /// `http://127.0.0.1:PORT`, as the catalogue's entries begin.
    ///
    /// # Errors
    /// As [`Endpoints::port`].
    pub fn address(&self, service: Service) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.port(service)?))
    }

    /// The URL prefix of resources: address and version.
    ///
    /// # Errors
    /// As [`Endpoints::port`].
    pub fn base(&self, service: Service) -> Result<String> {
        Ok(self.address(service)? + service.version())
    }
}
