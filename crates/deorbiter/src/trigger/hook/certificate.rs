//! The hook's certificate: `tls.crt` and `tls.key` of a folder, as a Secret of type `kubernetes.io/tls` is mounted. Read again
//! when they change; a pair that cannot be used is reported, and the old one stays in force.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How often the files are read. A kubelet takes a minute to update a Secret, and the old certificate stays valid for days.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The certificate in force.
pub struct Certificates {
    folder: PathBuf,
    now: RwLock<(Files, Arc<CertifiedKey>)>,
}

#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The key must not be logged.
impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// One sentence that names the file.
    pub fn read(folder: &Path) -> Result<Arc<Certificates>, String> {
        let files = Files::read(folder)?;
        let pair = files.pair(folder)?;
        Ok(Arc::new(Certificates { folder: folder.to_owned(), now: RwLock::new((files, pair)) }))
    }

    /// Reads the files again. Whether a new certificate is in force.
    ///
    /// # Errors
    /// One sentence; the old one stays in force.
    pub fn reload(&self) -> Result<bool, String> {
        let files = Files::read(&self.folder)?;
        if self.now.read().unwrap_or_else(PoisonError::into_inner).0 == files {
            return Ok(false);
        }
        let pair = files.pair(&self.folder)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = (files, pair);
        Ok(true)
    }

    /// Polls until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match self.reload() {
                Ok(changed) => {
                    last.clear();
                    if changed {
                        tracing::info!(folder = %self.folder.display(), "the hook has a new certificate");
                    }
                }
                Err(why) if why != last => {
                    tracing::error!("{why}; the hook's old certificate stays in force");
                    last = why;
                }
                Err(_) => {}
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner).1))
    }
}

impl Files {
    fn read(folder: &Path) -> Result<Files, String> {
        let read = |name: &str| {
            let file = folder.join(name);
            std::fs::read(&file).map_err(|error| format!("--hook-cert-dir: {}: {error}", file.display()))
        };
        Ok(Files { certificate: read("tls.crt")?, key: read("tls.key")? })
    }

    fn pair(&self, folder: &Path) -> Result<Arc<CertifiedKey>, String> {
        let wrong = |file: &str, why: &dyn std::fmt::Display| {
            format!("--hook-cert-dir: {}: {why}", folder.join(file).display())
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|error| wrong("tls.crt", &error))?;
        if chain.is_empty() {
            return Err(wrong("tls.crt", &"it holds no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        // The error of a key could quote it.
        let key = key.map_err(|_| wrong("tls.key", &"it holds no private key in PEM"))?;
        let key = any_supported_type(&key).map_err(|error| wrong("tls.key", &error))?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(Arc::new(pair))
            }
            Err(_) => Err(wrong("tls.key", &"it does not belong to the certificate in tls.crt")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_new_pair_is_used_and_an_incomplete_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Certificates::read(folder.path()).unwrap_err().contains("tls.crt"));
        write(folder.path(), "a");
        let certificates = Certificates::read(folder.path()).unwrap();
        assert_eq!(certificates.reload(), Ok(false));
        let key = std::fs::read(folder.path().join("tls.key")).unwrap();
        write(folder.path(), "b");
        assert_eq!(certificates.reload(), Ok(true));
        std::fs::write(folder.path().join("tls.key"), key).unwrap();
        let why = certificates.reload().unwrap_err();
        assert!(why.contains("tls.key") && why.contains("does not belong"), "{why}");
        std::fs::write(folder.path().join("tls.key"), "garbage").unwrap();
        assert!(certificates.reload().is_err());
        write(folder.path(), "c");
        assert_eq!(certificates.reload(), Ok(true));
    }
}
