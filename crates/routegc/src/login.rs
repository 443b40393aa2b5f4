//! From a Secret or a file to a cloud. A login that did not change keeps its token.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use common::api::IdentityRef;
use common::cloud::openstack::{Cloud, Credentials, Metrics};
use common::cluster::error_chain;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::config::Login;
use crate::error::Error;
use crate::home::Home;

/// The clouds in use. They are made on first use and when a login changes.
#[derive(Debug)]
pub struct Logins {
    user_agent: String,
    metrics: Metrics,
    known: Mutex<BTreeMap<Home, (Credentials, Cloud)>>,
}

impl Logins {
    /// `metrics` counts the requests of all.
    #[must_use]
    pub fn new(user_agent: String, metrics: Metrics) -> Logins {
        Logins { user_agent, metrics, known: Mutex::default() }
    }

    /// The cloud of a RouteGC, by its Secret as it is now.
    ///
    /// # Errors
    /// [`Error::Login`], which names the Secret and its key.
    pub async fn by_secret(
        &self,
        home: &Home,
        client: &Client,
        namespace: &str,
        identity: &IdentityRef,
    ) -> Result<Cloud, Error> {
        let data = secret(client, namespace, &identity.name).await.map_err(Error::Login)?;
        let credentials = Credentials::from_secret(&data, &identity.cloud_name, identity.region.as_deref());
        let credentials = credentials
            .map_err(|error| Error::Login(format!("Secret {namespace}/{}: {error}", identity.name)))?;
        self.cloud(home, credentials)
    }

    /// The cloud of the flags, by its file as it is now.
    ///
    /// # Errors
    /// [`Error::Login`], which names the file.
    pub fn by_file(&self, home: &Home, login: &Login) -> Result<Cloud, Error> {
        let (credentials, _) = login.read().map_err(|error| Error::Login(error.to_string()))?;
        self.cloud(home, credentials)
    }

    fn cloud(&self, home: &Home, credentials: Credentials) -> Result<Cloud, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((same, cloud)) = known.get(home).filter(|(same, _)| *same == credentials) {
            let _ = same;
            return Ok(cloud.clone());
        }
        let cloud = Cloud::new(&credentials, &self.user_agent, &self.metrics)
            .map_err(|error| Error::Login(error.to_string()))?;
        known.insert(home.clone(), (credentials, cloud.clone()));
        Ok(cloud)
    }

    /// Forgets the tokens of policies that are not there any more.
    pub fn keep(&self, keep: impl Fn(&Home) -> bool) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|home, _| keep(home));
    }
}

/// The data of one Secret, by its name: no right to list or watch Secrets is needed.
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
