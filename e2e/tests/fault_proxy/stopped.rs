//! A real process, killed at its Nth write.

use std::path::Path;

use e2e::fault_proxy::{FaultProxy, Then, Upstream, When, WriteCounter};
use e2e::program::{Launch, Program};
use e2e::sweep::Victim;

use crate::fault_proxy::TIMEOUT;
use crate::fault_proxy::client::post;
use crate::fault_proxy::server::Server;

/// Writes to all ports concurrently, in rounds, and records each response. It uses builtins only: it is one process.
const WRITER: &str = r#"
notes=$1; shift
number=0
while :; do
    sockets=()
    for port in "$@"; do
        exec {socket}<>"/dev/tcp/127.0.0.1/$port"
        sockets+=("$socket")
        number=$((number + 1))
        printf 'POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$number" >&"$socket"
    done
    for socket in "${sockets[@]}"; do
        while read -r -u "$socket" line; do
            case $line in HTTP/1.1*201*) echo response >> "$notes" ;; esac
        done
        exec {socket}>&-
    done
done
"#;

fn writer(notes: &Path, proxies: &[FaultProxy]) -> Launch {
    let ports = proxies.iter().map(|proxy| proxy.url().rsplit_once(':').unwrap().1.to_owned());
    Program::at("/bin/bash").args(["-c", WRITER, "writer"]).arg(notes).args(ports)
}

fn recorded(notes: &Path) -> usize {
    std::fs::read_to_string(notes).unwrap_or_default().lines().count()
}

/// Runs the writer against `lines` proxies until it is killed at its `n`th write. Returns how many writes the servers
/// acted on, and how many responses the writer received.
async fn run_until_killed(n: u64, when: When, lines: usize) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let server = Server::start().await;
    let counter = WriteCounter::new();
    let mut proxies = Vec::new();
    for _ in 0..lines {
        proxies.push(FaultProxy::start_counted(Upstream::kubernetes(server.url()), &counter).await.unwrap());
    }
    let victim = Victim::default();
    let fired = {
        let (notes, victim) = (notes.clone(), victim.clone());
        let responses = usize::try_from(n).unwrap();
        let kill = move || async move {
            if when == When::AfterResponse && lines == 1 {
                // The response is sent: the writer can record it. It cannot in the two other moments.
                while recorded(&notes) < responses {
                    tokio::task::yield_now().await;
                }
            }
            victim.kill().unwrap();
            Then::Cut
        };
        counter.on_write(n, when, kill).unwrap()
    };
    victim.start(&writer(&notes, &proxies)).unwrap();
    let write = fired.wait(TIMEOUT).await.unwrap();
    assert_eq!(write.number, n);
    let status = victim.program().unwrap().exited().unwrap().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    let acted = server.acted().len();
    // A write of the stopped process would arrive before these.
    for proxy in &proxies {
        post(&proxy.url(), "/after").await.unwrap();
    }
    let all = server.acted();
    assert_eq!(all.len(), acted + lines, "a stopped process wrote: {all:?}");
    (acted, recorded(&notes))
}

#[tokio::test]
async fn process_stopped_at_its_nth_write_has_made_exactly_n() {
    for n in 1..=4 {
        let count = usize::try_from(n).unwrap();
        assert_eq!(run_until_killed(n, When::BeforeForward, 1).await, (count - 1, count - 1));
        assert_eq!(run_until_killed(n, When::AfterServerActed, 1).await, (count, count - 1));
        assert_eq!(run_until_killed(n, When::AfterResponse, 1).await, (count, count));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn process_that_writes_to_several_servers_has_made_exactly_n() {
    for n in 1..=9 {
        let count = usize::try_from(n).unwrap();
        let (acted, recorded) = run_until_killed(n, When::AfterServerActed, 3).await;
        assert_eq!(acted, count);
        assert!(recorded < count, "response {n} was received");
        assert_eq!(run_until_killed(n, When::BeforeForward, 3).await.0, count - 1);
        assert_eq!(run_until_killed(n, When::AfterResponse, 3).await.0, count);
    }
}
