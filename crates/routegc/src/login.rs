//! Credentials of a RouteGC.

use common::api::IdentityRef;
use common::cloud::openstack::Credentials;
use common::secret::{SecretData, SecretError};
use kube::Client;

use crate::error::Error;

/// Reads the credentials of a RouteGC from its Secret.
///
/// # Errors
/// [`Error::Login`], which names the Secret and its key.
pub async fn of_secret(
    client: &Client,
    namespace: &str,
    identity: &IdentityRef,
) -> Result<Credentials, Error> {
    let secret = SecretData::read(client, namespace, &identity.name).await;
    let secret = secret.map_err(|error| Error::Login(explain(&error)))?;
    Credentials::from_secret(secret.data(), &identity.cloud_name, identity.region.as_deref())
        .map_err(|error| Error::Login(format!("Secret {namespace}/{}: {error}", identity.name)))
}

/// Names the Role that a user has to change.
pub(crate) fn explain(error: &SecretError) -> String {
    match error {
        SecretError::Forbidden(_) => format!("{error}: add its name to the Role routegc-secrets"),
        error => error.to_string(),
    }
}
