//! Trusted certificates: those of the authority in the credentials and no other, or all with InsecureSkipVerify.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use common::cloud::openstack::{Cloud, Credentials, Error, Metrics};
use prometheus::Registry;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A Keystone that refuses every login, behind a certificate; what it was asked.
fn keystone(certificate: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (String, Arc<Mutex<Vec<String>>>) {
    let key = certificate.signing_key.serialize_der().try_into().unwrap();
    keystone_of(certificate.cert.der().clone(), &key, rustls::ALL_VERSIONS)
}

/// The same, speaking these versions of TLS.
fn keystone_of(
    certificate: CertificateDer<'static>,
    key: &PrivateKeyDer<'_>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> (String, Arc<Mutex<Vec<String>>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::crypto::ring::sign::any_supported_type(key).unwrap();
    let pair = rustls::sign::CertifiedKey::new(vec![certificate], key);
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)));
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/identity/v3", listener.local_addr().unwrap().port());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(session, stream.unwrap()));
            if let Some(request) = request(&mut stream) {
                seen.lock().unwrap().push(request);
                let body = r#"{"error": {"code": 401, "message": "no", "title": "Unauthorized"}}"#;
                let response = format!("HTTP/1.1 401 no\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.get_mut().write_all(response.as_bytes()).unwrap();
                stream.get_mut().flush().unwrap();
            }
        }
    });
    (url, requests)
}

/// The first line of one request, whose body is read as well; None if the connection ends instead.
fn request(stream: &mut impl BufRead) -> Option<String> {
    let (mut first, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        first.get_or_insert(line.trim_end().to_owned());
    }
    stream.take(length).read_to_end(&mut Vec::new()).ok()?;
    first
}

/// The error of a login at this URL, which cannot succeed.
async fn login_at(url: &str, cacert: Option<&str>, verify: bool) -> Error {
    let auth = format!("{{auth_url: \"{url}\", user_id: u, password: s3cr3t, project_id: p}}");
    let text = format!("clouds: {{x: {{auth: {auth}, verify: {verify}}}}}");
    let mut data = std::collections::BTreeMap::from([("clouds.yaml".to_owned(), text.into_bytes())]);
    data.extend(cacert.map(|pem| ("cacert".to_owned(), pem.as_bytes().to_vec())));
    let credentials = Credentials::from_secret(&data, "x", None).unwrap();
    let metrics = Metrics::register(&Registry::new()).unwrap();
    let cloud = Cloud::new(&credentials, "perimeter-test/1", &metrics).unwrap();
    cloud.project_id().await.unwrap_err()
}

/// A certificate that has signed itself and calls itself an authority, as `openssl req -x509` makes it.
fn authority(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    rcgen::CertifiedKey { cert, signing_key }
}

#[tokio::test]
async fn a_listed_ca_certificate_is_trusted_as_a_server_certificate_of_its_name() {
    let (ours, foreign, elsewhere) = (authority("localhost"), authority("localhost"), authority("elsewhere"));
    let (url, requests) = keystone(&ours);
    let error = login_at(&url, Some(&ours.cert.pem()), true).await;
    assert!(error.is_unauthorized(), "{error}");
    assert_eq!(login_at(&url, Some(&foreign.cert.pem()), true).await.code(), "no_response");
    assert_eq!(requests.lock().unwrap().len(), 1, "the password is not sent to a foreign");
    let (url, requests) = keystone(&elsewhere);
    let error = login_at(&url, Some(&elsewhere.cert.pem()), true).await;
    assert!(error.code() == "no_response" && error.to_string().contains("certificate"), "{error}");
    assert!(requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_credentials_name_the_trusted_authority() {
    let ours = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (url, requests) = keystone(&ours);
    let login = async |cacert: Option<&str>, verify: bool| login_at(&url, cacert, verify).await;
    for foreign in [None, Some(other.cert.pem())] {
        let error = login(foreign.as_deref(), true).await;
        assert!(error.code() == "no_response" && error.to_string().contains("certificate"), "{error}");
    }
    assert!(requests.lock().unwrap().is_empty(), "the password is not sent to a foreign");
    assert!(login(Some(&ours.cert.pem()), true).await.is_unauthorized());
    assert!(login(None, false).await.is_unauthorized());
    assert_eq!(*requests.lock().unwrap(), ["POST /identity/v3/auth/tokens HTTP/1.1"; 2]);
}

/// A certificate of version 1, as `openssl x509 -req -signkey` makes it without more words, and its key.
const VERSION_1: &[u8] = include_bytes!("version-1.pem");

#[tokio::test]
async fn without_verification_a_version_1_certificate_is_accepted() {
    let certificate = CertificateDer::from_pem_slice(VERSION_1).unwrap();
    let key = PrivateKeyDer::from_pem_slice(VERSION_1).unwrap();
    for version in rustls::ALL_VERSIONS {
        let (url, requests) = keystone_of(certificate.clone(), &key, &[version]);
        let error = login_at(&url, None, false).await;
        assert!(error.is_unauthorized(), "{version:?}: {error}");
        assert_eq!(login_at(&url, None, true).await.code(), "no_response");
        assert_eq!(requests.lock().unwrap().len(), 1, "the password is not sent to a foreign");
    }
}
