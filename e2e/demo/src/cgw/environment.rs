//! The environment of the demo: a cluster with a network outside, an overlay as a user writes it, and the pods of two Services.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::{Cluster, Internet, Network, Probe, SEGMENT_GATEWAY, SEGMENT_INTERFACE, image};
use tempfile::TempDir;
use tokio::process::Command;

/// As in the base.
pub(super) const NAMESPACE: &str = "cgw-controller";
/// The gateway nodes.
pub(super) const GATEWAYS: [&str; 2] = ["node-1", "node-2"];
/// The node of pod a.
pub(super) const WORKER: &str = "node-3";
/// The network of the machines, of `e2e/cluster/settings.sh`.
const PRIVATE_INTERFACE: &str = "ens10";
/// The path at which Debian's package busybox-static installs busybox.
const BUSYBOX: &str = "/bin/busybox";
const POD_IMAGE: &str = "perimeter.dev/demo-cgw:1";
/// The response to `GET /cgi-bin/client`: the address of the client.
const CGI: &str = "/cgi-bin/client";
/// As in `e2e::cluster::Prober`.
const EVERY: Duration = Duration::from_millis(20);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);

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

/// The cluster, and the host outside.
pub(super) struct Environment {
    pub(super) cluster: Cluster,
    _internet: Internet,
    folder: TempDir,
}

/// A running pod.
pub(super) struct Pod {
    /// Its name in namespace `demo`.
    pub(super) name: String,
    uid: String,
}

impl Environment {
    pub(super) async fn on(cluster: Cluster) -> Result<Self> {
        cluster.segment()?;
        for name in GATEWAYS {
            let route = format!("ip route replace default via {SEGMENT_GATEWAY} dev {SEGMENT_INTERFACE}");
            cluster.machine(name).exec(&route.split(' ').collect::<Vec<_>>()).await?;
        }
        let internet = cluster.internet()?;
        Ok(Self { cluster, _internet: internet, folder: tempfile::tempdir()? })
    }

    pub(super) async fn give_images(&self) -> Result<()> {
        for name in ["cgw-controller", "cgw-keeper"] {
            self.cluster.import_image(&image::build(name).await?).await?;
        }
        ensure!(Path::new(BUSYBOX).exists(), "{BUSYBOX} is missing (Debian: busybox-static)");
        let programs = [BUSYBOX, "/bin/sh"].map(|path| format!("{BUSYBOX}:{path}"));
        self.cluster.make_image(POD_IMAGE, &programs).await
    }

