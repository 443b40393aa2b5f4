//! The objects of a source namespace and of its apinet namespace, with a stand-in for the MachinePool of ironcore and for metalnetlet.
//!
//! The MachinePool creates the apinet NetworkInterface of each source NetworkInterface of a machine, and writes its provider ID.
//! metalnetlet configures it on the Node, and reports the state.

use anyhow::{Context as _, Result};
use apinetlet::api::{ApiKind, ApiNetKind, SourceKind, apinet, source};
use apinetlet::names::Flavor;
use apinetlet::provider_id::{InterfaceId, NetworkId};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::wait::until;

/// The two namespaces.
#[derive(Clone)]
pub struct MachinePool {
    client: Client,
    flavor: Flavor,
    source: String,
    apinet: String,
}

impl MachinePool {
    /// The client is that of an administrator of both clusters.
    pub fn new(client: Client, flavor: Flavor, source: &str, apinet: &str) -> MachinePool {
        MachinePool { client, flavor, source: source.to_owned(), apinet: apinet.to_owned() }
    }

    /// Source objects of a kind.
    pub fn source<K: SourceKind>(&self) -> Api<K> {
        Api::namespaced_with(self.client.clone(), &self.source, &self.flavor)
    }

    /// apinet objects of a kind.
    pub fn apinet<K: ApiNetKind>(&self) -> Api<K> {
        Api::namespaced_with(self.client.clone(), &self.apinet, &self.flavor)
    }

    /// Creates the apinet interface of a source interface on a Node, and sets its provider ID.
    ///
    /// # Errors
    /// The source interface does not exist, its Network gets no provider ID, or an API server refuses.
    pub async fn attach(&self, interface: &str, node: &str) -> Result<apinet::NetworkInterface> {
        let sources = self.source::<source::NetworkInterface>();
        let network = sources.get(interface).await?.spec.network_ref.name;
        let network = until("the provider ID of the Network", async || {
            let network = self.source::<source::Network>().get(&network).await?;
            Ok(NetworkId::parse(self.flavor, &network.spec.provider_id).ok())
        })
        .await?;
        let spec = json!({
            "nodeRef": { "name": node }, "networkRef": { "name": network.name },
            "ips": self.ips(interface).await?,
        });
        let name = machine_interface(interface);
        let created =
            apply(&self.apinet::<apinet::NetworkInterface>(), &name, json!({}), json!({ "spec": spec }))
                .await?;
        let uid = created.uid().context("a created object has a UID")?;
        let id = InterfaceId { namespace: self.apinet.clone(), name, node: node.to_owned(), uid };
        self.set_provider_id(interface, &id.display(self.flavor).to_string()).await?;
        Ok(created)
    }

    /// Deletes the apinet interface of a source interface, as at the end of its machine.
    ///
    /// # Errors
    /// One of them does not exist, or an API server refuses.
    pub async fn detach(&self, interface: &str) -> Result<()> {
        self.set_provider_id(interface, "").await?;
        let apinets = self.apinet::<apinet::NetworkInterface>();
        apinets.delete(&machine_interface(interface), &DeleteParams::default()).await?;
        Ok(())
    }

    async fn set_provider_id(&self, interface: &str, id: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "providerID": id } }));
        let sources = self.source::<source::NetworkInterface>();
        sources.patch(interface, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The addresses of a source interface. apinetlet does not read them, so they are not in its type.
    async fn ips(&self, interface: &str) -> Result<Vec<String>> {
        let request = http::Request::get(format!(
            "/apis/{}/namespaces/{}/networkinterfaces/{interface}",
            self.flavor.names().networking_version,
            self.source
        ));
        let object: Value = self.client.request(request.body(Vec::new())?).await?;
        let ips = object.pointer("/spec/ips").and_then(Value::as_array).into_iter().flatten();
        let value = |ip: &Value| Some(ip.get("value")?.as_str()?.to_owned());
        ips.map(|ip| value(ip).with_context(|| format!("{interface} has an address without a value: {ip}")))
            .collect()
    }

    /// Sets the state of the apinet interface, and reports its public addresses as configured.
    ///
    /// # Errors
    /// It does not exist, or the API server refuses.
    pub async fn set_state(&self, interface: &apinet::NetworkInterface, state: &str) -> Result<()> {
        let (apinets, name) = (self.apinet::<apinet::NetworkInterface>(), interface.name_any());
        let observed = apinets.get(&name).await?;
        let public: Vec<_> = observed.spec.public_ips.into_iter().filter_map(|one| one.ip).collect();
        let patch = Patch::Merge(json!({ "status": { "state": state, "publicIPs": public } }));
        apinets.patch_status(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// The name of the apinet interface that the MachinePool creates for a source interface.
fn machine_interface(interface: &str) -> String {
    format!("machine-{interface}")
}

/// Creates an object, or changes it. `body`: all fields but the metadata.
///
/// # Errors
/// The API server refuses.
pub async fn apply<K: ApiKind>(api: &Api<K>, name: &str, metadata: Value, body: Value) -> Result<K> {
    // `/apis/<group>/<version>/...`
    let group_version: Vec<_> = api.resource_url().split('/').skip(2).take(2).collect();
    // It is the same in all flavors.
    let kind = K::kind(&Flavor::Ironcore);
    let mut object = json!({ "apiVersion": group_version.join("/"), "kind": kind, "metadata": metadata });
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), name.into());
    }
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), body) {
        object.extend(fields);
    }
    let parameters = PatchParams::apply("e2e").force();
    Ok(api.patch(name, &parameters, &Patch::Apply(object)).await?)
}
