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
    trace::{Explanation, explain},
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
    let (config, unknown) = agent_config(client, namespace).await?;
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
    for service in list::<kinds::Service>(client, "Services").await? {
        let key = ObjectKey::of(&service);
        if key == config.store {
            inventory.set_store(Some(read::store(&service)));
        } else {
            inventory.set_service(&key, read::service(&service));
        }
    }
    let mut explanation = explain(&config, &inventory.snapshot(&node), pod);
    explanation.because.extend(unknown.map(|sentence| format!("{sentence}; the default is used")));
    Ok(explanation)
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

/// The settings of the agents, and the sentence of [`parsed`].
async fn agent_config(client: &Client, namespace: &str) -> anyhow::Result<(Config, Option<String>)> {
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
    let (args, unknown) = parsed(&container).context("the flags of the agents' DaemonSet")?;
    Ok((args.config(namespace), unknown))
}

/// The flags of an agent, from its variables and arguments; and a sentence that names the deciding ones whose values other objects have.
/// An argument that does not decide and has such a value, as `--admin-address=$(HOST_IP):9475`, is ignored.
fn parsed(container: &Container) -> anyhow::Result<(agent::args::Args, Option<String>)> {
    let mut variables: Variables<'_> = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(_)) => None,
            (Some(value), None) => expanded(value, &variables),
            (None, None) => continue,
        };
        variables.insert(&variable.name, value);
    }
    let has_env_from = container.env_from.as_ref().is_some_and(|sources| !sources.is_empty());
    let mut flags: Vec<String> = vec!["agent".to_owned(), "--node-name=any".to_owned()];
    let mut unknown: Vec<&str> = Vec::new();
    for (variable, flag) in DECIDING {
        let is_given = |argument: &String| argument == flag || argument.starts_with(&format!("{flag}="));
        if container.args.iter().flatten().any(is_given) {
            continue;
        }
        match variables.get(variable) {
            Some(Some(value)) => flags.push(format!("{flag}={value}")),
            Some(None) => unknown.push(flag),
            None => unknown.extend(has_env_from.then_some(flag)),
        }
    }
    let mut own = container.args.iter().flatten().skip_while(|argument| *argument == "agent").peekable();
    while let Some(argument) = own.next() {
        let (flag, has_value) =
            argument.split_once('=').map_or((argument.as_str(), false), |(flag, _)| (flag, true));
        let value = own.next_if(|next| !has_value && !next.starts_with('-'));
        if flag == "--node-name" {
            continue;
        }
        let parts = std::iter::once(argument).chain(value).map(|part| expanded(part, &variables));
        match parts.collect::<Option<Vec<String>>>() {
            Some(parts) => flags.extend(parts),
            None => {
                unknown.extend(DECIDING.iter().map(|(_, flag)| *flag).filter(|deciding| *deciding == flag))
            }
        }
    }
    let unknown = (!unknown.is_empty()).then(|| {
        let flags = unknown.join(", ");
        format!(
            "{flags}: the DaemonSet of the agents may take the value from another object, which is not read"
        )
    });
    let parsed = AgentCommand::try_parse_from(&flags)
        .map_err(|error| anyhow::anyhow!(error.to_string().lines().next().unwrap_or_default().to_owned()));
    let command = match &unknown {
        Some(sentence) => parsed.context(sentence.clone())?,
        None => parsed?,
    };
    Ok((command.args, unknown))
}

/// The variables of a container. None: another object has the value.
type Variables<'a> = BTreeMap<&'a str, Option<String>>;

/// The text with the values of its references, as `$(NODE_NAME)`. None: a value is not known.
fn expanded(text: &str, variables: &Variables<'_>) -> Option<String> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            // Kubernetes' escape of a dollar sign.
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            expanded.push_str(variables.get(name)?.as_deref()?);
            rest = after;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    Some(expanded)
}

