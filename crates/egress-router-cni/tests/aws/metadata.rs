//! A simulated instance metadata service, as strict as the real one: it requires tokens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::http::{Asked, Response, Server};

pub const REGION: &str = "eu-central-1";
pub const KEY: &str = "ASIAEXAMPLE";
pub const SECRET: &str = "the-secret-key-of-the-role";
pub const SESSION: &str = "the-session-token-of-the-role";

/// Its behaviour.
#[derive(Default)]
pub struct Behaviour {
    /// The next responses: a status, or none for a closed connection.
    pub faults: Vec<Option<u16>>,
    /// Number of requests that a token is valid for.
    pub uses: Option<u32>,
    /// `HttpTokens` cannot be had: `HttpEndpoint` is disabled.
    pub disabled: bool,
    /// No instance profile.
    pub no_role: bool,
    /// Remaining requests of each token.
    tokens: BTreeMap<String, u32>,
    /// All requested paths, including tokens.
    pub asked: Vec<String>,
}

/// One instance's service.
pub struct Metadata {
    pub behaviour: Arc<Mutex<Behaviour>>,
    server: Server,
}

impl Metadata {
    /// `tree` is what is under `latest/meta-data/`, besides the region and the role.
    pub fn start(tree: BTreeMap<String, String>) -> Self {
        let behaviour = Arc::new(Mutex::new(Behaviour::default()));
        let shared = behaviour.clone();
        Self {
            behaviour,
            server: Server::start(move |asked| respond(&mut shared.lock().unwrap(), &tree, asked)),
        }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }
}

fn respond(behaviour: &mut Behaviour, tree: &BTreeMap<String, String>, asked: &Asked) -> Response {
    behaviour.asked.push(format!("{} {}", asked.method, asked.path));
    if !behaviour.faults.is_empty() {
        return behaviour
            .faults
            .remove(0)
            .map_or(Response::Cut, |status| Response::Reply(status, "busy".into()));
    }
    let refuse = |status| Response::Reply(status, format!("status {status}"));
    if behaviour.disabled {
        return refuse(403);
    }
    if asked.path == "/latest/api/token" {
        // The real service refuses requests through a proxy, and without a lifetime.
        let seconds: Option<u32> =
            asked.header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|seconds| seconds.parse().ok());
        if asked.method != "PUT" || !asked.body.is_empty() {
            return refuse(405);
        }
        if asked.header("x-forwarded-for").is_some() {
            return refuse(403);
        }
        if !seconds.is_some_and(|seconds| (1..=21600).contains(&seconds)) {
            return refuse(400);
        }
        let token = format!("token-{}==", behaviour.asked.len());
        behaviour.tokens.insert(token.clone(), behaviour.uses.unwrap_or(u32::MAX));
        return Response::Reply(200, token);
    }
    let left = asked.header("x-aws-ec2-metadata-token").and_then(|token| behaviour.tokens.get_mut(token));
    match left {
        Some(left) if *left > 0 => *left -= 1,
        _ => return refuse(401),
    }
    let Some(path) = asked.path.strip_prefix("/latest/meta-data/") else { return refuse(404) };
    let found = match path {
        "placement/region" => Some(REGION.into()),
        "services/domain" => Some("amazonaws.com".into()),
        "iam/security-credentials/" if !behaviour.no_role => Some("node-role".into()),
        "iam/security-credentials/node-role" if !behaviour.no_role => Some(format!(
            "{{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : \"2026-11-20T00:00:00Z\",\n  \"Type\" : \"AWS-HMAC\",\n  \
             \"AccessKeyId\" : \"{KEY}\",\n  \"SecretAccessKey\" : \"{SECRET}\",\n  \"Token\" : \"{SESSION}\",\n  \
             \"Expiration\" : \"2026-11-20T06:00:00Z\"\n}}"
        )),
        path => tree.get(path).cloned(),
    };
    found.map_or_else(|| refuse(404), |text| Response::Reply(200, text))
}
