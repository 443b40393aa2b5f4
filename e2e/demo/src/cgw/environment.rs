//! The environment of the demo: a cluster with a network outside, the installation, and the pods of two Services.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cgw::{Installation, Router};
use e2e::cluster::{Cluster, HOST, Network, Prober, Servers, Target, client_in};
use tempfile::TempDir;
use tokio::process::Command;

/// The node of pod a.
pub(super) const WORKER: &str = "node-3";
/// The virtual router.
const VRID: u8 = 51;
/// The path at which Debian's package busybox-static installs busybox.
const BUSYBOX: &str = "/bin/busybox";
const POD_IMAGE: &str = "perimeter.dev/demo-cgw:1";
/// Of a single request.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Two Services with a web server each, which sends a client its address.
const PODS: &str = r##"apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: www, namespace: demo}
data:
  client: |
    #!/bin/sh
    printf 'Content-Type: text/plain\r\n\r\n%s\n' "$REMOTE_ADDR"
"##;
const SERVICE: &str = r"---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: demo}
spec:
  type: LoadBalancer
  loadBalancerClass: cgw-controller.perimeter.dev/vip
  selector: {app: NAME}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: demo}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {kubernetes.io/hostname: node-3}
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: IMAGE
          imagePullPolicy: Never
          command: [/bin/busybox, httpd, -f, -p, '8080', -h, /www]
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
          volumeMounts: [{name: www, mountPath: /www/cgi-bin}]
      volumes: [{name: www, configMap: {name: www, defaultMode: 0755}}]
";

/// The cluster, the host outside, and the installation.
pub(super) struct Environment {
    pub(super) cluster: Cluster,
    pub(super) installation: Installation,
    _internet: Servers,
    folder: TempDir,
}

/// A running pod.
pub(super) struct Pod {
    /// Its name in namespace `demo`.
    pub(super) name: String,
    uid: String,
}

impl Environment {
    pub(super) async fn on(cluster: Cluster, vips: [Ipv4Addr; 2]) -> Result<Self> {
        cluster.segment_to_internet()?;
        let _internet = cluster.internet()?;
        let installation = Installation::write(&cluster, &[Router { vrid: VRID, vips }]).await?;
        Ok(Self { cluster, installation, _internet, folder: tempfile::tempdir()? })
    }

    pub(super) async fn give_images(&self) -> Result<()> {
        Installation::give_images(&self.cluster).await?;
        ensure!(Path::new(BUSYBOX).exists(), "{BUSYBOX} is missing (Debian: busybox-static)");
        let programs = [BUSYBOX, "/bin/sh"].map(|path| format!("{BUSYBOX}:{path}"));
        self.cluster.make_image(POD_IMAGE, &programs).await
    }

    /// The keepers' configuration.
    pub(super) fn keeper(&self) -> Result<String> {
        self.installation.keeper(VRID)
    }

    /// The node that is the only MASTER.
    pub(super) async fn master(&self) -> Result<Option<String>> {
        Installation::master(&self.cluster, VRID).await
    }

    /// Creates the pods of the two Services, and waits until they are ready.
    pub(super) async fn pods(&self) -> Result<[Pod; 2]> {
        let mut yaml = PODS.to_owned();
        for name in ["a", "b"] {
            yaml += &SERVICE.replace("NAME", name).replace("IMAGE", POD_IMAGE);
        }
        let file = self.folder.path().join("pods.yaml");
        std::fs::write(&file, yaml)?;
        self.cluster.kubectl(&["apply", "-f", &file.to_string_lossy()]).await?;
        Ok([self.pod("a").await?, self.pod("b").await?])
    }

    async fn pod(&self, app: &str) -> Result<Pod> {
        let deployment = format!("deployment/{app}");
        self.cluster.kubectl(&["-n", "demo", "rollout", "status", &deployment, "--timeout=600s"]).await?;
        let selector = format!("--selector=app={app}");
        let path = "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}";
        let text = self.cluster.kubectl(&["-n", "demo", "get", "pods", &selector, "-o", path]).await?;
        let (name, uid) = text.split_once(' ').context("a pod")?;
        Ok(Pod { name: name.to_owned(), uid: uid.trim().to_owned() })
    }

    /// The address that the pod behind a VIP reports for a client outside.
    pub(super) async fn client_of(&self, vip: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
        client_from(&self.outside()?, vip).await
    }

    /// Opens connections to the VIP from outside.
    pub(super) fn probe_ingress(&self, vip: Ipv4Addr) -> Result<Prober> {
        Prober::start_to(&self.outside()?, web(vip))
    }

    fn outside(&self) -> Result<Network> {
        self.cluster.machine("internet").network()
    }

    /// `cgw ctl trace` with the administrator's kubeconfig.
    pub(super) async fn trace(&self, pod: &str) -> Result<String> {
        let program = std::env::current_exe()?.with_file_name("cgw");
        let mut command = Command::new(&program);
        command.args(["ctl", "trace", pod, "-n", "demo"]).env("KUBECONFIG", self.cluster.kubeconfig());
        let output =
            command.stdin(Stdio::null()).output().await.with_context(|| program.display().to_string())?;
        ensure!(output.status.success(), "cgw ctl trace: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Pod {
    /// Its network, while it runs.
    pub(super) fn network(&self) -> Result<Network> {
        Network::of_pod(&self.uid)
    }

    /// The source address that a host outside sees; none without a response.
    pub(super) async fn source(&self) -> Result<Option<Ipv4Addr>> {
        client_from(&self.network()?, HOST).await
    }

    /// The address that the pod behind a VIP reports for this pod.
    pub(super) async fn client_of(&self, vip: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
        client_from(&self.network()?, vip).await
    }
}

async fn client_from(network: &Network, server: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
    let line = network.request(web(server), RESPONSE_TIMEOUT).await?;
    Ok(line.and_then(|line| client_in(&line)))
}

fn web(server: Ipv4Addr) -> Target {
    Target::Tcp(SocketAddrV4::new(server, 80))
}
