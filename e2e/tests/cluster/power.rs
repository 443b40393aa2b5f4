//! Power cuts: the disk is kept, the boot ID changes.

use std::time::Instant;

use e2e::cluster::Cluster;
use e2e::wait::until;

#[tokio::test]
#[ignore = "full: real nodes"]
async fn a_node_comes_back_after_a_power_cut() {
    let cluster = Cluster::start(1).await.unwrap();
    let node = cluster.machine("node-1");
    let boot_id = || async {
        cluster.kubectl(&["get", "node", "node-1", "-o", "jsonpath={.status.nodeInfo.bootID}"]).await.unwrap()
    };
    let before = boot_id().await;
    node.exec(&["bash", "-c", "echo kept >/etc/kept; echo lost >/run/lost"]).await.unwrap();
    assert!(!std::path::Path::new("/etc/kept").exists(), "a node writes into this machine's /etc");

    let since = Instant::now();
    node.stop().await.unwrap();
    assert!(node.exec(&["true"]).await.is_err(), "it runs without power");
    node.start().await.unwrap();
    until("another boot ID of the node", async || Ok((boot_id().await != before).then_some(())))
        .await
        .unwrap();
    cluster.kubectl(&["wait", "--for=condition=Ready", "node/node-1", "--timeout=600s"]).await.unwrap();
    println!("Ready {:.1} s after a power cut", since.elapsed().as_secs_f64());
    assert_eq!(node.exec(&["cat", "/etc/kept"]).await.unwrap(), "kept\n");
    assert!(node.exec(&["cat", "/run/lost"]).await.is_err(), "/run outlived the power cut");
    assert!(cluster.kubectl(&["get", "nonsense"]).await.unwrap_err().to_string().contains("nonsense"));
}