    /// Writes the overlay that a user would write. Returns the keeper's configuration.
    pub(super) fn write_overlay(&self, vips: [Ipv4Addr; 2]) -> Result<String> {
        let here = self.folder.path().canonicalize()?;
        let router = here.join("router-51");
        std::fs::create_dir(&router)?;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").canonicalize()?;
        // Kustomize takes no absolute path.
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let manifests = up.join(manifests.strip_prefix("/")?);
        let manifests = manifests.display();

        let [first, second] = vips;
        let peers: Vec<String> = GATEWAYS
            .iter()
            .map(|name| Ok(self.cluster.machine(name).ip()?.to_string()))
            .collect::<Result<_>>()?;
        let settings = format!(
            "vrid: 51\ninterface: {PRIVATE_INTERFACE}\nvipInterface: {SEGMENT_INTERFACE}\nvips: [{first}-{second}]\n\
             peers: [{}]\n",
            peers.join(", ")
        );
        std::fs::write(router.join("keeper.yaml"), &settings)?;
        std::fs::write(
            router.join("kustomization.yaml"),
            format!(
                "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
                 resources: [../{manifests}/cgw-controller/keeper]\nnameSuffix: '-51'\n\
                 labels: [{{includeSelectors: true, pairs: {{cgw-controller.perimeter.dev/virtual-router: '51'}}}}]\n\
                 configMapGenerator: [{{name: cgw-keeper, namespace: {NAMESPACE}, behavior: replace, files: [keeper.yaml]}}]\n\
                 generatorOptions: {{disableNameSuffixHash: true}}\n"
            ),
        )?;
        let [_, byte, ..] = self.cluster.this_machine().octets();
        let networks = format!(
            "- op: add\n  path: /spec/template/spec/containers/0/env/-\n  value: {{name: PERIMETER_CLUSTER_CIDR, value: 10.{byte}.128.0/17}}\n"
        );
        std::fs::write(here.join("networks.yaml"), networks)?;
        let services = format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: cgw-agent}}\nspec: {{template: {{spec: {{containers: \
             [{{name: agent, env: [{{name: PERIMETER_SERVICE_CIDR, value: 10.{byte}.64.0/18}}]}}]}}}}}}\n"
        );
        std::fs::write(here.join("services.yaml"), services)?;
        std::fs::write(
            here.join("kustomization.yaml"),
            format!(
                "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
                 resources: [{manifests}/cgw-controller, {manifests}/cgw-controller/agent, router-51]\n\
                 patches:\n\
                 - {{path: networks.yaml, target: {{kind: DaemonSet, name: cgw-agent}}}}\n\
                 - {{path: services.yaml, target: {{kind: DaemonSet, name: cgw-agent}}}}\n\
                 secretGenerator: [{{name: cgw-controller-tls, namespace: {NAMESPACE}, type: kubernetes.io/tls, \
                 files: [tls.crt, tls.key, ca.crt=tls.crt]}}]\n\
                 generatorOptions: {{disableNameSuffixHash: true}}\n"
            ),
        )?;
        Ok(settings)
    }

    /// Makes the certificate, and applies the overlay.
    pub(super) async fn apply(&self) -> Result<()> {
        let folder = self.folder.path();
        let name = format!("subjectAltName=DNS:cgw-controller.{NAMESPACE}.svc");
        let mut openssl = Command::new("openssl");
        openssl.current_dir(folder).args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=cgw-controller",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            &name,
            "-keyout",
            "tls.key",
            "-out",
            "tls.crt",
        ]);
        let output = openssl.stdin(Stdio::null()).output().await.context("openssl")?;
        ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        self.cluster.kubectl(&["apply", "-k", &folder.to_string_lossy()]).await?;
        for workload in ["deployment/cgw-controller", "daemonset/cgw-agent", "daemonset/cgw-keeper-51"] {
            self.cluster.kubectl(&["-n", NAMESPACE, "rollout", "status", workload, "--timeout=600s"]).await?;
        }
        Ok(())
    }

    /// The nodes whose keepers are MASTER, by their status servers.
    pub(super) fn masters(&self) -> Result<Vec<String>> {
        let network = self.cluster.machine("fabric").network()?;
        let mut masters = Vec::new();
        for name in GATEWAYS {
            let address = SocketAddr::from((self.cluster.machine(name).ip()?, 63_051));
            let status = network.within(move || Ok(get(address, "/status").unwrap_or_default()))?;
            if status.contains("\"MASTER\"") {
                masters.push(name.to_owned());
            }
        }
        Ok(masters)
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
        client_from(self.cluster.machine("internet").network()?, vip).await
    }

    /// Opens a connection to the VIP from outside again and again.
    pub(super) fn probe_ingress(&self, vip: Ipv4Addr) -> Result<Ingress> {
        Ingress::start(&self.cluster.machine("internet").network()?, vip)
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
    pub(super) async fn source(&self, host: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
        let network = self.network()?;
        let response = tokio::task::spawn_blocking(move || {
            network.within(move || Ok(get(SocketAddr::from((host, 80)), "/").unwrap_or_default()))
        });
        Ok(response.await??.trim().parse().ok())
    }

    /// The address that the pod behind a VIP reports for this pod.
    pub(super) async fn client_of(&self, vip: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
        client_from(self.network()?, vip).await
    }
}

async fn client_from(network: Network, vip: Ipv4Addr) -> Result<Option<Ipv4Addr>> {
    let response = tokio::task::spawn_blocking(move || {
        network.within(move || Ok(get(SocketAddr::from((vip, 80)), CGI).unwrap_or_default()))
    });
    Ok(response.await??.trim().trim_start_matches("::ffff:").parse().ok())
}

/// Ingress probes, until it is dropped.
pub(super) struct Ingress {
    probes: Arc<Mutex<Vec<Probe>>>,
    stop: Arc<AtomicBool>,
}

impl Ingress {
    fn start(network: &Network, vip: Ipv4Addr) -> Result<Self> {
        let (probes, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (sink, stopped) = (Arc::clone(&probes), Arc::clone(&stop));
        network.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let at = Instant::now();
                let response = get(SocketAddr::from((vip, 80)), CGI).unwrap_or_default();
                let seen = response.trim().trim_start_matches("::ffff:").parse().ok();
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(Probe { at, seen });
                std::thread::sleep(EVERY.saturating_sub(at.elapsed()));
            }
            Ok(())
        })?;
        Ok(Self { probes, stop })
    }

    pub(super) fn last(&self) -> Option<Probe> {
        self.all().last().copied()
    }

    fn all(&self) -> Vec<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The longest time without a response since `since`, and the number of lost connections, once there is a response again.
    pub(super) async fn longest_gap(&self, since: Instant, timeout: Duration) -> Result<(Duration, usize)> {
        let end = Instant::now() + timeout;
        while self.last().is_none_or(|probe| probe.seen.is_none()) {
            ensure!(Instant::now() < end, "the VIP does not respond after {timeout:?}");
            tokio::time::sleep(EVERY).await;
        }
        let probes = self.all();
        let lost = probes.iter().filter(|probe| probe.at >= since && probe.seen.is_none()).count();
        let responses: Vec<Instant> =
            probes.iter().filter(|probe| probe.seen.is_some()).map(|probe| probe.at).collect();
        let gaps = responses.iter().zip(responses.iter().skip(1)).filter(|(_, next)| **next >= since);
        Ok((gaps.map(|(one, next)| next.duration_since(*one)).max().unwrap_or_default(), lost))
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The body of an HTTP response. Any error is no response.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n", address.ip()).ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}
