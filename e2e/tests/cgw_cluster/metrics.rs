//! The metrics of the three roles.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use e2e::cgw::{GATEWAYS, NAMESPACE, get};
use e2e::program::Samples;

use super::env::TestEnv;
use crate::monitoring::component::Component;
use crate::monitoring::promql;

const AGENT_PORT: u16 = 9475;
const KEEPER_PORT: u16 = 9476;
const CONTROLLER_PORT: u16 = 8080;

/// The metrics of a node's agent.
pub async fn agent(env: &TestEnv, node: &str) -> Result<String> {
    get((env.machine(node).ip()?, AGENT_PORT).into(), "/metrics").await
}

/// The metrics of each replica of the controller, by its address.
pub async fn controllers(env: &TestEnv) -> Result<BTreeMap<String, String>> {
    let selector = "-l app.kubernetes.io/component=controller";
    let path = "jsonpath={.items[*].status.podIP}";
    let addresses = env.cluster.kubectl(&["-n", NAMESPACE, "get", "pods", selector, "-o", path]).await?;
    let mut all = BTreeMap::new();
    for address in addresses.split_whitespace() {
        let socket = (address.parse::<std::net::Ipv4Addr>()?, CONTROLLER_PORT).into();
        all.insert(address.to_owned(), get(socket, "/metrics").await?);
    }
    Ok(all)
}

/// Every metric that alerts and the dashboard name exists at its role, with the labels that they select by.
pub async fn all_there(env: &TestEnv) {
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    texts.insert("cgw-controller", controllers(env).await.unwrap().into_values().collect());
    for node in env.cluster.nodes() {
        texts.entry("cgw-agent").or_default().push(agent(env, node.name()).await.unwrap());
    }
    for node in GATEWAYS {
        let address = (env.machine(node).ip().unwrap(), KEEPER_PORT).into();
        texts.entry("cgw-keeper").or_default().push(get(address, "/metrics").await.unwrap());
    }
    let mut count = 0;
    for (place, expression) in Component::of("cgw-controller").expressions() {
        for (metric, selected) in promql::names(&expression).selected {
            let Some(job) = selected.get("job").filter(|_| metric.starts_with("cgw_")) else { continue };
            // The labels of a target are Prometheus' own.
            let labels: Vec<(&str, &str)> = selected
                .iter()
                .filter(|(key, _)| !["job", "namespace", "node"].contains(&key.as_str()))
                .filter(|(key, _)| *key != "cgw_controller_perimeter_dev_virtual_router")
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            let found = texts[job.as_str()].iter().any(|text| {
                Samples::parse(text).context(job.clone()).unwrap().sum(&metric, &labels).is_some()
            });
            assert!(found, "{place}: {job} has no {metric} with {labels:?}");
            count += 1;
        }
    }
    assert!(count > 20, "{count} metrics of alerts and dashboard");
    println!("{count} metrics of alerts and dashboard exist");
}
