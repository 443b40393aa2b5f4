//! EC2 over TLS: an untrusted server receives no request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egress_router_cni::aws::acquire::acquire;
use egress_router_cni::aws::cloud::Cloud;
use egress_router_cni::aws::{Request, State};
use egress_router_cni::cni::{self, Code};
use egress_router_cni::config::settings;
use egress_router_cni::http::Network;

use super::gate::Gate;
use super::node::{Memory, Snapshot, TestEnv};

/// A self-signed certificate for this host, for a server and as a bundle.
fn certificate() -> (Arc<rustls::ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), made.cert.pem())
}

fn add(network: &Network, settings: &settings::Aws, env: &TestEnv) -> Result<State, cni::Error> {
    let addresses = [ipnet::IpNet::new(env.public.into(), 32).unwrap()];
    let request = Request { addresses: &addresses, master: None, before: None };
    let (nothing, deadline) = (|_: &str| None, Instant::now() + Duration::from_secs(600));
    acquire(&Cloud::new(network, settings, &nothing), request, &mut Memory::default(), deadline)
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let (env, _) = TestEnv::new();
    let (config, bundle) = certificate();
    let gate = Gate::with(env.backend.clone(), Some(config));
    let settings = settings::Aws { ec2_endpoint: Some(gate.url()), ..env.a.settings.clone() };

    let start = Instant::now();
    let (_, other) = certificate();
    for network in [Network::new(), Network::trusting(other.as_bytes()).unwrap()] {
        let error = add(&network, &settings, &env).unwrap_err();
        assert_eq!(error.code, Code::Aws, "{error}");
        assert!(error.message.contains("AWS_CA_BUNDLE") && error.message.contains(&gate.url()), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(300), "a permanent failure is not retried");
    assert!(gate.log.lock().unwrap().is_empty());

    let trusting = Network::trusting(bundle.as_bytes()).unwrap();
    let acquired = add(&trusting, &settings, &env).unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
    assert!(Network::trusting(b"no certificate").is_none());
}
