//! `cgw ctl trace`: reads the objects that decide about one pod, and explains the decision with the functions of the agent.
//!
//! The networks and the driver are flags of the agents, so they are read from the agents' DaemonSet.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use clap::Parser;
use common::cache::ObjectKey;
use common::cluster::error_chain;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Container};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agent::{
    self,
    observe::{inventory::Inventory, kinds, read},
    plan::Config,
    trace::{Explanation, Source, explain},
};

/// Labels of the agents' DaemonSet, as manifests/cgw-controller/agent has them.
const AGENT: &str = "app.kubernetes.io/name=cgw-controller,app.kubernetes.io/component=agent";

/// The agent's variables that decide, and their flags.
const DECIDING: [(&str, &str); 6] = [
    ("PERIMETER_DRIVER", "--driver"),
    ("PERIMETER_CLUSTER_CIDR", "--cluster-cidr"),
    ("PERIMETER_SERVICE_CIDR", "--service-cidr"),
    ("PERIMETER_EXCLUDE_CIDR", "--exclude-cidr"),
    ("PERIMETER_BINDS_SERVICE", "--binds-service"),
    ("PERIMETER_MARK_MASK", "--mark-mask"),
];

#[derive(Parser)]
struct AgentCommand {
    #[command(flatten)]
    args: agent::args::Args,
}

/// Reads the objects and explains. `namespace` is the controller's.
///
/// # Errors
/// An object cannot be read, or the pod is not scheduled.
pub async fn run(client: &Client, namespace: &str, pod: &ObjectKey) -> anyhow::Result<Explanation> {
    let config = agent_config(client, namespace).await?;
    let named = format!("reading Pod {pod} failed");
    let found = Api::<kinds::Pod>::namespaced(client.clone(), pod.namespace())
        .get(pod.name())
        .await
        .map_err(|error| anyhow::anyhow!(error_chain(&error)))
        .context(named)?;
    let node = found.spec.node_name.clone();
    ensure!(!node.is_empty(), "Pod {pod} is not scheduled to a Node yet");
    let mut inventory = Inventory::new(&node);
    inventory.set_pod(pod, Some(read::pod(&found)));
    for node in list::<kinds::Node>(client, "Nodes").await? {
        inventory.set_node(&node.name_any(), Some(read::node(&node)));
    }
    let store = ObjectKey::new(&config.namespace, &config.binds);
    for service in list::<kinds::Service>(client, "Services").await? {
        let key = ObjectKey::of(&service);
        if key == store {
            inventory.set_store(Some(read::store(&service)));
        } else {
            inventory.set_service(&key, read::service(&service));
        }
    }
    Ok(explain(&config, &inventory.snapshot(&node), pod))
}

async fn list<K>(client: &Client, what: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let list = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    Ok(list
        .map_err(|error| anyhow::anyhow!(error_chain(&error)))
        .with_context(|| format!("listing {what} failed"))?
        .items)
}

async fn agent_config(client: &Client, namespace: &str) -> anyhow::Result<Config> {
    let sets = Api::<DaemonSet>::namespaced(client.clone(), namespace)
        .list(&ListParams::default().labels(AGENT))
        .await
        .map_err(|error| anyhow::anyhow!(error_chain(&error)))
        .with_context(|| format!("listing DaemonSets in namespace {namespace} failed"))?;
    let container = sets
        .items
        .into_iter()
        .next()
        .and_then(|set| {
            set.spec?.template.spec?.containers.into_iter().find(|container| container.name == "agent")
        })
        .with_context(|| {
            format!("namespace {namespace} has no DaemonSet of agents (labels {AGENT}, container agent)")
        })?;
    let args = parsed(&container).context("the flags of the agents' DaemonSet")?;
    Ok(args.config(namespace))
}

