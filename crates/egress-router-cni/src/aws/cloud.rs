//! Endpoints, credentials and the retry budget of requests to AWS, for acquire and release.

use std::ffi::OsString;
use std::time::Instant;

use super::credentials::Credentials;
use super::ec2::{Ec2, Endpoint};
use super::error::Error;
use super::metadata::{self, Metadata};
use super::retry::RetryBudget;
use super::transport::Transport;
use crate::config::settings;

/// Access to AWS from this node.
pub struct Cloud<'a> {
    transport: &'a dyn Transport,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    settings: &'a settings::Aws,
    metadata_endpoint: String,
}

impl<'a> Cloud<'a> {
    /// Endpoints come from the node's settings, then from the environment, which is the container runtime's; never from a
    /// network configuration.
    #[must_use]
    pub fn new(
        transport: &'a dyn Transport,
        settings: &'a settings::Aws,
        environment: &'a dyn Fn(&str) -> Option<OsString>,
    ) -> Self {
        let metadata_endpoint = settings
            .metadata_endpoint
            .clone()
            .or_else(|| text(environment, "AWS_EC2_METADATA_SERVICE_ENDPOINT"))
            .unwrap_or_else(|| metadata::ENDPOINT.into());
        Self { transport, environment, settings, metadata_endpoint }
    }

    /// The instance metadata service.
    #[must_use]
    pub fn metadata(&self, deadline: Instant) -> Metadata<'_> {
        Metadata::new(self.transport, &self.metadata_endpoint, deadline)
    }

    /// Endpoint of the metadata service.
    #[must_use]
    pub fn metadata_endpoint(&self) -> &str {
        &self.metadata_endpoint
    }

    /// EC2 in this instance's region, with the environment's credentials or the instance's.
    ///
    /// # Errors
    ///
    /// The metadata service has not the needed values, or an endpoint is invalid.
    pub fn ec2(&self, metadata: &Metadata<'_>, deadline: Instant) -> Result<Ec2<'_>, Error> {
        let region = metadata.region()?;
        let endpoint_override = self
            .settings
            .ec2_endpoint
            .clone()
            .or_else(|| text(self.environment, "AWS_ENDPOINT_URL_EC2"))
            .or_else(|| text(self.environment, "AWS_ENDPOINT_URL"));
        let endpoint = match endpoint_override {
            Some(endpoint_override) => endpoint_override,
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

fn text(environment: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<String> {
    environment(name)?.into_string().ok().filter(|text| !text.is_empty())
}
