//! What is left of a cluster: nothing, also of one whose owner was killed while another one lives beside it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use e2e::cluster::Cluster;

/// Tells the test, started as a process of its own, that it is the owner that will be killed.
const ROLE: &str = "E2E_CLUSTER_TO_BE_KILLED";

#[tokio::test]
async fn a_killed_owner_leaves_nothing() {
    if std::env::var_os(ROLE).is_some() {
        let cluster = Cluster::start(1).await.unwrap();
        println!("\nrange {}", cluster.range());
        // Until the pipe closes, which it does not before this process is killed.
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "traces::a_killed_owner_leaves_nothing", "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let range =
        lines.find_map(|line| line.unwrap().strip_prefix("range ").map(str::to_owned)).expect("a cluster");
    let number = number_of(&range);
    assert_ne!(traces(number), Vec::<String>::new(), "a living cluster is seen");
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while !traces(number).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "left behind: {:#?}", traces(number));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("all traces of a killed owner's cluster were gone after {:.1} s", begun.elapsed().as_secs_f64());
}

/// A cluster's number, which is in its network's range.
pub fn number_of(range: &str) -> u8 {
    range.split('.').nth(1).unwrap().parse::<u8>().unwrap() - 200
}

/// Folders, cgroups, links and locks of a cluster. Its processes are in its cgroups, its mounts and namespaces theirs.
pub fn traces(number: u8) -> Vec<String> {
    let name = format!("perimeter-{number}");
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let mut places = vec![temporary.join(&name), Path::new("/sys/class/net").join(&name)];
    places.push(format!("/run/lock/perimeter-cluster-{number}").into());
    places.push(Path::new("/sys/fs/cgroup").join(&name));
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    places.extend(hierarchies.map(|hierarchy| hierarchy.path().join(&name)));
    places.iter().filter(|place| place.exists()).map(|place| place.display().to_string()).collect()
}
