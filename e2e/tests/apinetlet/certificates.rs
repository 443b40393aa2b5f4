//! Client certificates that the clusters issue: requested by apinetlet, approved by the controllers of ironcore and ironcore-net, signed
//! by kube-controller-manager.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use apinetlet::api::source;
use e2e::ironcore::CERTIFICATE;
use e2e::program::Program;
use e2e::rights::{User, until_effective};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::environment::{TestEnv, wait};
use super::permissions::upstream_rules;

const PLUGINS: &str = "networking.ironcore.dev:system:networkplugins";
const APINETLETS: &str = "apinet.ironcore.dev:system:apinetlets";
const BOOTSTRAPPERS: &str = "system:bootstrappers:perimeter";

/// The rights to request a certificate that a controller approves.
fn requests(client: &str) -> Vec<Value> {
    let group = "certificates.k8s.io";
    vec![
        json!({ "apiGroups": [group], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"] }),
        json!({ "apiGroups": [group], "resources": [format!("certificatesigningrequests/{client}")],
            "verbs": ["create"] }),
    ]
}

async fn grant(client: &Client, name: &str, group: &str, rules: Vec<Value>) {
    let rbac = "rbac.authorization.k8s.io";
    let user = User { name: name.to_owned(), groups: vec![group.to_owned()] };
    let first = rules.first().cloned();
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": rbac, "kind": "Group", "name": group }],
    });
    let parameters = PatchParams::apply("test").force();
    let roles = Api::<ClusterRole>::all(client.clone());
    roles.patch(name, &parameters, &Patch::Apply(role)).await.unwrap();
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.patch(name, &parameters, &Patch::Apply(binding)).await.unwrap();
    until_effective(client, &user, None, first.as_slice()).await.unwrap();
}

/// The client certificate of a kubeconfig; None while there is no kubeconfig.
fn certificate(text: &str) -> Option<String> {
    let kubeconfig = Kubeconfig::from_yaml(text).ok()?;
    kubeconfig.auth_infos.first()?.auth_info.as_ref()?.client_certificate_data.clone()
}

fn of_file(path: &Path) -> Option<String> {
    certificate(&std::fs::read_to_string(path).ok()?)
}

async fn of_secret(secrets: &Api<Secret>, name: &str) -> Option<String> {
    let secret = secrets.get_opt(name).await.unwrap()?;
    certificate(std::str::from_utf8(&secret.data?.get("kubeconfig")?.0).unwrap())
}

async fn is_mapped(env: &TestEnv, network: &str) {
    env.network(network).await;
    let networks = env.source::<source::Network>();
    wait(&networks, network, "Available", |one| one.status.state == "Available").await;
}

/// One kubeconfig is a file and the other one a Secret; neither exists at first. Both get a certificate, and a new one before it expires.
#[tokio::test]
async fn certificates_are_requested_and_renewed() {
    let env = TestEnv::new().await;
    let client = &env.client;
    let mut rules = requests("networkpluginclient");
    rules.extend(["rbac/role.yaml", "rbac/leader_election_role.yaml"].into_iter().flat_map(upstream_rules));
    grant(client, PLUGINS, PLUGINS, rules).await;
    let mut rules = requests("apinetletclient");
    rules.extend(upstream_rules("apinet-rbac/role.yaml"));
    grant(client, APINETLETS, APINETLETS, rules).await;
    let rules = [requests("networkpluginclient"), requests("apinetletclient")].concat();
    grant(client, BOOTSTRAPPERS, BOOTSTRAPPERS, rules).await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.kubeconfig");
    let bootstrap = env.user_kubeconfig("bootstrapper", BOOTSTRAPPERS);
    let start = async || {
        let program = Program::binary("apinetlet").unwrap().args([
            format!("--kubeconfig={}", file.display()),
            format!("--bootstrap-kubeconfig={bootstrap}"),
            "--rotate-certificates".to_owned(),
            "--api-net-kubeconfig-secret-name=apinet".to_owned(),
            format!("--api-net-bootstrap-kubeconfig={bootstrap}"),
            "--api-net-rotate-certificates".to_owned(),
            format!("--own-namespace={}", env.source),
            format!("--namespace={}", env.source),
            format!("--api-net-namespace={}", env.apinet),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ]);
        program.start().unwrap()
    };
    let program = start().await;
    is_mapped(&env, "first").await;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let secrets = Api::<Secret>::namespaced(client.clone(), &env.source);
    let first = (of_file(&file).unwrap(), of_secret(&secrets, "apinet").await.unwrap());
    // Both were issued before.
    let issued = SystemTime::now();

    until("new certificates", async || {
        let now = (of_file(&file), of_secret(&secrets, "apinet").await);
        let is_new = now.0.is_some_and(|now| now != first.0) && now.1.is_some_and(|now| now != first.1);
        Ok(is_new.then_some(()))
    })
    .await
    .unwrap();
    until("the end of the first certificates", async || {
        Ok(issued.elapsed().is_ok_and(|age| age > CERTIFICATE).then_some(()))
    })
    .await
    .unwrap();
    is_mapped(&env, "second").await;

    // The next process starts with what the last one has stored.
    drop(program);
    std::fs::remove_file(&bootstrap).unwrap();
    let _program = start().await;
    is_mapped(&env, "third").await;
}

/// Without a valid credential, and with one that may not request a certificate, the program ends with the cause.
#[tokio::test]
async fn without_a_credential_the_start_fails() {
    let env = TestEnv::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (_, apinet) = env.kubeconfigs();
    let start = |more: &[&str]| {
        let kubeconfig = folder.path().join("none");
        let program = Program::binary("apinetlet").unwrap().args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--api-net-kubeconfig={apinet}"),
            format!("--api-net-namespace={}", env.apinet),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ]);
        program.args(more.iter().copied()).start().unwrap()
    };
    let program = start(&["--rotate-certificates"]);
    program.wait_exit().await.unwrap();
    let output = program.output().lines().concat();
    assert!(
        output.contains("neither a kubeconfig with a valid credential nor a bootstrap kubeconfig"),
        "{output}"
    );

    let bootstrap = env.user_kubeconfig("unprivileged", "unprivileged");
    let program = start(&[&format!("--bootstrap-kubeconfig={bootstrap}")]);
    program.wait_exit().await.unwrap();
    let output = program.output().lines().concat();
    assert!(
        output.contains("CertificateSigningRequest cannot be created") && output.contains("unprivileged"),
        "{output}"
    );
}
