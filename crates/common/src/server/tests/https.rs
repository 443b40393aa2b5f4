//! With TLS, and who the caller is.

use kube::client::Body as KubeBody;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject},
};
use tempfile::TempDir;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::metrics::Metrics;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Certificate and key in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A folder with the files of a server named `localhost`.
struct Files {
    folder: TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Files {
        let files = Files { folder: TempDir::new().unwrap(), authority: Authority::new() };
        files.renew();
        files
    }

    fn renew(&self) {
        let (certificate, key) = self.authority.issue("localhost");
        std::fs::write(self.folder.path().join("tls.crt"), certificate).unwrap();
        std::fs::write(self.folder.path().join("tls.key"), key).unwrap();
    }

    fn tls(&self, clients: ClientCertificates) -> Tls {
        let file = |name| self.folder.path().join(name);
        Tls::read(TlsFiles { certificate: file("tls.crt"), key: file("tls.key"), clients }).unwrap()
    }

    async fn connect(
        &self,
        address: SocketAddr,
        client: Option<(String, String)>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// The whole response; empty where the server refuses the connection.
    async fn post(&self, address: SocketAddr, client: Option<(String, String)>, header: &str) -> String {
        match within(self.connect(address, client)).await {
            Ok(stream) => exchange(stream, &post(0, "", header)).await,
            Err(_) => String::new(),
        }
    }
}

fn builder(tls: Tls) -> Builder {
    Builder::new("test", LIMITS).tls(tls, &Metrics::new("test").unwrap()).unwrap()
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_without_a_restart() {
    let files = Files::new();
    let address = serve(builder(files.tls(ClientCertificates::Ignored))).await;
    let presented = async || {
        let stream = files.connect(address, None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = presented().await;
    assert_eq!(presented().await, first);
    files.renew();
    within(async { while presented().await == first {} }).await;
}

#[tokio::test]
async fn a_client_without_a_handshake_is_disconnected() {
    let files = Files::new();
    let address = serve(builder(files.tls(ClientCertificates::Ignored))).await;
    assert_eq!(plain(address, "").await, "");
    assert_eq!(code(&files.post(address, None, "").await), "200");
}

#[tokio::test]
async fn a_client_certificate_is_accepted_only_from_a_ca_of_the_bundle() {
    let (files, clients, others) = (Files::new(), Authority::new(), Authority::new());
    let bundle = files.folder.path().join("clients.crt");
    std::fs::write(&bundle, &clients.pem).unwrap();
    let required = serve(builder(files.tls(ClientCertificates::Required(bundle.clone())))).await;
    let optional = serve(builder(files.tls(ClientCertificates::Optional(bundle)))).await;

    for address in [required, optional] {
        let accepted = files.post(address, Some(clients.issue("keeper")), "").await;
        assert!(code(&accepted) == "200" && accepted.contains("certificate: true"), "{accepted}");
        let foreign = files.post(address, Some(others.issue("keeper")), "").await;
        assert_eq!(foreign, "", "a certificate of another CA");
    }
    assert_eq!(files.post(required, None, "").await, "", "no certificate");
    let without = files.post(optional, None, "").await;
    assert!(code(&without) == "200" && without.contains("certificate: false"), "{without}");
}

/// An API server that knows the token `good` of the user `prometheus` for the audience `perimeter`, and lets that user
/// `get /metrics`.
#[derive(Clone, Default)]
struct ApiServer {
    requests: Arc<Mutex<Vec<String>>>,
    failing: Arc<AtomicUsize>,
}

impl ApiServer {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        kube::Client::new(
            tower::service_fn(move |request: Request<KubeBody>| {
                let server = server.clone();
                async move { server.respond(request).await }
            }),
            "default",
        )
    }

    async fn respond(&self, request: Request<KubeBody>) -> Result<Response<KubeBody>, BoxError> {
        if self.failing.load(Ordering::SeqCst) > 0 {
            return Err("connection refused".into());
        }
        let path = request.uri().path().to_owned();
        assert_eq!(request.method(), http::Method::POST);
        let body = request.into_body().collect_bytes().await.unwrap();
        let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let spec = review["spec"].clone();
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        review["status"] = match path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                assert_eq!(spec["audiences"], serde_json::json!(["perimeter"]));
                match spec["token"].as_str().unwrap() {
                    "good" => serde_json::json!({
                        "authenticated": true, "audiences": ["perimeter"],
                        "user": { "username": "prometheus", "groups": ["monitoring"], "extra": { "a": ["b"] } },
                    }),
                    // An authenticator that ignores audiences.
                    "without-audience" => {
                        serde_json::json!({ "authenticated": true, "user": { "username": "prometheus" } })
                    }
                    _ => serde_json::json!({ "authenticated": false }),
                }
            }
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                assert_eq!(spec["user"], "prometheus");
                assert_eq!(spec["groups"], serde_json::json!(["monitoring"]));
                assert_eq!(spec["extra"], serde_json::json!({ "a": ["b"] }));
                let permitted = serde_json::json!({ "verb": "get", "path": "/metrics" });
                serde_json::json!({ "allowed": spec["nonResourceAttributes"] == permitted })
            }
            other => panic!("{other}"),
        };
        Ok(Response::builder()
            .status(201)
            .body(KubeBody::from(serde_json::to_vec(&review).unwrap()))
            .unwrap())
    }

