//! CertificateSigningRequests of the signer `kubernetes.io/kube-apiserver-client`.

use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{
        CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
    },
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::{Instant, sleep};

use crate::args::IssuedCertificate;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// An elliptic key encrypts no other key. With "key encipherment" too, the controllers of ironcore v0.5 and ironcore-net v0.3 do not
/// approve the request (`certificateapproval_controller.go` passes over the requests that it recognizes).
const USAGES: [&str; 2] = ["digital signature", "client auth"];

/// For the approval and the signature. Controllers do both in milliseconds; a person gets the error with the request's name.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

/// A certificate and its key, both in PEM. Without `Debug`, because the key is secret.
pub(super) struct Pair {
    pub(super) certificate: Vec<u8>,
    pub(super) key: String,
}

/// Requests a certificate with a new ECDSA key, and waits until it is issued. `prefix`: of the request's name.
///
/// # Errors
/// The request is refused, denied, failed, deleted, or not issued within a minute.
pub(super) async fn request(
    client: &Client,
    certificate: &IssuedCertificate,
    prefix: &str,
) -> anyhow::Result<Pair> {
    let key = KeyPair::generate().context("private key")?;
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, certificate.group.as_str());
    name.push(DnType::CommonName, certificate.user.as_str());
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let csr = params.serialize_request(&key).and_then(|csr| csr.pem()).context("certificate request")?;
    let mut object = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(csr.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    object.metadata.generate_name = Some(format!("{prefix}-"));
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let object = requests
        .create(&PostParams::default(), &object)
        .await
        .context("a CertificateSigningRequest cannot be created")?;
    let name = object.name_any();
    tracing::info!(name, user = certificate.user, "CertificateSigningRequest created");
    let certificate = issued(&requests, &name, &object.uid().unwrap_or_default())
        .await
        .with_context(|| format!("CertificateSigningRequest {name}"))?;
    Ok(Pair { certificate, key: key.serialize_pem() })
}

async fn issued(requests: &Api<CertificateSigningRequest>, name: &str, uid: &str) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let object = requests.get(name).await?;
        ensure!(object.uid().as_deref() == Some(uid), "another request has this name now");
        if let Some(certificate) = outcome(object.status.unwrap_or_default())? {
            return Ok(certificate);
        }
        ensure!(
            Instant::now() < deadline,
            "it was not approved and signed within {} s; approve it with kubectl certificate approve",
            TIMEOUT.as_secs()
        );
        sleep(POLL).await;
    }
}

/// None: not decided yet.
fn outcome(status: CertificateSigningRequestStatus) -> anyhow::Result<Option<Vec<u8>>> {
    for condition in status.conditions.unwrap_or_default() {
        if matches!(condition.type_.as_str(), "Denied" | "Failed") {
            let (reason, message) =
                (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
            bail!("it is {}: {reason}: {message}", condition.type_.to_lowercase());
        }
    }
    Ok(status.certificate.map(|certificate| certificate.0).filter(|certificate| !certificate.is_empty()))
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: SystemTime,
    pub(super) until: SystemTime,
}

impl Validity {
    /// That of the first certificate of a chain.
    ///
    /// # Errors
    /// It is no certificate.
    pub(super) fn of_pem(pem: &[u8]) -> anyhow::Result<Validity> {
        let der =
            CertificateDer::from_pem_slice(pem).map_err(|error| anyhow!("client certificate: {error}"))?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der)
            .map_err(|error| anyhow!("client certificate: {error}"))?;
        let time = |timestamp: i64| {
            let seconds = Duration::from_secs(timestamp.unsigned_abs());
            if timestamp < 0 { SystemTime::UNIX_EPOCH - seconds } else { SystemTime::UNIX_EPOCH + seconds }
        };
        let validity = certificate.validity();
        Ok(Validity {
            from: time(validity.not_before.timestamp()),
            until: time(validity.not_after.timestamp()),
        })
    }

    /// When to renew the certificate: between 70 and 90 % of its lifetime, as client-go's certificate manager does. `at`: where in
    /// between, from 0 to 1, so that replicas do not renew at once.
    pub(super) fn renewal(&self, at: f64) -> SystemTime {
        let lifetime = self.until.duration_since(self.from).unwrap_or_default();
        self.from + lifetime.mul_f64(0.7 + 0.2 * at)
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition;

    use super::*;

    fn condition(kind: &str) -> CertificateSigningRequestStatus {
        let condition = CertificateSigningRequestCondition {
            type_: kind.to_owned(),
            reason: Some("Policy".to_owned()),
            message: Some("unknown user".to_owned()),
            ..CertificateSigningRequestCondition::default()
        };
        CertificateSigningRequestStatus { conditions: Some(vec![condition]), ..Default::default() }
    }

    #[test]
    fn a_request_is_open_until_it_has_a_certificate_or_is_denied() {
        assert_eq!(outcome(condition("Approved")).unwrap(), None);
        let signed = CertificateSigningRequestStatus {
            certificate: Some(ByteString(b"PEM".to_vec())),
            ..condition("Approved")
        };
        assert_eq!(outcome(signed).unwrap(), Some(b"PEM".to_vec()));
        for kind in ["Denied", "Failed"] {
            let error = outcome(condition(kind)).unwrap_err().to_string();
            assert_eq!(error, format!("it is {}: Policy: unknown user", kind.to_lowercase()));
        }
    }

    #[test]
    fn the_validity_is_read_from_the_certificate() {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 11);
        let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let validity = Validity::of_pem(pem.as_bytes()).unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(validity.until, validity.from + 10 * day);
        assert_eq!(
            (validity.renewal(0.0), validity.renewal(1.0)),
            (validity.from + 7 * day, validity.from + 9 * day)
        );
        assert!(validity.is_expired(validity.until) && !validity.is_expired(validity.from));
        assert!(Validity::of_pem(b"no certificate").is_err());
    }
}