/// As JSON, for `--output json`.
#[must_use]
pub fn to_json(explanation: &Explanation) -> Value {
    json!({
        "namespace": explanation.pod.namespace(),
        "pod": explanation.pod.name(),
        "source": explanation.source,
        "because": explanation.because,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource};

    use super::*;
    use crate::agent::{plan::MacRule, trace::Source};

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
        let config = parsed(&container(&env, &["agent"])).unwrap().0.config("edge");
        let services: Vec<String> = config.service_cidrs.iter().map(ToString::to_string).collect();
        assert_eq!((services, config.mac_rule), (vec!["10.96.0.0/12".to_owned()], MacRule::Derived));
        assert_eq!(config.store, ObjectKey::new("edge", "acme-cgw-binds"));

        let args = [
            "agent",
            "--node-name",
            "$(NODE_NAME)",
            "--service-cidr=10.0.0.0/16",
            "--exclude-cidr",
            "10.9.0.0/16",
        ];
        let config = parsed(&container(&env, &args)).unwrap().0.config("edge");
        let networks = |list: &[ipnet::Ipv4Net]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(networks(&config.service_cidrs), ["10.0.0.0/16"]);
        assert_eq!(networks(&config.exclude_cidrs), ["10.9.0.0/16"]);
        assert!(parsed(&container(&[("PERIMETER_DRIVER", "ebpf")], &["agent"])).is_err());
    }

    #[test]
    fn a_flag_that_decides_is_named_if_another_object_has_its_value() {
        let referring = |name: &str| EnvVar {
            name: name.to_owned(),
            value_from: Some(EnvVarSource::default()),
            ..EnvVar::default()
        };
        let of = |variables: &[&str], args: &[&str]| {
            let literal = [("SERVICES", "10.96.0.0/12"), ("PERIMETER_SERVICE_CIDR", "$(SERVICES)")];
            let mut container = container(&literal, args);
            container.env.get_or_insert_default().extend(variables.iter().copied().map(referring));
            container
        };
        let networks = |args: &agent::args::Args| {
            args.config("edge").service_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        // These do not decide.
        for args in [
            &["agent", "--admin-address=$(HOST_IP):9480", "--node-name=$(HOST_IP)"][..],
            &["agent", "--admin-address", "$(HOST_IP):9480"],
        ] {
            let (args, unknown) = parsed(&of(&["HOST_IP"], args)).unwrap();
            assert_eq!((networks(&args), unknown), (vec!["10.96.0.0/12".to_owned()], None));
        }
        let is_named = |container: &Container, flag: &str| {
            let (_, unknown) = parsed(container).unwrap();
            assert!(unknown.as_ref().is_some_and(|unknown| unknown.starts_with(flag)), "{unknown:?}");
        };
        is_named(&of(&["PERIMETER_EXCLUDE_CIDR"], &["agent"]), "--exclude-cidr: ");
        is_named(&of(&["CIDR"], &["agent", "--cluster-cidr", "$(CIDR)"]), "--cluster-cidr: ");
        let env_from = Some(vec![EnvFromSource::default()]);
        is_named(
            &Container { env_from, ..of(&[], &["agent"]) },
            "--driver, --cluster-cidr, --exclude-cidr, ",
        );
        // Without this one there is no explanation.
        let error = parsed(&of(&["CIDR"], &["agent", "--service-cidr=$(CIDR)"])).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("--service-cidr: "), "{error:#}");
        let known = parsed(&of(&[], &["agent", "--service-cidr=$(SERVICES)", "--binds-service=$$(A)"]));
        let (args, unknown) = known.unwrap();
        assert_eq!((networks(&args), unknown), (vec!["10.96.0.0/12".to_owned()], None));
        assert_eq!(args.own.binds_service, "$(A)");
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
        let node = Source::Node { node: "n1".to_owned(), ip: None };
        assert_eq!(json!(node), json!({"type": "Node", "node": "n1", "address": null}));
        assert_eq!(json!(Source::NoNetwork), json!({"type": "NoNetwork"}));
    }
}
