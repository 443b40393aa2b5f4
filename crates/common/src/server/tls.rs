//! TLS of a server. Its files are read again when they change, as the mounted Secret of a certificate does when it is renewed.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use prometheus::{IntGauge, Opts};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use crate::metrics::{Metrics, register};

/// How often the files are read. A kubelet takes up to a minute to update a mounted Secret, and a renewed certificate overlaps
/// with the previous one by days.
const INTERVAL: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// PEM files of a server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain: `tls.crt` of a Secret of type `kubernetes.io/tls`.
    pub certificate: PathBuf,
    /// Its private key: `tls.key`.
    pub key: PathBuf,
    /// Verification of client certificates.
    pub clients: ClientCertificates,
}

/// Handling of the certificate of a client (mTLS).
#[derive(Clone, Debug, Default)]
pub enum ClientCertificates {
    /// None is requested.
    #[default]
    Ignored,
    /// A client may present one; it has to be issued by a CA of this bundle.
    Optional(PathBuf),
    /// The handshake fails without a certificate that is issued by a CA of this bundle.
    Required(PathBuf),
}

impl ClientCertificates {
    fn bundle(&self) -> Option<&PathBuf> {
        match self {
            ClientCertificates::Ignored => None,
            ClientCertificates::Optional(bundle) | ClientCertificates::Required(bundle) => Some(bundle),
        }
    }
}

/// The certificate in force.
pub struct Tls {
    /// None: made by this process.
    files: Option<TlsFiles>,
    current: RwLock<(Contents, Arc<ServerConfig>)>,
}

/// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    clients: Option<Vec<u8>>,
}

impl Tls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn read(files: TlsFiles) -> Result<Tls, String> {
        let contents = files.contents()?;
        let config = files.config(&contents)?;
        Ok(Tls { files: Some(files), current: RwLock::new((contents, config)) })
    }

    /// A new certificate for this name. No client can verify it, so that it encrypts without authentication of the server, as the
    /// default certificate of controller-runtime's metrics does.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn self_signed(name: &str) -> Result<Tls, String> {
        let pair = rcgen::generate_simple_self_signed(vec![name.to_owned()]);
        let pair = pair.map_err(|error| format!("cannot generate a certificate: {error}"))?;
        let contents = Contents {
            certificate: pair.cert.pem().into_bytes(),
            key: pair.signing_key.serialize_pem().into_bytes(),
            clients: None,
        };
        let files = TlsFiles {
            certificate: "generated certificate".into(),
            key: "generated key".into(),
            clients: ClientCertificates::Ignored,
        };
        let config = files.config(&contents)?;
        Ok(Tls { files: None, current: RwLock::new((contents, config)) })
    }

    /// Reads the files now. Returns whether they changed; new connections use them from then on.
    ///
    /// # Errors
    /// One line that names the file. The previous ones stay in force.
    pub fn reload(&self) -> Result<bool, String> {
        let Some(files) = &self.files else { return Ok(false) };
        let contents = files.contents()?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).0 == contents {
            return Ok(false);
        }
        let config = files.config(&contents)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (contents, config);
        Ok(true)
    }
}

