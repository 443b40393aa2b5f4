//! The Go apinetlet v0.3.0 and this one: the same inputs lead to the same objects, and each takes the place of the other.

mod deployment;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apinetlet::api::network_policy::SourceNetworkPolicy;
use apinetlet::api::{apinet, source};
use e2e::natgw::run;
use e2e::program::{Program, free_port};
use e2e::wait::until;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::environment::{TestEnv, create, create_with, labels, patch, stable, wait};

const SOURCE_KINDS: [&str; 6] =
    ["networks", "networkinterfaces", "virtualips", "loadbalancers", "natgateways", "networkpolicies"];
const APINET_KINDS: [&str; 9] = [
    "networks",
    "networkinterfaces",
    "ips",
    "loadbalancers",
    "loadbalancerroutings",
    "natgateways",
    "natgatewayautoscalers",
    "networkpolicies",
    "networkpolicyrules",
];

/// The objects of both sides, by kind and name.
type Objects = BTreeMap<String, Value>;

impl TestEnv {
    /// The Go program with the same kubeconfigs, and without its limit of five requests a second.
    fn upstream(&self) -> Program {
        let path = e2e::assets::ironcore().unwrap().join("ironcore-net-apinetlet");
        let (source, apinet) = self.kubeconfigs();
        let mut args = vec![
            format!("--kubeconfig={source}"),
            format!("--api-net-kubeconfig={apinet}"),
            format!("--namespace={}", self.source),
            format!("--api-net-namespace={}", self.apinet),
            format!("--health-probe-bind-address=127.0.0.1:{}", free_port().unwrap()),
        ];
        args.extend(
            ["--qps=500", "--burst=500", "--api-net-qps=500", "--api-net-burst=500"].map(str::to_owned),
        );
        Program::at(path).args(args).start().unwrap()
    }

    async fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        let sides = [
            ("networking.ironcore.dev", &self.source, &SOURCE_KINDS[..]),
            ("core.apinet.ironcore.dev", &self.apinet, &APINET_KINDS[..]),
        ];
        for (group, namespace, kinds) in sides {
            for kind in kinds {
                for object in self.list(group, namespace, kind).await {
                    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                    objects.insert(format!("{} {kind} {name}", group.split('.').next().unwrap()), object);
                }
            }
        }
        objects
    }

    /// One of each kind, with references between them.
    pub async fn populate(&self) {
        self.network("net").await;
        self.network("empty").await;
        create(&self.source::<source::VirtualIp>(), "vip", json!({ "type": "Public", "ipFamily": "IPv4" }))
            .await;
        let gateway = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net" } });
        create(&self.source::<source::NatGateway>(), "nat", gateway).await;
        let spec = json!({
            "type": "Public", "ipFamilies": ["IPv4", "IPv6"], "networkRef": { "name": "net" },
            "ports": [{ "protocol": "TCP", "port": 80 }],
        });
        create(&self.source::<source::LoadBalancer>(), "web", spec).await;
        let spec = json!({
            "type": "Internal", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" }, "ips": [{ "value": "10.1.0.1" }],
        });
        create(&self.source::<source::LoadBalancer>(), "internal", spec).await;
        let network = self.source::<source::Network>().get("net").await.unwrap();
        let reference = json!({ "name": "net", "uid": network.uid().unwrap() });
        let sources = self.source::<source::NetworkInterface>();
        for (name, ip) in [("nic-1", "10.0.2.1"), ("nic-2", "10.0.2.2")] {
            let spec =
                json!({ "networkRef": { "name": "net" }, "ipFamilies": ["IPv4"], "ips": [{ "value": ip }] });
            create_with(&sources, name, json!({ "labels": { "app": name } }), json!({ "spec": spec })).await;
            let interface = self.attach(name, "node-1").await;
            self.claimed(name, &interface.name_any()).await;
        }
        patch(&sources, "nic-1", json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "vip" } } } }))
            .await;
        let apinets = self.apinet::<apinet::NetworkInterface>();
        wait(&apinets, "machine-nic-1", "a public address", |one| one.spec.public_ips.len() == 1).await;
        for name in ["machine-nic-1", "machine-nic-2"] {
            let interface = apinets.get(name).await.unwrap();
            self.set_state(&interface, "Ready").await;
        }
        let destination = |name: &str, ip: &str, id: &str| {
            json!({
                "ip": ip, "targetRef": { "uid": name, "name": name, "providerID": id },
            })
        };
        let first = sources.get("nic-1").await.unwrap().spec.provider_id;
        let body =
            json!({ "networkRef": reference, "destinations": [destination("nic-1", "10.0.2.1", &first)] });
        create_with(&self.source::<source::LoadBalancerRouting>(), "web", json!({}), body).await;
        let spec = json!({
            "networkRef": { "name": "net" }, "networkInterfaceSelector": { "matchLabels": { "app": "nic-1" } },
            "policyTypes": ["Ingress"],
            "ingress": [{
                // With its end, which the Go program leaves out if the policy does.
                "ports": [{ "protocol": "TCP", "port": 443, "endPort": 443 }],
                "from": [
                    { "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "nic-2" } } },
                    { "ipBlock": { "cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"] } },
                ],
            }],
        });
        create(&self.source::<SourceNetworkPolicy>(), "policy", spec).await;
    }

    /// Waits until the apinet interface names the source interface.
    async fn claimed(&self, source: &str, interface: &str) {
        let (sources, apinets) =
            (self.source::<source::NetworkInterface>(), self.apinet::<apinet::NetworkInterface>());
        let uid = sources.get(source).await.unwrap().uid();
        // The Go program looks for the apinet object at events of the source object only, and its cache may get the apinet object
        // after the provider ID: it needs one more event then.
        let touch = async |value: Value| {
            patch(&sources, source, json!({ "metadata": { "annotations": { "touched": value } } })).await;
        };
        until("a claim", async || {
            let labels = labels(&apinets.get(interface).await?);
            if labels.get("apinetlet.ironcore.dev/networkinterface-uid").cloned() == uid {
                return Ok(Some(()));
            }
            touch(jiff::Timestamp::now().to_string().into()).await;
            Ok(None)
        })
        .await
        .unwrap();
        touch(Value::Null).await;
    }

    /// Waits until everything is mapped.
    pub async fn converged(&self) {
        let networks = self.source::<source::Network>();
        for name in ["net", "empty"] {
            wait(&networks, name, "Available", |one| one.status.state == "Available").await;
        }
        let balancers = self.source::<source::LoadBalancer>();
        wait(&balancers, "web", "two addresses", |one| one.status.ips.len() == 2).await;
        wait(&balancers, "internal", "its address", |one| one.status.ips.len() == 1).await;
        wait(&self.source::<source::NatGateway>(), "nat", "an address", |one| one.status.ips.len() == 1)
            .await;
        let sources = self.source::<source::NetworkInterface>();
        wait(&sources, "nic-1", "its public address", |one| one.status.virtual_ip.is_some()).await;
        wait(&sources, "nic-2", "Available", |one| one.status.state == "Available").await;
        let uid = balancers.get("web").await.unwrap().uid().unwrap();
        let routings = self.apinet::<apinet::LoadBalancerRouting>();
        wait(&routings, &uid, "a target", |one| one.destinations.len() == 1).await;
        until("a rule", async || {
            let rules = self.list("core.apinet.ironcore.dev", &self.apinet, "networkpolicyrules").await;
            Ok(rules.iter().any(|rule| !rule["targets"].as_array().is_none_or(Vec::is_empty)).then_some(()))
        })
        .await
        .unwrap();
    }
}

