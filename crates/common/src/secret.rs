//! Secrets that a custom resource names, read by name when they are needed: no right to list or watch Secrets is required.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};

use crate::{
    cluster::{self, error_chain},
    runtime::Runtime,
};

/// Why a Secret cannot be used: one line for a person, with the Secret and its key, without any part of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Namespace and name.
    #[error("Secret {0} does not exist")]
    Missing(String),
    /// Namespace and name.
    #[error("this program has no right to read Secret {0}")]
    Forbidden(String),
    /// The API server reported another error, or did not respond.
    #[error("Secret {0} cannot be read: {1}")]
    Unreadable(String, String),
    /// Namespace and name, then the key.
    #[error("Secret {0} has no key {1}")]
    NoKey(String, String),
    /// Namespace and name, the key, and what is wrong with the value.
    #[error("Secret {0}, key {1}: {2}")]
    Invalid(String, String, String),
}

/// Identifies a value without containing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// The data of one Secret. `Debug` shows no value.
#[derive(Clone)]
pub struct SecretData {
    place: String,
    data: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for SecretData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretData").field("place", &self.place).finish_non_exhaustive()
    }
}

impl SecretData {
    /// Reads a Secret.
    ///
    /// # Errors
    /// [`SecretError`]; the cause of [`SecretError::Unreadable`] may be temporary.
    pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<SecretData, SecretError> {
        let place = format!("{namespace}/{name}");
        match Api::<Secret>::namespaced(client.clone(), namespace).get(name).await {
            Ok(secret) => {
                let data = secret.data.unwrap_or_default();
                Ok(SecretData { place, data: data.into_iter().map(|(key, value)| (key, value.0)).collect() })
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Err(SecretError::Missing(place)),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(SecretError::Forbidden(place)),
            Err(error) => Err(SecretError::Unreadable(place, error_chain(&error))),
        }
    }

    /// All values, by key.
    #[must_use]
    pub fn data(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.data
    }

    /// The text under a key.
    ///
    /// # Errors
    /// [`SecretError::NoKey`], or [`SecretError::Invalid`] where the value is not UTF-8.
    pub fn text(&self, key: &str) -> Result<&str, SecretError> {
        let value =
            self.data.get(key).ok_or_else(|| SecretError::NoKey(self.place.clone(), key.to_owned()))?;
        std::str::from_utf8(value).map_err(|_| self.invalid(key, "it is not UTF-8"))
    }

    /// The error of a value that the caller cannot use.
    #[must_use]
    pub fn invalid(&self, key: &str, why: impl Into<String>) -> SecretError {
        SecretError::Invalid(self.place.clone(), key.to_owned(), why.into())
    }

    /// Of all keys and values.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut digest = Sha256::new();
        for (key, value) in &self.data {
            // With its length, a value cannot look like the next key.
            digest.update(format!("{key}\0{}\0", value.len()));
            digest.update(value);
        }
        Digest(digest.finalize().into())
    }
}

impl Digest {
    /// Of one value.
    #[must_use]
    pub fn of(value: impl AsRef<[u8]>) -> Digest {
        Digest(Sha256::digest(value).into())
    }
}

/// An object that was made from a value, such as a client from a credential. It is kept until the value changes.
#[derive(Clone, Debug)]
pub struct Kept<T>(Option<(Digest, T)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept(None)
    }
}

impl<T: Clone> Kept<T> {
    /// The object that was made from this value, if it is the last value.
    #[must_use]
    pub fn get(&self, digest: Digest) -> Option<T> {
        self.0.as_ref().filter(|(same, _)| *same == digest).map(|(_, made)| made.clone())
    }

    /// Replaces the object that was made from an earlier value.
    pub fn set(&mut self, digest: Digest, made: T) -> T {
        self.0 = Some((digest, made.clone()));
        made
    }
}

/// The client of a cluster whose kubeconfig, or whose certificates in the format of Kubernikus, are in a Secret. The same client,
/// with its connections, while they are unchanged.
#[derive(Clone, Default)]
pub struct KubeconfigClient(Kept<Client>);

