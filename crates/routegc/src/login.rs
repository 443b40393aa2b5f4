//! Credentials and kubeconfigs from Secrets.

use std::collections::BTreeMap;

use common::api::IdentityRef;
use common::cloud::openstack::Credentials;
use common::cluster::error_chain;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

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
    let data = secret(client, namespace, &identity.name).await.map_err(Error::Login)?;
    Credentials::from_secret(&data, &identity.cloud_name, identity.region.as_deref())
        .map_err(|error| Error::Login(format!("Secret {namespace}/{}: {error}", identity.name)))
}

/// The data of one Secret, by its name. This needs no permission to list or watch Secrets.
pub(crate) async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let read = Api::<Secret>::namespaced(client.clone(), namespace).get(name).await;
    let secret = read.map_err(|cause| match &cause {
        kube::Error::Api(status) if status.code == 404 => {
            format!("there is no Secret {namespace}/{name}")
        }
        kube::Error::Api(status) if status.code == 403 => {
            format!("Secret {namespace}/{name} may not be read: add its name to the Role routegc-secrets")
        }
        _ => format!("Secret {namespace}/{name} cannot be read: {}", error_chain(&cause)),
    })?;
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect())
}
