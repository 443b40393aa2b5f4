//! A cloud is stopped with the process that started it, also if that is killed.

use std::path::Path;

use anyhow::ensure;
use e2e::openstack::{Knobs, OpenStack, Part, Parts, Release};
use e2e::program::Owner;
use e2e::wait::until_ok;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn nothing_outlives_an_owner_that_is_killed() {
    if Owner::is_this() {
        let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, Knobs::default()).await.unwrap();
        let parts = [Part::Database, Part::Keystone, Part::Neutron];
        let pids = parts.map(|part| cloud.pid(part).unwrap().to_string());
        Owner::hold(&format!("{} {}", cloud.folder().display(), pids.join(" ")));
        return;
    }
    let owner = tokio::task::spawn_blocking(|| {
        Owner::start("openstack::owner::nothing_outlives_an_owner_that_is_killed")
    });
    let (owner, owned) = owner.await.unwrap().unwrap();
    let (folder, pids) = owned.split_once(' ').unwrap();
    assert!(Path::new(folder).is_dir());
    let left = || -> Vec<&str> {
        pids.split(' ').filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).collect()
    };
    assert_eq!(left().len(), 3);
    owner.kill().unwrap();
    until_ok("the end of the cloud", async || {
        let (left, is_there) = (left(), Path::new(folder).exists());
        ensure!(left.is_empty() && !is_there, "left: {left:?}, folder: {is_there}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}
