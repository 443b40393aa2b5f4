//! The certificate authority of one control plane: PEM files in its folder.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// Signs the certificates of the control plane and its users. Keys are ECDSA P-256, which are created in a millisecond.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// PEM file.
    pub certificate: PathBuf,
    /// PEM file.
    pub key: PathBuf,
}

impl Authority {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "perimeter-e2e");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { issuer, folder: folder.to_owned() };
        std::fs::write(authority.certificate(), authority.issuer.pem())?;
        std::fs::write(authority.key(), authority.issuer.key().serialize_pem())?;
        Ok(authority)
    }

    /// Its private key, with which kube-controller-manager signs CertificateSigningRequests.
    pub(super) fn key(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    /// Its own certificate.
    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A server certificate for these names and addresses.
    pub(super) fn server(&self, file: &str, names: &[&str]) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, params)
    }

    /// A client certificate: Kubernetes reads the user from CN and a group from O.
    pub(super) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, params)
    }

    /// A key pair without a certificate, which signs the tokens of service accounts: (private, public).
    pub(super) fn key_pair(&self, file: &str) -> Result<(PathBuf, PathBuf)> {
        let pair = KeyPair::generate()?;
        let (key, public) = (self.file(file, "key"), self.file(file, "pub"));
        std::fs::write(&key, pair.serialize_pem())?;
        std::fs::write(&public, pair.public_key_pem())?;
        Ok((key, public))
    }

    fn issue(&self, file: &str, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let pair = KeyPair::generate()?;
        let certificate = params.signed_by(&pair, &self.issuer)?;
        let identity = Identity { certificate: self.file(file, "crt"), key: self.file(file, "key") };
        std::fs::write(&identity.certificate, certificate.pem())?;
        std::fs::write(&identity.key, pair.serialize_pem())?;
        Ok(identity)
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{name}.{extension}"))
    }
}
