//! Routes: the cloud controller adds and removes a Node's route, and leaves it when it has stopped.

use e2e::providers::Provider;
use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::{TestEnv, until, workers};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn a_node_that_is_deleted_while_the_cloud_controller_is_stopped_leaves_its_route() {
    let _guard = workers().await;
    let env = TestEnv::start("orphan", &[Provider::CloudController]).await;
    let nodes: Api<Node> = Api::all(env.control_plane.client());
    env.node("node-1").await;
    let (server, address) = env.node("node-2").await;
    until("routes to both Nodes", async || env.project.routes().await.unwrap().len() == 2).await;
    let node = nodes.get("node-2").await.unwrap();
    let range = node.spec.unwrap().pod_cidr.unwrap();
    let route = (range, address);
    assert!(env.project.routes().await.unwrap().contains(&route));

    env.providers.kill(Provider::CloudController).unwrap();
    nodes.delete("node-2", &Default::default()).await.unwrap();
    env.project.delete_server(&server).await.unwrap();
    assert_eq!(env.project.routes().await.unwrap().len(), 2, "a route outlives the port that it leads to");

    // It takes every unknown route in the pod network for its own orphan, and no other.
    let foreign = [("10.99.0.0/24", "10.7.1.1"), ("10.244.77.0/24", "10.7.1.2")];
    env.project.add_routes(&foreign).await.unwrap();
    env.providers.run(Provider::CloudController).await.unwrap();
    until("the orphan's end", async || !env.project.routes().await.unwrap().contains(&route)).await;
    until("the end of the foreign route", async || env.project.routes().await.unwrap().len() == 2).await;
    assert!(
        env.project.routes().await.unwrap().contains(&("10.99.0.0/24".to_owned(), "10.7.1.1".to_owned()))
    );
}