/// Waits until no program has changed an object for a while.
async fn settled(env: &TestEnv) {
    stable("the last change", Duration::from_secs(3), async || Ok(env.objects().await)).await;
}

/// The objects of one run, comparable with those of another: IDs are replaced by the names of their objects, and values that
/// differ between any two runs are removed.
fn normalized(env: &TestEnv, objects: &Objects) -> BTreeMap<String, Value> {
    let mut names = BTreeMap::from([
        (env.source.clone(), "SOURCE".to_owned()),
        (env.apinet.clone(), "APINET".to_owned()),
    ]);
    // Source objects first: their UIDs are the names of their counterparts.
    let (source, apinet): (Vec<_>, Vec<_>) =
        objects.iter().partition(|(key, _)| key.starts_with("networking"));
    for (key, object) in source.into_iter().chain(apinet) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let (side, kind) = key.rsplit_once(' ').unwrap().0.split_once(' ').unwrap();
        let name = text("/metadata/name").unwrap();
        let name = names.get(&name).cloned().unwrap_or(name);
        names.insert(text("/metadata/uid").unwrap(), format!("<{side} {kind} {name}>"));
        if kind == "networks"
            && side == "core"
            && let Some(id) = text("/spec/id")
        {
            names.insert(id, format!("<ID of {name}>"));
        }
    }
    // An address is anything that the API server has allocated.
    let replace = |text: &str| {
        let mut text = text.to_owned();
        for (id, name) in &names {
            text = text.replace(id, name);
        }
        let is_allocated = e2e::ironcore::PUBLIC_PREFIXES.iter().any(|prefix| {
            let prefix = prefix.split_once('/').unwrap().0;
            text.starts_with(prefix.trim_end_matches('0').trim_end_matches(':'))
        });
        if is_allocated && !text.contains('/') { "<ADDRESS>".to_owned() } else { text }
    };
    let mut result = BTreeMap::new();
    for (key, object) in objects {
        let mut object = replaced(object, &replace);
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
            metadata.remove(field);
        }
        // ironcore's own controllers add theirs at the same time.
        if let Some(finalizers) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
            finalizers.sort_by_key(Value::to_string);
        }
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("lastStateTransitionTime");
        }
        // The autoscaler gives random names.
        for ip in object.pointer_mut("/spec/ips").and_then(Value::as_array_mut).into_iter().flatten() {
            if key.contains("natgateways") {
                ip["name"] = "<RANDOM>".into();
            }
        }
        // The API server creates it with a random name, and its labels have the address.
        let is_ephemeral = object["metadata"].get("generateName").is_some();
        if !is_ephemeral {
            result.insert(replace(key), object);
        }
    }
    result
}

