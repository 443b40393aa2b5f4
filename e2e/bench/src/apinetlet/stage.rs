//! Two namespaces with many objects.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use apinetlet::api::{apinet, source};
use apinetlet::apply::Body;
use apinetlet::names::Flavor;
use e2e::ironcore::Ironcore;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

const SOURCE: &str = "networking.ironcore.dev";
const APINET: &str = "core.apinet.ironcore.dev";
/// Requests at a time, to fill the namespaces.
const AT_ONCE: usize = 16;
const POLL: Duration = Duration::from_millis(100);

pub(super) struct Stage {
    client: Client,
    kubeconfig: PathBuf,
    source: String,
    apinet: String,
}

impl Stage {
    pub(super) async fn new(ironcore: &Ironcore) -> Result<Stage> {
        let client = ironcore.control_plane.client();
        let source = ironcore.control_plane.namespace("source").await?;
        let apinet = ironcore.control_plane.namespace("apinet").await?;
        let kubeconfig = ironcore.control_plane.kubeconfig().to_owned();
        Ok(Stage { client, kubeconfig, source, apinet })
    }

    pub(super) fn flags(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig.display();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--api-net-kubeconfig={kubeconfig}"),
            format!("--namespace={}", self.source),
            format!("--api-net-namespace={}", self.apinet),
        ]
    }

    fn api(&self, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let namespace = if group == SOURCE { &self.source } else { &self.apinet };
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    fn networks(&self) -> Api<DynamicObject> {
        self.api(SOURCE, "Network", "networks")
    }

    fn interfaces(&self, group: &str) -> Api<DynamicObject> {
        self.api(group, "NetworkInterface", "networkinterfaces")
    }

    async fn create(api: &Api<DynamicObject>, name: &str, mut object: Value) -> Result<DynamicObject> {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("metadata".to_owned(), json!({ "name": name }));
        }
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Everything that users and the MachinePool create.
    pub(super) async fn fill(&self, count: usize) -> Result<()> {
        let (networks, sources, apinets) =
            (self.networks(), self.interfaces(SOURCE), self.interfaces(APINET));
        let one = async |number: usize| {
            let network = Self::create(&networks, &format!("net-{number}"), json!({})).await?;
            let network = network.uid().context("a UID")?;
            let ip = address(number);
            let spec =
                json!({ "nodeRef": { "name": "node-1" }, "networkRef": { "name": network }, "ips": [ip] });
            let name = format!("nic-{number}");
            let apinet = Self::create(&apinets, &name, json!({ "spec": spec })).await?;
            let ready = Patch::Merge(json!({ "status": { "state": "Ready" } }));
            apinets.patch_status(&name, &PatchParams::default(), &ready).await?;
            let id =
                format!("ironcore-net://{}/{name}/node-1/{}", self.apinet, apinet.uid().context("a UID")?);
            let spec = json!({
                "networkRef": { "name": format!("net-{number}") }, "ipFamilies": ["IPv4"], "ips": [{ "value": ip }],
                "providerID": id,
            });
            Self::create(&sources, &name, json!({ "spec": spec })).await?;
            anyhow::Ok(json!({ "ip": ip, "targetRef": { "uid": name, "name": name, "providerID": id } }))
        };
        let destinations: Vec<Value> =
            stream::iter(0..count).map(one).buffered(AT_ONCE).try_collect().await?;
        let spec = json!({ "type": "Internal", "ipFamilies": ["IPv4"], "ips": [{ "value": "10.255.0.1" }], "networkRef": { "name": "net-0" } });
        let balancers = self.api(SOURCE, "LoadBalancer", "loadbalancers");
        Self::create(&balancers, "web", json!({ "spec": spec })).await?;
        let network = networks.get("net-0").await?.uid();
        let routing =
            json!({ "networkRef": { "name": "net-0", "uid": network }, "destinations": destinations });
        let routings = self.api(SOURCE, "LoadBalancerRouting", "loadbalancerroutings");
        Self::create(&routings, "web", routing).await?;
        Ok(())
    }

    /// Waits until everything is mapped.
    pub(super) async fn wait_mapped(&self, count: usize, longest: Duration) -> Result<()> {
        let begun = Instant::now();
        let is_available =
            |object: &DynamicObject| object.data.pointer("/status/state") == Some(&json!("Available"));
        loop {
            ensure!(begun.elapsed() < longest, "not everything is mapped after {longest:?}");
            tokio::time::sleep(POLL).await;
            let routings = self.api(APINET, "LoadBalancerRouting", "loadbalancerroutings");
            let routings = routings.list(&ListParams::default()).await?;
            let targets =
                |one: &DynamicObject| one.data.get("destinations").and_then(Value::as_array).map(Vec::len);
            if routings.items.first().and_then(targets) != Some(count) {
                continue;
            }
            let available = async |api: Api<DynamicObject>| {
                let list = api.list(&ListParams::default()).await?;
                anyhow::Ok(list.items.iter().filter(|object| is_available(object)).count() == count)
            };
            if available(self.networks()).await? && available(self.interfaces(SOURCE)).await? {
                return Ok(());
            }
        }
    }

    /// Changes the state of an apinet NetworkInterface; how long the source object takes to follow.
    pub(super) async fn change_state(&self, change: usize) -> Result<Duration> {
        let name = "nic-0";
        let (state, expected) =
            if change.is_multiple_of(2) { ("Error", "Error") } else { ("Ready", "Available") };
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let sources = self.interfaces(SOURCE);
        let version = sources.get(name).await?.resource_version().context("a version")?;
        let mut events = sources.watch(&parameters, &version).await?.boxed();
        let patch = Patch::Merge(json!({ "status": { "state": state } }));
        self.interfaces(APINET).patch_status(name, &PatchParams::default(), &patch).await?;
        let begun = Instant::now();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(object) = event
                && object.data.pointer("/status/state") == Some(&json!(expected))
            {
                return Ok(begun.elapsed());
            }
        }
        anyhow::bail!("the watch ended")
    }

    /// Removes the last target of the load balancer; how long the apinet routing takes to follow.
    pub(super) async fn remove_target(&self) -> Result<Duration> {
        let sources = self.api(SOURCE, "LoadBalancerRouting", "loadbalancerroutings").get("web").await?;
        let targets = sources.data.get("destinations").and_then(Value::as_array).context("targets")?;
        let targets = targets.split_last().context("a target")?.1;
        // Their types: to make JSON values of thousands of targets would take much of the measured time.
        let sources: Api<source::LoadBalancerRouting> =
            Api::namespaced_with(self.client.clone(), &self.source, &Flavor::Ironcore);
        let list = self.routings().list(&ListParams::default()).await?;
        let mut events = self.routing_events(list.metadata.resource_version).await?;
        let patch = Patch::Merge(json!({ "destinations": targets }));
        sources.patch("web", &PatchParams::default(), &patch).await?;
        let begun = Instant::now();
        until_targets(&mut events, targets.len()).await?;
        Ok(begun.elapsed())
    }

    /// Applies the apinet routing without its last target, as apinetlet would; how long until the event. apinetlet does not run meanwhile.
    pub(super) async fn apply_without_target(&self) -> Result<Duration> {
        let list = self.routings().list(&ListParams::default()).await?;
        let mut events = self.routing_events(list.metadata.resource_version).await?;
        let mut routing = list.items.into_iter().next().context("a routing")?;
        routing.metadata = ObjectMeta { name: routing.metadata.name, ..ObjectMeta::default() };
        routing.destinations.pop().context("a target")?;
        let name = routing.name_any();
        let parameters = PatchParams::apply(Flavor::Ironcore.names().field_manager.name()).force();
        let begun = Instant::now();
        let body = Body::new(&routing, Flavor::Ironcore);
        self.routings().patch(&name, &parameters, &Patch::Apply(body)).await?;
        until_targets(&mut events, routing.destinations.len()).await?;
        Ok(begun.elapsed())
    }

    fn routings(&self) -> Api<apinet::LoadBalancerRouting> {
        Api::namespaced_with(self.client.clone(), &self.apinet, &Flavor::Ironcore)
    }

    async fn routing_events(&self, version: Option<String>) -> Result<RoutingEvents> {
        let version = version.context("a version")?;
        Ok(self.routings().watch(&WatchParams::default(), &version).await?.boxed())
    }
}

type RoutingEvents = BoxStream<'static, kube::Result<WatchEvent<apinet::LoadBalancerRouting>>>;

/// Waits for the event of an apinet routing with so many targets.
async fn until_targets(events: &mut RoutingEvents, count: usize) -> Result<()> {
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Modified(object) = event
            && object.destinations.len() == count
        {
            return Ok(());
        }
    }
    anyhow::bail!("the watch ended")
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256)
}
