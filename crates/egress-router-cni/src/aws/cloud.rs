//! Endpoints, credentials and the retry budget of requests to AWS, for acquire and release.

use std::ffi::OsString;
use std::time::Instant;

use super::credentials::Credentials;
use super::ec2::{Ec2, Endpoint};
use super::metadata::{self, Metadata};
use crate::cni::Error;
use crate::config::settings;
use crate::http::Transport;
use crate::http::retry::RetryBudget;

/// Access to AWS from this node.
pub struct Cloud<'a> {
    transport: &'a dyn Transport,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    settings: &'a settings::Aws,
}

impl<'a> Cloud<'a> {
    /// Endpoints come from the node's settings, never from a network configuration; credentials may come from the environment, which is
    /// the container runtime's.
    #[must_use]
    pub fn new(
        transport: &'a dyn Transport,
        settings: &'a settings::Aws,
        environment: &'a dyn Fn(&str) -> Option<OsString>,
    ) -> Self {
        Self { transport, environment, settings }
    }

    /// The instance metadata service.
    #[must_use]
    pub fn metadata(&self, deadline: Instant) -> Metadata<'_> {
        Metadata::new(self.transport, self.metadata_endpoint(), deadline)
    }

    /// Endpoint of the metadata service.
    #[must_use]
    pub fn metadata_endpoint(&self) -> &str {
        self.settings.metadata_endpoint.as_deref().unwrap_or(metadata::ENDPOINT)
    }

    /// EC2 in this instance's region, with the environment's credentials or the instance's.
    ///
    /// # Errors
    ///
    /// The metadata service has not the needed values, or an endpoint is invalid.
    pub fn ec2(&self, metadata: &Metadata<'_>, deadline: Instant) -> Result<Ec2<'_>, Error> {
        let region = metadata.region()?;
        let endpoint = match &self.settings.ec2_endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://ec2.{region}.{}", metadata.domain()?),
        };
        let endpoint = Endpoint::parse(&endpoint)?;
        let credentials = match Credentials::from_environment(self.environment) {
            Some(credentials) => credentials,
            None => Credentials::of_instance(metadata)?,
        };
        Ok(Ec2::new(self.transport, endpoint, region, credentials, RetryBudget::until(deadline)))
    }

    /// Whether an associated Elastic IP may be moved.
    #[must_use]
    pub fn reassociates(&self) -> bool {
        self.settings.allow_reassociation.unwrap_or(true)
    }
}