impl TlsFiles {
    fn contents(&self) -> Result<Contents, String> {
        let read =
            |file: &PathBuf| std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
        Ok(Contents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            clients: self.clients.bundle().map(read).transpose()?,
        })
    }

    fn config(&self, contents: &Contents) -> Result<Arc<ServerConfig>, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match (self.clients.bundle(), &contents.clients) {
            (Some(file), Some(bundle)) => {
                let wrong = |why: &dyn fmt::Display| format!("{}: {why}", file.display());
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file, bundle)? {
                    roots.add(certificate).map_err(|error| wrong(&error))?;
                }
                let mut clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                if matches!(self.clients, ClientCertificates::Optional(_)) {
                    clients = clients.allow_unauthenticated();
                }
                builder.with_client_cert_verifier(clients.build().map_err(|error| wrong(&error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let wrong_key = |why: &dyn fmt::Display| format!("{}: {why}", self.key.display());
        // The error of a key could quote it.
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|_| wrong_key(&"it contains no private key in PEM"))?;
        let chain = certificates(&self.certificate, &contents.certificate)?;
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                wrong_key(&format!("it does not belong to the certificate in {}", self.certificate.display()))
            }
            error => wrong_key(&error),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: &dyn fmt::Display| format!("{}: {why}", file.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| wrong(&error))?;
    if chain.is_empty() {
        return Err(wrong(&"it contains no certificate in PEM"));
    }
    Ok(chain)
}

/// [`Tls`] with its metric.
pub(super) struct Followed {
    tls: Tls,
    server: &'static str,
    problem: IntGauge,
}

impl Followed {
    pub(super) fn new(
        tls: Tls,
        server: &'static str,
        metrics: &Metrics,
    ) -> Result<Followed, prometheus::Error> {
        let help = "1 while changed TLS files cannot be used and the previous ones stay in force";
        let problem = IntGauge::with_opts(
            Opts::new("perimeter_server_tls_problem", help).const_label("server", server),
        )?;
        Ok(Followed { tls, server, problem: register(metrics.registry(), problem)? })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.tls.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current.1))
    }

    /// Reloads in an interval, until it is dropped.
    pub(super) async fn follow(&self) {
        let mut last = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.reload(&mut last);
        }
    }

    /// A problem is logged once, until it is another one.
    fn reload(&self, last: &mut Option<String>) {
        let result = self.tls.reload();
        self.problem.set(i64::from(result.is_err()));
        match result {
            Ok(true) => tracing::info!(server = self.server, "the TLS files changed and are in force"),
            Ok(false) => {}
            Err(why) if last.as_ref() == Some(&why) => return,
            Err(why) => {
                tracing::error!(server = self.server, "{why}; the previous TLS files stay in force");
                *last = Some(why);
                return;
            }
        }
        *last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str) {
        let pair = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        std::fs::write(folder.join("tls.crt"), pair.cert.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    }

    fn files(folder: &Path, clients: ClientCertificates) -> TlsFiles {
        TlsFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key"), clients }
    }

    #[test]
    fn a_changed_pair_is_used_and_half_a_pair_is_refused_with_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), ClientCertificates::Ignored);
        assert!(Tls::read(files.clone()).unwrap_err().contains("tls.crt"));
        write(folder.path(), "a");
        let metrics = Metrics::new("test").unwrap();
        let tls = Followed::new(Tls::read(files).unwrap(), "test", &metrics).unwrap();
        let problem = || {
            let text = String::from_utf8(metrics.text().unwrap()).unwrap();
            text.contains("perimeter_server_tls_problem{server=\"test\"} 1")
        };
        assert_eq!(tls.tls.reload(), Ok(false));
        let key = std::fs::read(folder.path().join("tls.key")).unwrap();
        write(folder.path(), "b");
        assert_eq!(tls.tls.reload(), Ok(true));

        let in_force = tls.acceptor();
        let mut last = None;
        std::fs::write(folder.path().join("tls.key"), key).unwrap();
        tls.reload(&mut last);
        let why = last.clone().unwrap();
        assert!(why.contains("tls.key") && why.contains("does not belong"), "{why}");
        assert!(problem());
        assert!(Arc::ptr_eq(in_force.config(), tls.acceptor().config()), "the previous pair stays in force");
        std::fs::write(folder.path().join("tls.key"), "garbage").unwrap();
        tls.reload(&mut last);
        assert!(last.clone().unwrap().contains("no private key"), "{last:?}");
        std::fs::write(folder.path().join("tls.crt"), "garbage").unwrap();
        assert!(tls.tls.reload().is_err());

        write(folder.path(), "c");
        tls.reload(&mut last);
        assert!(last.is_none() && !problem());
        assert!(!Arc::ptr_eq(in_force.config(), tls.acceptor().config()));
    }

    #[test]
    fn a_bundle_without_certificates_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a");
        let bundle = folder.path().join("ca.crt");
        let required = files(folder.path(), ClientCertificates::Required(bundle.clone()));
        assert!(Tls::read(required.clone()).unwrap_err().contains("ca.crt"));
        std::fs::write(&bundle, "").unwrap();
        assert!(Tls::read(required.clone()).unwrap_err().contains("no certificate"));
        std::fs::copy(folder.path().join("tls.crt"), &bundle).unwrap();
        assert!(Tls::read(required).is_ok());
    }
}
