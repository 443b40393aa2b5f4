//! Verification of server certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};

use super::error::Error;

/// How a server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// No TLS: every endpoint is plain `http`.
    Plain,
    /// With the system's trusted authorities (`SSL_CERT_FILE`, `SSL_CERT_DIR`).
    System,
    /// With these authorities (PEM) and no others.
    Only(Vec<u8>),
    /// Not at all: an attacker on the network can pose as the cloud and take the credential.
    InsecureSkipVerify,
}

impl Trust {
    /// The authorities of a PEM text.
    ///
    /// # Errors
    /// [`Error::Setup`] when the text holds no certificate, or one that cannot be read.
    pub fn only(pem: &[u8]) -> Result<Trust, Error> {
        authorities(pem).map(|_| Trust::Only(pem.to_owned()))
    }

    /// None for the system's authorities.
    pub(super) fn config(&self) -> Result<Option<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let verification = match self {
            Trust::Plain | Trust::System => return Ok(None),
            Trust::Only(pem) => Verification::listed(authorities(pem)?, provider.clone())?,
            Trust::InsecureSkipVerify => Verification::Skip,
        };
        let verifier = Arc::new(Verifier { verification, provider: provider.clone() });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|cause| Error::Setup(format!("TLS cannot be set up: {cause}")))?;
        Ok(Some(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
    }
}

/// Whether a server presented a certificate that is marked as an authority's.
fn is_ca_as_server(cause: &OtherError) -> bool {
    cause.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Certificates that are trusted.
struct Authorities {
    store: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
}

fn authorities(pem: &[u8]) -> Result<Authorities, Error> {
    let wrong = |why: String| Error::Setup(format!("the certificate authorities (PEM) {why}"));
    let mut all = Authorities { store: RootCertStore::empty(), listed: Vec::new() };
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|cause| wrong(format!("cannot be read: {cause}")))?;
        let added = all.store.add(certificate.clone());
        added.map_err(|cause| wrong(format!("hold one that is not valid: {cause}")))?;
        all.listed.push(certificate);
    }
    if all.listed.is_empty() {
        return Err(wrong("hold no certificate".to_owned()));
    }
    Ok(all)
}

/// Verifies a server's certificate. Signatures are always verified, so that a broken connection is an error.
#[derive(Debug)]
struct Verifier {
    verification: Verification,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Verification {
    /// Certificates that an authority of the list signed, and a listed certificate that is marked as an authority and is used by the
    /// server itself: `openssl req -x509` creates such certificates, many small clouds use them, and other OpenStack programs
    /// accept them.
    Listed { signed: Arc<WebPkiServerVerifier>, listed: Vec<CertificateDer<'static>> },
    /// Every certificate is accepted.
    Skip,
}

impl Verification {
    fn listed(authorities: Authorities, provider: Arc<CryptoProvider>) -> Result<Verification, Error> {
        let Authorities { store, listed } = authorities;
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build();
        let signed = signed.map_err(|cause| Error::Setup(format!("TLS cannot be set up: {cause}")))?;
        Ok(Verification::Listed { signed, listed })
    }
}

impl Verifier {
    /// Without verification, a certificate that cannot be parsed is accepted too, for example one of version 1: `openssl x509 -req`
    /// creates them, and other OpenStack programs connect to such servers. A wrong signature remains an error.
    fn ignore_invalid_certificate(
        &self,
        signed: Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match (&self.verification, signed) {
            (Verification::Skip, Err(rustls::Error::InvalidCertificate(cause)))
                if cause != CertificateError::BadSignature =>
            {
                Ok(HandshakeSignatureValid::assertion())
            }
            (_, signed) => signed,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Verification::Listed { signed, listed } = &self.verification else {
            return Ok(ServerCertVerified::assertion());
        };
        match signed.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The verifier reports this for a certificate that is valid now; its name is not compared yet.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(cause)))
                if is_ca_as_server(&cause) && listed.iter().any(|one| one == certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            end => end,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        self.ignore_invalid_certificate(verify_tls12_signature(message, certificate, signature, known))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        self.ignore_invalid_certificate(verify_tls13_signature(message, certificate, signature, known))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_certificates_in_pem() {
        let ours = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        assert!(matches!(Trust::only(ours.cert.pem().as_bytes()), Ok(Trust::Only(_))));
        let key = ours.signing_key.serialize_pem();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for wrong in ["", "no PEM", &key, broken] {
            let error = Trust::only(wrong.as_bytes()).unwrap_err();
            assert!(matches!(&error, Error::Setup(_)), "{error:?}");
            assert!(!error.to_string().contains("AAAA") && !error.to_string().contains("KEY"), "{error}");
        }
    }
}
