//! A cluster leaves nothing, also if its owner is killed while another cluster runs.

use std::path::{Path, PathBuf};
use std::time::Instant;

use e2e::cluster::Cluster;
use e2e::netns::wait_until;
use e2e::program::Owner;

#[tokio::test]
#[ignore = "full: real nodes"]
async fn a_killed_owner_leaves_nothing() {
    if Owner::is_this() {
        let cluster = Cluster::start(1).await.unwrap();
        return Owner::hold(&cluster.range());
    }
    let (owner, range) = Owner::start("cluster::traces::a_killed_owner_leaves_nothing").unwrap();
    let number = number_of(&range);
    assert_ne!(traces(number), Vec::<String>::new(), "a living cluster is seen");
    owner.kill().unwrap();
    let begun = Instant::now();
    wait_until("no trace of the cluster", || Ok(traces(number).is_empty()))
        .unwrap_or_else(|why| panic!("{why}: {:#?}", traces(number)));
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