fn replaced(value: &Value, replace: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(replace(text)),
        Value::Array(items) => Value::Array(items.iter().map(|item| replaced(item, replace)).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (replace(key), replaced(value, replace)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// The differences, each with its place.
fn differences(place: &str, a: Option<&Value>, b: Option<&Value>, found: &mut Vec<String>) {
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter()
                .for_each(|key| differences(&format!("{place}/{key}"), a.get(key), b.get(key), found));
        }
        (a, b) if a == b => {}
        (a, b) => {
            let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            found.push(format!("{place}: Go {}, ours {}", text(a), text(b)));
        }
    }
}

/// Where the objects of the two programs differ, and why.
const INTENDED: [(&str, &str); 2] = [
    ("apinetlet.ironcore.dev/source-cluster", "ours marks its objects with the source cluster"),
    ("apinetlet.ironcore.dev/copied-labels", "ours knows which labels it has copied, and removes them again"),
];

#[tokio::test]
async fn the_same_inputs_lead_to_the_same_objects() {
    let run = async |ours: bool| {
        let env = TestEnv::new().await;
        let program = if ours { env.start(&["--source-name-in=labels"]).await } else { env.upstream() };
        env.populate().await;
        env.converged().await;
        settled(&env).await;
        (env, program)
    };
    let ((go, _go_program), (ours, _our_program)) = tokio::join!(run(false), run(true));
    // On a busy machine, the controllers of ironcore-net write after a pause of seconds.
    let last = RefCell::new(Vec::new());
    let compared = until("the same objects", async || {
        let (of_go, of_ours) =
            (normalized(&go, &go.objects().await), normalized(&ours, &ours.objects().await));
        let mut found = Vec::new();
        let keys: BTreeSet<_> = of_go.keys().chain(of_ours.keys()).collect();
        for key in &keys {
            differences(key, of_go.get(*key), of_ours.get(*key), &mut found);
        }
        let (intended, unintended): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|difference| INTENDED.iter().any(|(place, _)| difference.contains(place)));
        let is_same = unintended.is_empty();
        last.replace(unintended);
        Ok(is_same.then_some((keys.len(), intended)))
    });
    let Ok((objects, intended)) = compared.await else { panic!("{:#?}", last.borrow()) };
    println!("{objects} objects compared, {} intended differences: {intended:#?}", intended.len());
    assert!(objects >= 20, "{objects}");
}

/// Identity and allocations of each object.
fn identities(objects: &Objects) -> BTreeMap<&str, Value> {
    let identity = |object: &Value| {
        let field = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
        json!({
            "uid": field("/metadata/uid"), "id": field("/spec/id"), "providerID": field("/spec/providerID"),
            "ip": field("/spec/ip"), "ips": field("/spec/ips"), "publicIPs": field("/spec/publicIPs"),
            "state": field("/status/state"), "addresses": field("/status/ips"), "virtualIP": field("/status/virtualIP"),
        })
    };
    objects.iter().map(|(key, object)| (key.as_str(), identity(object))).collect()
}

#[tokio::test]
async fn each_takes_the_place_of_the_other_and_nothing_is_recreated() {
    let env = TestEnv::new().await;
    let go = env.upstream();
    env.populate().await;
    env.converged().await;
    // A write after the dry run would make a step of its plan outdated.
    settled(&env).await;
    drop(go);
    let before = env.objects().await;
    env.clear_requests();

    let (code, planned) = run(&env.launch(&["--source-name-in=labels", "--dry-run"])).await.unwrap();
    assert_eq!((code, env.writes()), (0, Vec::new()), "{planned}");
    let is_step =
        |line: &&str| line.split_once(". ").is_some_and(|(number, _)| number.trim().parse::<u32>().is_ok());
    let steps = planned.lines().filter(is_step).count();

    let ours = env.start(&["--source-name-in=labels"]).await;
    super::mapping::settled(&ours).await;
    env.converged().await;
    let after = env.objects().await;
    assert_eq!(identities(&before), identities(&after));
    let deleted: Vec<_> = env.writes().into_iter().filter(|write| write.starts_with("DELETE")).collect();
    assert_eq!(deleted, [""; 0]);
    println!("{} objects kept with {} writes", after.len(), env.writes().len());
    assert_eq!(env.writes().len(), steps, "{planned}");
    // It works: a new object is mapped.
    env.network("ours").await;
    wait(&env.source::<source::Network>(), "ours", "Available", |one| one.status.state == "Available").await;
    drop(ours);

    let before = env.objects().await;
    env.clear_requests();
    let _go = env.upstream();
    env.network("go").await;
    wait(&env.source::<source::Network>(), "go", "Available", |one| one.status.state == "Available").await;
    env.converged().await;
    let mut after = env.objects().await;
    after.retain(|key, _| before.contains_key(key));
    assert_eq!(identities(&before), identities(&after));
    let deleted: Vec<_> = env.writes().into_iter().filter(|write| write.starts_with("DELETE")).collect();
    assert_eq!(deleted, [""; 0]);
}
