//! The supported part of a kubeconfig in JSON, as `egress-router install` writes it: one server, one certificate authority, a token or a
//! client certificate.
//!
//! Source: client-go's `clientcmd/api/v1` types. Options that start a program, use a proxy or impersonate are refused by
//! name.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, PrivateKey, parse_pem};

use crate::cni::{Code, Error};

/// Server and credentials. It has no `Debug`, because it contains the token and the key.
pub struct Access {
    /// `server`.
    pub server: Uri,
    /// `tls-server-name`: the name in the server's certificate, if it differs from the server's name.
    pub server_name: Option<String>,
    /// `certificate-authority` or its data; none: the public ones.
    pub authorities: Option<Vec<Certificate<'static>>>,
    /// `insecure-skip-tls-verify`.
    pub skip_verification: bool,
    /// `token`, or the current content of `tokenFile`, where it is renewed.
    pub token: Option<String>,
    /// `client-certificate` and `client-key`, or their data.
    pub identity: Option<(Vec<Certificate<'static>>, PrivateKey<'static>)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    #[serde(default)]
    contexts: Vec<Named<Context>>,
    #[serde(default)]
    clusters: Vec<Named<Cluster>>,
    #[serde(default)]
    users: Vec<Named<User>>,
}

/// An entry of each list has its own key for its value.
#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(rename = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
    username: Option<String>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
}

/// Limit of a file. A bundle of all public authorities has 250 KB. A larger file, such as a device, is truncated and then invalid.
const MAX_FILE_BYTES: u64 = 4 << 20;

fn bounded(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The value of a key. client-go treats an empty one as not set.
fn non_empty(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

/// The file that a message is about.
struct At<'a>(&'a Path);

impl At<'_> {
    fn error(&self, code: Code, details: impl std::fmt::Display) -> Error {
        Error::new(code, format!("the kubeconfig {}: {details}", self.0.display()))
    }

    fn invalid(&self, details: impl std::fmt::Display) -> Error {
        self.error(Code::InvalidConfig, details)
    }

    fn find<T>(&self, all: Vec<Named<T>>, what: &str, name: &str) -> Result<T, Error> {
        let found = all.into_iter().find(|one| one.name == name).map(|one| one.value);
        found.ok_or_else(|| self.invalid(format_args!("there is no {what} {name:?}")))
    }

    /// Relative paths are relative to the kubeconfig.
    fn read(&self, key: &str, file: &str) -> Result<Vec<u8>, Error> {
        let file = self.0.parent().unwrap_or(Path::new("/")).join(file);
        bounded(&file).map_err(|error| {
            self.error(Code::Io, format_args!("{key} {} cannot be read", file.display())).details(error)
        })
    }

    /// The bytes of a pair such as `client-key-data` (which has precedence, as in client-go) and `client-key`.
    fn bytes(
        &self,
        key: &str,
        data: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<Vec<u8>>, Error> {
        match (non_empty(data), non_empty(file)) {
            (Some(data), _) => {
                let dense: String = data.split_ascii_whitespace().collect();
                STANDARD
                    .decode(dense)
                    .map(Some)
                    .map_err(|_| self.invalid(format_args!("{key}-data is not base64")))
            }
            (None, Some(file)) => self.read(key, file).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn certificates(&self, key: &str, pem: &[u8]) -> Result<Vec<Certificate<'static>>, Error> {
        let mut certificates = Vec::new();
        for item in parse_pem(pem) {
            match item {
                Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
                Ok(_) => (),
                Err(_) => return Err(self.invalid(format_args!("{key} is not PEM"))),
            }
        }
        if certificates.is_empty() {
            return Err(self.invalid(format_args!("{key} holds no certificate")));
        }
        Ok(certificates)
    }
}

impl Access {
    /// Reads the current context of the file `path`.
    ///
    /// # Errors
    ///
    /// Code 5: the file, or a file that it names, cannot be read. Code 6: it is not JSON of this structure. Code 7: a value is missing,
    /// contradictory or not supported. No message contains tokens or keys.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            bounded(path).map_err(|error| At(path).error(Code::Io, "it cannot be read").details(error))?;
        Self::parse(&text, path)
    }

    /// Parses `text`, whose relative paths are relative to `path`.
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, Error> {
        let at = At(path);
        // Only the position of the error, because its message could quote a token.
        let file: Kubeconfig = serde_json::from_slice(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            at.error(
                Code::Decode,
                format_args!(
                    "it is not a kubeconfig in JSON, at line {line}, column {column}: write it with \
                     `kubectl config view --raw --minify -o json`"
                ),
            )
        })?;
        let (cluster, user) = file.current(&at)?;
        cluster.supported(&at)?;
        user.supported(&at)?;
        let authorities = at
            .bytes(
                "certificate-authority",
                &cluster.certificate_authority_data,
                &cluster.certificate_authority,
            )?
            .map(|pem| at.certificates("certificate-authority", &pem))
            .transpose()?;
        Ok(Self {
            server: server(&at, &cluster.server)?,
            server_name: non_empty(&cluster.tls_server_name).map(str::to_owned),
            authorities,
            skip_verification: cluster.insecure_skip_tls_verify,
            token: user.token(&at)?,
            identity: user.identity(&at)?,
        })
    }

    /// The prefix of every request's URL.
    pub(super) fn base(&self) -> String {
        let prefix = self.server.path().trim_end_matches('/');
        let authority = self.server.authority().map(ToString::to_string).unwrap_or_default();
        match &self.server_name {
            Some(name) => format!("https://{name}:{}{prefix}", self.server.port_u16().unwrap_or(443)),
            None => format!("https://{authority}{prefix}"),
        }
    }
}

