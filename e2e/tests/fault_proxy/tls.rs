//! A server with TLS that requires a client certificate.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use e2e::fault_proxy::{FaultProxy, Upstream};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, Stream};

use crate::fault_proxy::client::get;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key, as PEM texts.
    fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Responds to one request and returns it; an error if the client was refused.
fn serve_once(authority: &Authority) -> (String, JoinHandle<std::io::Result<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let (certificate, key) = authority.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let asked = std::thread::spawn(move || {
        let mut socket = listener.accept()?.0;
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = Stream::new(&mut connection, &mut socket);
        let mut request = Vec::new();
        // All of it is read: to close a socket with unread bytes is a reset, which may overtake the response.
        while !request.ends_with(crate::fault_proxy::client::BODY.as_bytes()) {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            request.extend_from_slice(&byte);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")?;
        stream.flush()?;
        Ok(String::from_utf8(request).unwrap().to_lowercase())
    });
    (url, asked)
}

#[tokio::test]
async fn client_certificate_is_presented_and_the_token_forwarded() {
    let authority = Authority::new();
    let (url, asked) = serve_once(&authority);
    let (certificate, key) = authority.issue("admin", ExtendedKeyUsagePurpose::ClientAuth);
    let upstream =
        Upstream::kubernetes(url).ca_pem(authority.pem.as_str()).client_certificate(certificate, key);
    let proxy = FaultProxy::start(upstream).await.unwrap();
    let received = get(&proxy.url(), "/version").await.unwrap();
    assert_eq!(received.body, "hi");
    let asked = asked.join().unwrap().unwrap();
    assert!(asked.starts_with("get /version http/1.1\r\n"), "{asked}");
    assert!(asked.contains("authorization: bearer of-the-caller\r\n"), "{asked}");
}

#[tokio::test]
async fn other_authority_is_not_trusted_and_one_is_required() {
    let (url, asked) = serve_once(&Authority::new());
    assert!(FaultProxy::start(Upstream::kubernetes(url.as_str())).await.is_err());
    let proxy = FaultProxy::start(Upstream::kubernetes(url).ca_pem(Authority::new().pem)).await.unwrap();
    get(&proxy.url(), "/version").await.unwrap_err();
    asked.join().unwrap().unwrap_err();
    assert!(
        proxy.requests()[0].error.as_deref().unwrap().contains("ertificate"),
        "{:?}",
        proxy.requests()[0].error
    );
}
