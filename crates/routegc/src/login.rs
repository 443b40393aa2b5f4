//! Credentials of a RouteGC.

use common::api::IdentityRef;
use common::cloud::openstack::Credentials;
use common::secret::{SecretData, SecretError};
use kube::Client;

use crate::error::Error;

/// Reads the credentials of a RouteGC from its Secret.
///
/// # Errors
/// [`Error::Login`], which names the Secret and its key; [`Error::Secret`] if the API server failed.
pub async fn of_secret(
    client: &Client,
    namespace: &str,
    identity: &IdentityRef,
) -> Result<Credentials, Error> {
    let secret = SecretData::read(client, namespace, &identity.name).await;
    let secret = secret.map_err(|error| match error {
        SecretError::Unreadable(..) => Error::Secret(error),
        error => Error::Login(explain(&error)),
    })?;
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

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_api_server_that_fails_is_no_wrong_credential() {
        let identity = json!({ "name": "cloud-config", "cloudName": "openstack" });
        let identity: IdentityRef = serde_json::from_value(identity).unwrap();
        for (code, expected) in [
            (403_u16, "LoginFailed"),
            (404, "LoginFailed"),
            (500, "KubernetesUnavailable"),
            (504, "KubernetesUnavailable"),
        ] {
            let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "no", "code": code })
            .to_string();
            let service = tower::service_fn(move |_: http::Request<Body>| {
                let body = Body::from(body.clone().into_bytes());
                std::future::ready(http::Response::builder().status(code).body(body))
            });
            let read = of_secret(&Client::new(service, "ns"), "ns", &identity).await;
            let error = read.map(|_| ()).unwrap_err();
            assert_eq!(error.code(), expected, "{error}");
            assert!(error.to_string().contains("Secret ns/cloud-config"), "{error}");
        }
    }
}
