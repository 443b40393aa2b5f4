//! The program under test, and its signals and its output.

use std::{path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

/// Much longer than anything here takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// No API server is needed by one that neither elects nor asks.
pub const NOWHERE: &str = "http://127.0.0.1:9";
pub const ALONE: &str = "--leader-elect=false";

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// A running program. Dropped, it is killed.
pub struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    /// Everything that was read so far.
    pub seen: Vec<String>,
    _folder: tempfile::TempDir,
}

/// Cargo builds examples beside the tests.
pub fn executable() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/smallest");
    assert!(
        path.exists(),
        "{} is missing; `cargo test -p common --features runtime` builds it",
        path.display()
    );
    path
}

/// Starts it against `server`, with a clean environment.
pub fn start(server: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: a, user: {{}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a, namespace: here}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut child = Command::new(executable())
        .env_clear()
        .envs(environment.iter().copied())
        .args(["--admin-address=127.0.0.1:0", "--log-format=json"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .stderr(Stdio::piped())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    Program { child, lines, seen: Vec::new(), _folder: folder }
}

impl Program {
    /// The first line with this text.
    pub async fn line(&mut self, text: &str) -> String {
        in_time(text, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push(line.clone());
                if line.contains(text) {
                    return line;
                }
            }
            panic!("ended without {text:?}: {:#?}", self.seen)
        })
        .await
    }

    pub async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().await.unwrap().success());
    }

    /// Its exit code; its output is in `seen`.
    pub async fn code(&mut self) -> i32 {
        in_time("the end", async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen.push(line);
            }
            self.child.wait().await.unwrap().code().expect("it ended by itself")
        })
        .await
    }

    pub fn logged(&self, text: &str) -> bool {
        self.seen.iter().any(|line| line.contains(text))
    }

    pub async fn get(&mut self, path: &str) -> String {
        let line = match self.seen.iter().find(|line| line.contains("admin server listens")) {
            Some(line) => line.clone(),
            None => self.line("admin server listens").await,
        };
        let line: Value = serde_json::from_str(&line).unwrap();
        in_time(path, async {
            let mut stream = TcpStream::connect(line["address"].as_str().unwrap()).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            response
        })
        .await
    }

    pub async fn until(&mut self, path: &str, text: &str) {
        in_time(&format!("{text:?} on {path}"), async {
            while !self.get(path).await.contains(text) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}