impl Kubeconfig {
    fn current(self, at: &At<'_>) -> Result<(Cluster, User), Error> {
        let desired =
            non_empty(&self.current_context).ok_or_else(|| at.invalid("current-context is missing"))?;
        let context = at.find(self.contexts, "context", desired)?;
        let cluster = at.find(self.clusters, "cluster", &context.cluster)?;
        let user = match non_empty(&context.user) {
            None => User::default(),
            Some(name) => at.find(self.users, "user", name)?,
        };
        Ok((cluster, user))
    }
}

impl Cluster {
    fn supported(&self, at: &At<'_>) -> Result<(), Error> {
        if non_empty(&self.proxy_url).is_some() {
            return Err(at.invalid("proxy-url is not supported: the node must reach the API server itself"));
        }
        let has_authority =
            non_empty(&self.certificate_authority).or(non_empty(&self.certificate_authority_data)).is_some();
        if self.insecure_skip_tls_verify && has_authority {
            return Err(at.invalid(
                "insecure-skip-tls-verify and a certificate-authority contradict each other: leave one of them out",
            ));
        }
        Ok(())
    }
}

impl User {
    fn supported(&self, at: &At<'_>) -> Result<(), Error> {
        let only = "is not supported: it must be token, tokenFile, or client-certificate and client-key";
        for (key, there) in [
            ("exec", self.exec.is_some()),
            ("auth-provider", self.auth_provider.is_some()),
            ("username", non_empty(&self.username).is_some()),
            ("as", non_empty(&self.impersonate).is_some()),
        ] {
            if there {
                return Err(at.invalid(format_args!("{key} of a user {only}")));
            }
        }
        Ok(())
    }

    /// The file has precedence, as in client-go, because it is renewed.
    fn token(&self, at: &At<'_>) -> Result<Option<String>, Error> {
        let (key, token) = match non_empty(&self.token_file) {
            Some(file) => {
                let bytes = at.read("tokenFile", file)?;
                ("tokenFile", String::from_utf8(bytes).map_err(|_| at.invalid("tokenFile is not UTF-8"))?)
            }
            None => ("token", self.token.clone().unwrap_or_default()),
        };
        let token = token.trim();
        // It becomes a header line of the request.
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(at.invalid(format_args!("{key} holds other characters than a token has")));
        }
        Ok((!token.is_empty()).then(|| token.to_owned()))
    }

    fn identity(
        &self,
        at: &At<'_>,
    ) -> Result<Option<(Vec<Certificate<'static>>, PrivateKey<'static>)>, Error> {
        let certificate =
            at.bytes("client-certificate", &self.client_certificate_data, &self.client_certificate)?;
        let key = at.bytes("client-key", &self.client_key_data, &self.client_key)?;
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return Ok(None),
            _ => return Err(at.invalid("client-certificate and client-key need each other")),
        };
        let chain = at.certificates("client-certificate", &certificate)?;
        let key = PrivateKey::from_pem(&key).map_err(|_| at.invalid("client-key holds no private key"))?;
        // ureq panics if certificate and key do not match.
        let der = rustls::pki_types::PrivateKeyDer::try_from(key.der().to_vec());
        let provider = rustls::crypto::ring::default_provider();
        let certificates = chain.iter().map(|one| one.der().to_vec().into()).collect();
        der.ok()
            .and_then(|der| {
                rustls::sign::CertifiedKey::from_der(certificates, der, &provider).ok().map(Arc::new)
            })
            .ok_or_else(|| at.invalid("client-key is not the key of client-certificate"))?;
        Ok(Some((chain, key)))
    }
}

fn server(at: &At<'_>, text: &str) -> Result<Uri, Error> {
    let uri: Option<Uri> = text.parse().ok();
    // Plain HTTP would expose the token; user names in URLs are not supported.
    uri.filter(|uri| {
        uri.scheme_str() == Some("https")
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
            && uri.query().is_none()
    })
    .ok_or_else(|| at.invalid("server must be https://host:port"))
}

#[cfg(test)]
mod tests;
