//! The installer as its DaemonSet starts it, with a folder instead of the node's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_egress-router");
/// Far longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { folder: tempfile::tempdir().unwrap() };
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        fs::create_dir(node.path("account")).unwrap();
        fs::write(node.path("account/ca.crt"), authority.pem()).unwrap();
        fs::write(node.path("account/token"), "first").unwrap();
        fs::write(node.path("settings.json"), "{}").unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("install")
            .arg(format!("--bin-dir={}", self.path("bin").display()))
            .arg(format!("--kubeconfig-out={}", self.path("conf/kubeconfig").display()))
            .arg(format!("--service-account={}", self.path("account").display()))
            .arg(format!("--settings={}", self.path("settings.json").display()))
            .arg(format!("--settings-out={}", self.path("conf/settings.json").display()))
            .args(more)
            .env("KUBERNETES_SERVICE_HOST", "fd00::1")
            .env("KUBERNETES_SERVICE_PORT", "443")
            .env_remove("CNI_COMMAND");
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A process that is killed with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn all_files_are_written_once_and_removed() {
    let node = Node::new();
    let first = node.run(&[]);
    assert!(first.status.success(), "{first:?}");
    assert_eq!(fs::read(node.path("bin/egress-router")).unwrap(), fs::read(PROGRAM).unwrap());
    assert_eq!(mode(&node.path("bin/egress-router")), 0o755);
    assert_eq!(mode(&node.path("conf/kubeconfig")), 0o600);
    assert!(node.read("conf/kubeconfig").contains("\"server\": \"https://[fd00::1]:443\""));
    assert_eq!(node.read("conf/settings.json"), "{}");
    let version =
        Command::new(node.path("bin/egress-router")).env("CNI_COMMAND", "VERSION").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().contains("\"1.1.0\""));

    let second = node.run(&[]);
    assert!(second.status.success() && second.stdout.is_empty(), "{second:?}");

    assert!(node.run(&["--uninstall"]).status.success());
    assert_eq!(fs::read_dir(node.path("bin")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(node.path("conf")).unwrap().count(), 0);
    assert!(node.run(&["--uninstall"]).status.success());
}

#[test]
fn failures_are_reported_and_the_rest_is_installed() {
    let node = Node::new();
    fs::write(node.path("settings.json"), "{").unwrap();
    fs::remove_file(node.path("account/ca.crt")).unwrap();
    let output = node.run(&[]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(words.contains("settings.json") && words.contains("ca.crt"), "{words}");
    assert!(node.path("bin/egress-router").exists());
    assert_eq!(node.run(&["--wacht"]).status.code(), Some(2));
}

#[test]
fn it_watches_until_sigterm() {
    let node = Node::new();
    let mut running = Running(node.command(&["--watch", "--interval=1"]).spawn().unwrap());
    until("the program is there", || node.path("bin/egress-router").exists());
    // A kubelet renews the token, an administrator changes a setting, an update of the node empties a folder.
    fs::write(node.path("account/token"), "second").unwrap();
    fs::write(node.path("settings.json"), r#"{"platform": "none"}"#).unwrap();
    fs::remove_file(node.path("bin/egress-router")).unwrap();
    until("the token is renewed", || node.read("conf/kubeconfig").contains("\"token\": \"second\""));
    until("the settings are new", || node.read("conf/settings.json").contains("none"));
    until("the program is there second", || node.path("bin/egress-router").exists());
    // Invalid settings change nothing, and the program continues.
    fs::write(node.path("settings.json"), "{").unwrap();
    fs::write(node.path("account/token"), "third").unwrap();
    until("the token is renewed", || node.read("conf/kubeconfig").contains("\"token\": \"third\""));
    // It finishes what it has begun.
    assert!(terminated(&mut running));
    assert!(node.read("conf/settings.json").contains("none"));
    // The signal does not wait for the end of the interval.
    fs::write(node.path("settings.json"), "{}").unwrap();
    fs::remove_file(node.path("bin/egress-router")).unwrap();
    let mut running = Running(node.command(&["--watch", "--interval=3600"]).spawn().unwrap());
    until("the program is there third", || node.path("bin/egress-router").exists());
    let start = Instant::now();
    assert!(terminated(&mut running));
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
}

/// Sends SIGTERM, and waits for the end. Whether it succeeded.
fn terminated(running: &mut Running) -> bool {
    assert!(Command::new("kill").arg(running.0.id().to_string()).status().unwrap().success());
    running.0.wait().unwrap().success()
}
