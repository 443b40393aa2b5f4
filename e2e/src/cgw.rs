//! cgw-controller on a cluster as a user installs it: its own images, and an overlay on its Kustomize bases.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::cluster::{Cluster, SEGMENT_INTERFACE, image};

/// As in the base.
pub const NAMESPACE: &str = "cgw-controller";
/// The gateway nodes.
pub const GATEWAYS: [&str; 2] = ["node-1", "node-2"];
/// Label of a gateway node.
pub const GATEWAY_LABEL: &str = "cgw-controller.perimeter.dev/gateway";
/// The nodes' interface in the private network (`e2e/cluster/settings.sh`).
const PRIVATE_INTERFACE: &str = "ens10";
/// A keeper's admin port in the manifests; the next ones are those of further virtual routers.
const ADMIN_PORT: usize = 9476;
/// For one request, which takes milliseconds on an idle machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// For one request to a keeper, which may be frozen or powered off.
const KEEPER_TIMEOUT: Duration = Duration::from_secs(5);

/// A virtual router of the gateway nodes.
#[derive(Debug, Clone, Copy)]
pub struct Router {
    /// Its ID.
    pub vrid: u8,
    /// First and last VIP, in the segment.
    pub vips: [Ipv4Addr; 2],
}

/// An overlay in a folder of its own.
#[derive(Debug)]
pub struct Installation {
    folder: TempDir,
    routers: Vec<Router>,
}

/// The state that a keeper's status server reports.
#[derive(Debug, Clone, PartialEq)]
pub struct KeeperState {
    /// Its node.
    pub node: String,
    /// `MASTER`, `BACKUP` and others.
    pub state: String,
}

impl Installation {
    /// The overlay that a user would write: the base, the agent, a keeper for each virtual router, and a certificate.
    ///
    /// # Errors
    /// The folder cannot be written, or openssl fails.
    pub async fn write(cluster: &Cluster, routers: &[Router]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let here = folder.path().canonicalize()?;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").canonicalize()?;
        // Kustomize takes no absolute path.
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let manifests = up.join(manifests.strip_prefix("/")?);
        let mut resources = vec![
            manifests.join("cgw-controller").display().to_string(),
            manifests.join("cgw-controller/agent").display().to_string(),
        ];
        for (index, router) in routers.iter().enumerate() {
            let name = format!("router-{}", router.vrid);
            write_router(cluster, router, ADMIN_PORT + index, &here.join(&name), &manifests)?;
            resources.push(name);
        }
        let environment = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cgw-agent"},
            "spec": {"template": {"spec": {"containers": [{
                "name": "agent", "env": [{"name": "PERIMETER_SERVICE_CIDR", "value": cluster.services()}],
            }]}}},
        });
        let target = json!({"kind": "DaemonSet", "name": "cgw-agent"});
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": resources,
            "patches": [{"target": target, "patch": environment.to_string()}],
            "secretGenerator": [{
                "name": "cgw-controller-tls", "namespace": NAMESPACE, "type": "kubernetes.io/tls",
                "files": ["tls.crt", "tls.key", "ca.crt=tls.crt"],
            }],
            "generatorOptions": {"disableNameSuffixHash": true},
        });
        std::fs::write(here.join("kustomization.yaml"), kustomization.to_string())?;
        certificate(&here).await?;
        Ok(Self { folder, routers: routers.to_vec() })
    }

    /// The folder for `kubectl apply -k`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The keepers' configuration of a virtual router.
    ///
    /// # Errors
    /// There is no such virtual router.
    pub fn keeper(&self, vrid: u8) -> Result<String> {
        let file = self.folder.path().join(format!("router-{vrid}/keeper.yaml"));
        std::fs::read_to_string(&file).with_context(|| file.display().to_string())
    }

    /// Builds the images and gives them to each node.
    ///
    /// # Errors
    /// An image cannot be built.
    pub async fn give_images(cluster: &Cluster) -> Result<()> {
        for name in ["cgw-controller", "cgw-keeper"] {
            cluster.import_image(&image::build(name).await?).await?;
        }
        Ok(())
    }

    /// `kubectl apply -k`, and waits until all workloads are rolled out. The gateway nodes have their label before.
    ///
    /// # Errors
    /// Something is refused, or a workload does not become ready: the error has the state of its pods.
    pub async fn apply(&self, cluster: &Cluster) -> Result<()> {
        cluster.kubectl(&["apply", "-k", &self.folder.path().to_string_lossy()]).await?;
        self.rolled_out(cluster).await
    }

    /// Waits until all workloads are rolled out.
    ///
    /// # Errors
    /// A workload does not become ready: the error has the state of its pods.
    pub async fn rolled_out(&self, cluster: &Cluster) -> Result<()> {
        let keepers = self.routers.iter().map(|router| format!("daemonset/cgw-keeper-{}", router.vrid));
        let others = ["deployment/cgw-controller", "daemonset/cgw-agent"].map(str::to_owned);
        for workload in others.into_iter().chain(keepers) {
            let status = ["-n", NAMESPACE, "rollout", "status", &workload, "--timeout=600s"];
            if let Err(error) = cluster.kubectl(&status).await {
                let state = cluster.kubectl(&["-n", NAMESPACE, "describe", "pods"]).await?;
                return Err(error.context(format!("{workload} is not ready:\n{state}")));
            }
        }
        Ok(())
    }

    /// `cgw ctl` in the controller's container, as docs/cgw-controller.md describes it.
    ///
    /// # Errors
    /// It fails; the error has its output.
    pub async fn ctl(cluster: &Cluster, command: &str) -> Result<String> {
        let exec = ["-n", NAMESPACE, "exec", "deployment/cgw-controller", "--", "/cgw", "ctl"];
        let arguments: Vec<&str> = exec.into_iter().chain(command.split(' ')).collect();
        cluster.kubectl(&arguments).await
    }

    /// The states of a virtual router's keepers that respond.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn keepers(cluster: &Cluster, vrid: u8) -> Result<Vec<KeeperState>> {
        let mut states = Vec::new();
        for node in GATEWAYS {
            let address = (cluster.machine(node).ip()?, 63_000 + u16::from(vrid));
            let status = tokio::time::timeout(KEEPER_TIMEOUT, get(address.into(), "/status")).await;
            let Ok(Ok(status)) = status else { continue };
            let status: Value = serde_json::from_str(&status).unwrap_or_default();
            if let Some(state) = status.get("state").and_then(Value::as_str) {
                states.push(KeeperState { node: node.to_owned(), state: state.to_owned() });
            }
        }
        Ok(states)
    }

    /// The node that is MASTER, and no other one.
    ///
    /// # Errors
    /// There is no such node.
    pub async fn master(cluster: &Cluster, vrid: u8) -> Result<Option<String>> {
        let mut masters = Self::keepers(cluster, vrid).await?;
        masters.retain(|keeper| keeper.state == "MASTER");
        Ok(masters.pop().filter(|_| masters.is_empty()).map(|keeper| keeper.node))
    }
}

