//! Load balancers across zones. ironcore-net makes an Instance of a load balancer for each Node, and its scheduler binds those that the
//! anti-affinity of the template allows: at most one in a zone.

use std::collections::{BTreeMap, BTreeSet};

use apinetlet::api::source;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::environment::{TestEnv, create, delete, wait_gone};

fn nodes(env: &TestEnv) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(env.flavor.names().apinet, "v1alpha1", "Node");
    Api::all_with(env.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodes"))
}

async fn create_node(env: &TestEnv, name: &str, zone: &str) {
    let node = json!({
        "apiVersion": format!("{}/v1alpha1", env.flavor.names().apinet), "kind": "Node",
        "metadata": { "name": name, "labels": { env.flavor.names().zone: zone } },
    });
    let node = serde_json::from_value(node).unwrap();
    nodes(env).create(&PostParams::default(), &node).await.unwrap();
}

/// The Instances of a load balancer: the Node of each one that is scheduled, and the names of the others.
async fn instances(env: &TestEnv, balancer: &str) -> (Vec<String>, Vec<String>) {
    let (mut scheduled, mut unscheduled) = (Vec::new(), Vec::new());
    for instance in env.list(env.flavor.names().apinet, &env.apinet, "instances").await {
        let labels = &instance["metadata"]["labels"];
        if labels["apinetlet.ironcore.dev/loadbalancer-uid"] == balancer {
            match instance["spec"]["nodeRef"]["name"].as_str() {
                Some(node) => scheduled.push(node.to_owned()),
                None => unscheduled.push(instance["metadata"]["name"].as_str().unwrap().to_owned()),
            }
        }
    }
    (scheduled, unscheduled)
}

/// The scheduler has reported that there is no Node for an Instance.
async fn is_refused(env: &TestEnv, instance: &str) -> anyhow::Result<bool> {
    let events = Api::<Event>::namespaced(env.client.clone(), &env.apinet);
    let list = events.list(&ListParams::default()).await?;
    let is_refusal = |event: &Event| {
        event.involved_object.name.as_deref() == Some(instance)
            && event.reason.as_deref() == Some("OutOfCapacity")
    };
    Ok(list.items.iter().any(is_refusal))
}

#[tokio::test]
async fn the_instances_of_each_load_balancer_are_in_different_zones() {
    let (env, _apinetlet) = TestEnv::started().await;
    // Nodes have no namespace: these names are unique.
    let zone_of: BTreeMap<String, &str> = [("1", "a"), ("2", "a"), ("3", "b")]
        .map(|(number, zone)| (format!("{}-{number}", env.apinet), zone))
        .into();
    for (node, zone) in &zone_of {
        create_node(&env, node, zone).await;
    }
    env.network("net").await;
    let balancers = env.source::<source::LoadBalancer>();
    // The Instances of one are no obstacle for those of the other.
    for name in ["web", "api"] {
        let spec = json!({
            "type": "Public", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" },
            "ports": [{ "protocol": "TCP", "port": 443 }],
        });
        let uid = create(&balancers, name, spec).await.uid().unwrap();
        let is_spread = async || {
            let (scheduled, unscheduled) = instances(&env, &uid).await;
            let zones: BTreeSet<_> =
                scheduled.iter().filter_map(|node| zone_of.get(node.as_str())).copied().collect();
            let [refused] = &unscheduled[..] else { return Ok(None) };
            let is_complete = zones == BTreeSet::from(["a", "b"]) && is_refused(&env, refused).await?;
            Ok(is_complete.then_some(scheduled))
        };
        let scheduled = until("an Instance in each zone, and none for the third Node", is_spread).await;
        assert_eq!(scheduled.unwrap().len(), 2, "{:?}", instances(&env, &uid).await);
    }
    for name in ["web", "api"] {
        delete(&balancers, name).await;
        wait_gone(&balancers, name).await;
    }
    let left = async || {
        let left: Vec<Value> = env.list(env.flavor.names().apinet, &env.apinet, "instances").await;
        Ok(left.is_empty().then_some(()))
    };
    until("the end of the Instances", left).await.unwrap();
    // Load balancers of other tests would get Instances on them.
    for node in zone_of.keys() {
        nodes(&env).delete(node, &DeleteParams::default()).await.unwrap();
    }
}