/// The flags of an agent, from its variables and arguments. Variables that refer to other objects do not decide.
fn parsed(container: &Container) -> anyhow::Result<agent::args::Args> {
    let values: BTreeMap<&str, &str> = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| Some((variable.name.as_str(), variable.value.as_deref()?)))
        .collect();
    let mut flags: Vec<String> = vec!["agent".to_owned(), "--node-name=any".to_owned()];
    for (variable, flag) in DECIDING {
        let is_given = |argument: &String| argument == flag || argument.starts_with(&format!("{flag}="));
        if let Some(value) = values.get(variable).filter(|_| !container.args.iter().flatten().any(is_given)) {
            flags.push(format!("{flag}={value}"));
        }
    }
    let mut own = container.args.iter().flatten().skip_while(|argument| *argument == "agent");
    while let Some(argument) = own.next() {
        if argument == "--node-name" {
            // Its value.
            own.next();
        } else if !argument.starts_with("--node-name=") {
            flags.push(argument.clone());
        }
    }
    let command = AgentCommand::try_parse_from(&flags)
        .map_err(|error| anyhow::anyhow!(error.to_string().lines().next().unwrap_or_default().to_owned()))?;
    Ok(command.args)
}

/// As JSON, for `--output json`.
#[must_use]
pub fn to_json(explanation: &Explanation) -> Value {
    let source = match &explanation.source {
        Source::Vip { vip, gateway, gateway_ip } => {
            json!({"type": "Vip", "address": vip, "gateway": gateway, "gatewayIP": gateway_ip})
        }
        Source::Node { node, ip } => json!({"type": "Node", "address": ip, "node": node}),
        Source::Dropped => json!({"type": "Dropped"}),
        Source::NoNetwork => json!({"type": "NoNetwork"}),
        Source::Unknown => json!({"type": "Unknown"}),
    };
    json!({
        "namespace": explanation.pod.namespace(),
        "pod": explanation.pod.name(),
        "source": source,
        "because": explanation.because,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvVar;

    use super::*;
    use crate::agent::plan::MacRule;

    fn container(env: &[(&str, &str)], args: &[&str]) -> Container {
        let variable = |(name, value): &(&str, &str)| EnvVar {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
            ..EnvVar::default()
        };
        Container {
            env: Some(env.iter().map(variable).collect()),
            args: Some(args.iter().map(|argument| (*argument).to_owned()).collect()),
            ..Container::default()
        }
    }

    #[test]
    fn flags_of_the_agents_are_read_from_variables_and_arguments() {
        let env = [
            ("PERIMETER_DRIVER", "vxlan"),
            ("PERIMETER_SERVICE_CIDR", "10.96.0.0/12"),
            ("PERIMETER_ADMIN_ADDRESS", "$(HOST_IP):9475"),
            ("PERIMETER_BINDS_SERVICE", "acme-cgw-binds"),
        ];
        let config = parsed(&container(&env, &["agent"])).unwrap().config("edge");
        let services: Vec<String> = config.service_cidrs.iter().map(ToString::to_string).collect();
        assert_eq!((services, config.binds.as_str()), (vec!["10.96.0.0/12".to_owned()], "acme-cgw-binds"));
        assert_eq!((config.mac_rule, config.namespace.as_str()), (MacRule::Derived, "edge"));

        let args = [
            "agent",
            "--node-name",
            "$(NODE_NAME)",
            "--service-cidr=10.0.0.0/16",
            "--exclude-cidr",
            "10.9.0.0/16",
        ];
        let config = parsed(&container(&env, &args)).unwrap().config("edge");
        let networks = |list: &[ipnet::Ipv4Net]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(networks(&config.service_cidrs), ["10.0.0.0/16"]);
        assert_eq!(networks(&config.exclude_cidrs), ["10.9.0.0/16"]);
        assert!(parsed(&container(&[("PERIMETER_DRIVER", "ebpf")], &["agent"])).is_err());
    }

    #[test]
    fn an_explanation_becomes_json() {
        let source = Source::Vip {
            vip: "192.168.50.201".parse().unwrap(),
            gateway: "g1".to_owned(),
            gateway_ip: "192.168.50.21".parse().unwrap(),
        };
        let explanation =
            Explanation { pod: ObjectKey::new("shop", "web-0"), source, because: vec!["b".to_owned()] };
        let expected = json!({
            "namespace": "shop", "pod": "web-0", "because": ["b"],
            "source": {"type": "Vip", "address": "192.168.50.201", "gateway": "g1", "gatewayIP": "192.168.50.21"},
        });
        assert_eq!(to_json(&explanation), expected);
    }
}