/// The body of the response to `GET`, of any status.
///
/// # Errors
/// There is no response in time.
pub async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        anyhow::Ok(response)
    };
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, exchange);
    let response = response.await.with_context(|| format!("{address}{path}: no response"))??;
    let (_, body) = response.split_once("\r\n\r\n").with_context(|| format!("{address}{path}: no HTTP"))?;
    Ok(body.to_owned())
}

fn write_router(
    cluster: &Cluster,
    router: &Router,
    admin_port: usize,
    folder: &Path,
    manifests: &Path,
) -> Result<()> {
    let Router { vrid, vips: [first, last] } = router;
    std::fs::create_dir(folder)?;
    let peers: Vec<String> =
        GATEWAYS.iter().map(|name| Ok(cluster.machine(name).ip()?.to_string())).collect::<Result<_>>()?;
    let settings = format!(
        "vrid: {vrid}\ninterface: {PRIVATE_INTERFACE}\nvipInterface: {SEGMENT_INTERFACE}\nvips: [{first}-{last}]\n\
         peers: [{}]\n",
        peers.join(", ")
    );
    std::fs::write(folder.join("keeper.yaml"), settings)?;
    let port = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cgw-keeper"},
        "spec": {"template": {"spec": {"containers": [{
            "name": "keeper",
            "env": [
                // Variables of a patch come first, and a value refers only to earlier ones.
                {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                {"name": "PERIMETER_ADMIN_ADDRESS", "value": format!("$(HOST_IP):{admin_port}")},
            ],
            "ports": [{"$patch": "replace"}, {"name": "admin", "containerPort": admin_port}],
        }]}}},
    });
    let own = json!({"target": {"kind": "DaemonSet", "name": "cgw-keeper"}, "patch": port.to_string()});
    let patches = if admin_port == ADMIN_PORT { json!([]) } else { json!([own]) };
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [Path::new("..").join(manifests).join("cgw-controller/keeper")],
        "nameSuffix": format!("-{vrid}"),
        "labels": [{
            "includeSelectors": true,
            "pairs": {"cgw-controller.perimeter.dev/virtual-router": vrid.to_string()},
        }],
        "configMapGenerator": [{
            "name": "cgw-keeper", "namespace": NAMESPACE, "behavior": "replace", "files": ["keeper.yaml"],
        }],
        "generatorOptions": {"disableNameSuffixHash": true},
        "patches": patches,
    });
    Ok(std::fs::write(folder.join("kustomization.yaml"), kustomization.to_string())?)
}

/// The certificate of the page's quickstart.
async fn certificate(folder: &Path) -> Result<()> {
    let name = format!("subjectAltName=DNS:cgw-controller.{NAMESPACE}.svc");
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder).stdin(std::process::Stdio::null());
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    openssl.args(["-subj", "/CN=cgw-controller", "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-addext", &name, "-keyout", "tls.key", "-out", "tls.crt"]);
    let output = openssl.output().await.context("openssl")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