impl KubeconfigClient {
    /// Reads the Secret. A kubeconfig cannot run programs or read files of this process: see [`cluster::of_kubeconfig`].
    /// `server`: the API server, for certificates without a kubeconfig.
    ///
    /// # Errors
    /// [`SecretError`].
    pub async fn get(
        &mut self,
        runtime: &Runtime,
        namespace: &str,
        name: &str,
        key: &str,
        server: Option<&str>,
    ) -> Result<Client, SecretError> {
        let secret = SecretData::read(&runtime.client, namespace, name).await?;
        let text = match secret.text(key) {
            Ok(text) => text.to_owned(),
            Err(error @ SecretError::NoKey(..)) => {
                cluster::kubernikus::kubeconfig(&secret, key, server)?.ok_or(error)?
            }
            Err(error) => return Err(error),
        };
        let digest = Digest::of(&text);
        if let Some(client) = self.0.get(digest) {
            return Ok(client);
        }
        let client = cluster::of_kubeconfig(&text, &runtime.program, &runtime.metrics).await;
        let client = client.map_err(|error| secret.invalid(key, error_chain(&*error)))?;
        Ok(self.0.set(digest, client))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn client() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let (code, body) = match name.as_str() {
                "good" => (
                    200,
                    r#"{"metadata": {"name": "good"}, "data": {"value": "aGVsbG8=", "bytes": "/w=="}}"#
                        .to_owned(),
                ),
                "missing" => (404, r#"{"code": 404, "message": "not found"}"#.to_owned()),
                "forbidden" => (403, r#"{"code": 403, "message": "forbidden"}"#.to_owned()),
                _ => (500, r#"{"code": 500, "message": "etcdserver: request timed out"}"#.to_owned()),
            };
            Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body.into_bytes())).unwrap())
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn an_error_names_the_secret_and_the_key_and_no_value() {
        let client = client();
        let secret = SecretData::read(&client, "a", "good").await.unwrap();
        assert_eq!(secret.text("value"), Ok("hello"));
        let failed = async |name| SecretData::read(&client, "a", name).await.unwrap_err().to_string();
        assert_eq!(failed("missing").await, "Secret a/missing does not exist");
        assert_eq!(failed("forbidden").await, "this program has no right to read Secret a/forbidden");
        assert_eq!(failed("broken").await, "Secret a/broken cannot be read: etcdserver: request timed out");
        let failed = |key| secret.text(key).unwrap_err().to_string();
        assert_eq!(failed("other"), "Secret a/good has no key other");
        assert_eq!(failed("bytes"), "Secret a/good, key bytes: it is not UTF-8");
        assert!(!format!("{secret:?}").contains("hello"));
    }

    fn secret(pairs: &[(&str, &str)]) -> SecretData {
        SecretData {
            place: "a/b".to_owned(),
            data: pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect(),
        }
    }

    #[tokio::test]
    async fn the_certificates_of_a_kluster_and_the_url_of_its_api_server_are_a_kubeconfig() {
        let made = rcgen::generate_simple_self_signed(vec!["prod.example.com".to_owned()]).unwrap();
        let (certificate, private) = (made.cert.pem(), made.signing_key.serialize_pem());
        let all = [
            ("tls-ca.pem", certificate.as_str()),
            ("apiserver-clients-cluster-admin.pem", certificate.as_str()),
            ("apiserver-clients-cluster-admin-key.pem", private.as_str()),
        ];
        let server = Some("https://prod.example.com");
        let kubeconfig =
            |secret: &SecretData, server| cluster::kubernikus::kubeconfig(secret, "value", server);
        let text = kubeconfig(&secret(&all), server).unwrap().unwrap();
        let metrics = crate::metrics::Metrics::new("test").unwrap();
        assert!(cluster::of_kubeconfig(&text, &crate::program!(), &metrics).await.is_ok());
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["clusters"][0]["cluster"]["server"], "https://prod.example.com");
        let base64 =
            |pem: &str| serde_json::to_value(k8s_openapi::ByteString(pem.as_bytes().to_vec())).unwrap();
        assert_eq!(parsed["users"][0]["user"]["client-key-data"], base64(&private));

        assert_eq!(kubeconfig(&secret(&[("password", "s3cr3t")]), server), Ok(None), "no Kluster's");
        let error = kubeconfig(&secret(&all), None).unwrap_err().to_string();
        assert!(
            error.starts_with("Secret a/b, key value: ") && error.contains("kubeconfig.server"),
            "{error}"
        );
        for missing in [0, 2] {
            let mut some = all.to_vec();
            let (key, _) = some.remove(missing);
            let error = kubeconfig(&secret(&some), server).unwrap_err();
            assert_eq!(error, SecretError::NoKey("a/b".to_owned(), key.to_owned()));
        }
    }

    #[test]
    fn what_was_made_of_a_value_is_kept_until_the_value_changes() {
        let first = secret(&[("a", "1"), ("b", "2")]).digest();
        let mut kept = Kept::default();
        assert_eq!(kept.get(first), None);
        assert_eq!((kept.set(first, 7), kept.get(first)), (7, Some(7)));
        for other in
            [secret(&[("a", "1"), ("b", "3")]), secret(&[("a", "1")]), secret(&[("a", "1b\u{0}1\u{0}2")])]
        {
            assert_eq!(kept.get(other.digest()), None, "{:?}", other.data);
        }
    }
}