    fn requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

#[tokio::test]
async fn a_token_is_reviewed_and_so_is_the_access_of_its_user() {
    let api = ApiServer::default();
    let audiences = vec!["perimeter".to_owned()];
    let authentication = TokenAuthentication::new(api.client(), audiences).with_access_review();
    let address = serve(Builder::new("test", LIMITS).authentication(authentication)).await;
    let ask = async |method: &str, path: &str, header: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n");
        plain(address, &request).await
    };
    let good = "authorization: Bearer good\r\n";

    let anonymous = ask("GET", "/metrics", "").await;
    assert!(code(&anonymous) == "401" && anonymous.contains("www-authenticate: Bearer"), "{anonymous}");
    assert_eq!(api.requests(), 0, "a request without a token costs no review");
    for token in ["guess", "without-audience"] {
        let header = format!("authorization: Bearer {token}\r\n");
        assert_eq!(code(&ask("GET", "/metrics", &header).await), "401", "{token}");
    }
    let admitted = ask("GET", "/metrics", good).await;
    assert!(code(&admitted) == "200" && admitted.contains("Some(\"prometheus\")"), "{admitted}");
    for (method, path) in [("GET", "/flagz"), ("PUT", "/metrics")] {
        let forbidden = ask(method, path, good).await;
        assert!(code(&forbidden) == "403" && forbidden.contains("prometheus may not"), "{forbidden}");
    }

    let before = api.requests();
    assert_eq!(before, 6, "two refused tokens, one token, three kinds of access");
    api.failing.store(1, Ordering::SeqCst);
    assert_eq!(code(&ask("GET", "/metrics", good).await), "200", "the reviews are used again");
    assert_eq!(code(&ask("GET", "/statusz", good).await), "503", "without a review no request is admitted");
    assert_eq!(code(&ask("GET", "/metrics", "authorization: Bearer other\r\n").await), "503");
    api.failing.store(0, Ordering::SeqCst);
    assert_eq!(code(&ask("GET", "/statusz", good).await), "403", "a failure is not kept as a result");
}

#[tokio::test]
async fn a_verified_client_certificate_needs_no_token() {
    let (files, clients, api) = (Files::new(), Authority::new(), ApiServer::default());
    let bundle = files.folder.path().join("clients.crt");
    std::fs::write(&bundle, &clients.pem).unwrap();
    let authentication = TokenAuthentication::new(api.client(), vec!["perimeter".to_owned()]);
    let tls = files.tls(ClientCertificates::Optional(bundle));
    let address = serve(builder(tls).authentication(authentication)).await;
    assert_eq!(code(&files.post(address, Some(clients.issue("keeper")), "").await), "200");
    assert_eq!(code(&files.post(address, None, "").await), "401");
    let with_token = files.post(address, None, "authorization: Bearer good\r\n").await;
    assert_eq!(code(&with_token), "200");
}
