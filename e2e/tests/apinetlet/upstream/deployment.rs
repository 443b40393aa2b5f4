//! Upstream's own Deployment, with upstream's image and with ours: `kustomize edit set image` changes nothing else.
//!
//! There is no kubelet here. The container is started as one starts it: in a root with the image's files and the service account's,
//! as user 65532, with command and arguments of the rendered Deployment.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use e2e::ironcore::Ironcore;
use e2e::kustomize;
use e2e::program::{Launch, Program, free_port};
use e2e::wait::until;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::apinetlet::permissions::Permissions;

/// Of upstream's manifests.
const NAMESPACE: &str = "apinetlet-system";
const ACCOUNT: &str = "apinetlet-controller-manager";
/// `kustomize edit set image apinetlet=perimeter.dev/apinetlet:0.1.0` writes this.
const IMAGES: &str = "images: [{name: apinetlet, newName: perimeter.dev/apinetlet, newTag: 0.1.0}]\n";

/// Upstream's overlay for kind, rendered, with this line added.
fn render(folder: &Path, more: &str) -> Vec<Value> {
    let overlay = folder.join("apinetlet/mine");
    std::fs::create_dir_all(&overlay).unwrap();
    std::fs::write(overlay.join("kustomization.yaml"), format!("resources: [../kind]\n{more}")).unwrap();
    kustomize::objects(&kustomize::render(&overlay).unwrap()).unwrap()
}

/// The root of a container: the program as /manager, and the service account.
fn root(program: &Path, token: &str, ca: &Path) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    e2e::program::copy(program, &root.path().join("manager")).unwrap();
    let account = root.path().join("var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&account).unwrap();
    std::fs::write(account.join("token"), token).unwrap();
    std::fs::write(account.join("namespace"), NAMESPACE).unwrap();
    std::fs::copy(ca, account.join("ca.crt")).unwrap();
    root
}

/// The container of the Deployment in this root, with a port of this test for its probes, and none for its metrics.
fn container(objects: &[Value], root: &Path, api_server: &str, port: u16) -> Launch {
    let deployment = kustomize::only(objects, "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let strings = |field: &str| -> Vec<String> {
        container[field].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let (host, api_port) = api_server.trim_start_matches("https://").split_once(':').unwrap();
    let arguments = strings("args")
        .into_iter()
        .map(|argument| argument.replace("=:8081", &format!("=127.0.0.1:{port}")).replace("=:8443", "=0"));
    Program::at("/usr/sbin/chroot")
        .name("manager")
        .arg("--userspec=65532:65532")
        .arg(root)
        .args(strings("command"))
        .args(arguments)
        .env("KUBERNETES_SERVICE_HOST", host)
        .env("KUBERNETES_SERVICE_PORT", api_port)
}

/// The response of the readiness probe.
async fn probe(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    response.lines().next().map(str::to_owned).context("no response")
}

async fn start(launch: &Launch, port: u16) -> Program {
    let program = launch.start().unwrap();
    until("a container that is ready", async || {
        anyhow::ensure!(program.exited()?.is_none(), "it ended: {}", program.output().lines().concat());
        Ok(probe(port).await.is_ok_and(|line| line.contains("200")).then_some(()))
    })
    .await
    .unwrap();
    program
}

#[tokio::test]
#[ignore = "full: release images"]
async fn upstreams_deployment_starts_our_image_and_upstreams_again() {
    let mut ironcore = Ironcore::start().await.unwrap();
    ironcore.start_source_controllers().await.unwrap();
    let control_plane = ironcore.control_plane.of_this_runtime().await.unwrap();
    let assets = e2e::assets::ironcore().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-R")
        .arg(assets.join("ironcore-net-config/apinetlet"))
        .arg(folder.path())
        .status();
    assert!(copied.unwrap().success());
    let (before, after) = (render(folder.path(), ""), render(folder.path(), IMAGES));
    let mut changed = Vec::new();
    differences("", Some(&Value::Array(before.clone())), Some(&Value::Array(after.clone())), &mut changed);
    assert!(before.len() == after.len() && before.len() > 5, "{changed:?}");
    for (before, after) in before.iter().zip(&after) {
        let mut changed = Vec::new();
        differences("", Some(before), Some(after), &mut changed);
        assert!(changed.iter().all(|one| one.contains("/spec/template/spec/containers")), "{changed:?}");
    }
    kustomize::apply(&control_plane, "-k", &folder.path().join("apinetlet/mine"), &[]).unwrap();

    let token = control_plane.service_account_token(NAMESPACE, ACCOUNT).await.unwrap();
    let ca = control_plane.ca().unwrap();
    let theirs = root(&assets.join("ironcore-net-apinetlet"), &token, &ca);
    let ours = root(&crate::image::apinetlet().join("manager"), &token, &ca);
    let (url, port) = (control_plane.url(), free_port().unwrap());
    let theirs = container(&before, theirs.path(), &url, port);
    let ours_launch = container(&after, ours.path(), &url, port);
    let env = TestEnv::in_namespace(Arc::new(ironcore), Permissions::Upstream, NAMESPACE.to_owned()).await;

    let go = start(&theirs, port).await;
    env.populate().await;
    env.converged().await;
    drop(go);
    let objects = env.objects().await;
    let program = start(&ours_launch, port).await;
    env.network("ours").await;
    let networks = env.source::<source::Network>();
    wait(&networks, "ours", "Available", |one| one.status.state == "Available").await;
    env.converged().await;
    drop(program);
    let _go = start(&theirs, port).await;
    env.network("go").await;
    wait(&networks, "go", "Available", |one| one.status.state == "Available").await;
    env.converged().await;
    let mut now = env.objects().await;
    now.retain(|key, _| objects.contains_key(key));
    assert_eq!(identities(&objects), identities(&now));
    println!("{} objects kept", now.len());
}
