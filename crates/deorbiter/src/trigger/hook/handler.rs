//! Handles a request of Cluster API: reads the Cluster and its Deorbits, and creates or aborts one.

use common::api::deorbit;
use common::api::deorbit_binding::DeorbitTemplate;
use common::metrics::register;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::core::Status;
use kube::discovery;
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::Value;

use super::super::apply;
use super::super::observe::read_deorbit;
use super::super::snapshot::Deorbit;
use super::super::template::{Template, manifest};
use super::cluster::{self, Cluster, Infrastructure, OPENSTACK};
use super::decision::{Decision, decide, waiting};
use super::protocol::{API_VERSION, Named, Request, Response};
use crate::error::Error;
use crate::names;

/// How often a request is tried while its Deorbit changes: one that runs writes its status every few seconds.
const ATTEMPTS: usize = 5;

/// Handles requests.
#[derive(Clone)]
pub struct Handler {
    client: Client,
    template: Template,
    responses: IntCounterVec,
}

/// Why a request failed.
enum Trouble {
    /// The message for the Cluster's condition.
    Refused(String),
    /// The API server refused; its message goes to the log, since it may differ from call to call.
    Api(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Api(error)
    }
}

impl Handler {
    /// With the template of Deorbits. The responses are counted in the registry.
    ///
    /// # Errors
    /// The metric's name is registered already.
    pub fn new(
        client: Client,
        template: Template,
        registry: &Registry,
    ) -> Result<Handler, prometheus::Error> {
        let responses = register(
            registry,
            IntCounterVec::new(
                Opts::new(
                    "deorbiter_hook_responses_total",
                    "Answers to Cluster API's BeforeClusterDelete: wait, go_on, refused.",
                ),
                &["response"],
            )?,
        )?;
        for response in ["wait", "go_on", "refused"] {
            responses.with_label_values(&[response]);
        }
        Ok(Handler { client, template, responses })
    }

    /// The response to the body of a BeforeClusterDelete request.
    pub async fn before_cluster_delete(&self, body: &[u8]) -> Response {
        let response = match self.respond(body).await {
            Ok(response) => response,
            Err(Trouble::Refused(why)) => Response::refuse(why),
            Err(Trouble::Api(error)) => {
                tracing::warn!(%error, "Cluster API's hook could not be answered");
                Response::refuse("deorbiter could not do what it must; its log says why".to_owned())
            }
        };
        self.responses.with_label_values(&[response.word()]).inc();
        response
    }

    async fn respond(&self, body: &[u8]) -> Result<Response, Trouble> {
        let request: Request = serde_json::from_slice(body)
            .map_err(|error| Trouble::Refused(format!("the request is no JSON of Cluster API: {error}")))?;
        if request.api_version != API_VERSION || request.kind != "BeforeClusterDeleteRequest" {
            return Err(Trouble::Refused(format!(
                "the request is no BeforeClusterDeleteRequest of {API_VERSION}"
            )));
        }
        let mut attempt = 1;
        loop {
            match self.act(&request.cluster).await {
                // Cluster API repeats a request only after its growing backoff, and the run would go on deleting meanwhile.
                Err(Trouble::Api(Error::Outdated(_))) if attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Reads the Cluster and its Deorbits, and acts once. [`Error::Outdated`]: the Deorbit has changed since.
    async fn act(&self, named: &Named) -> Result<Response, Trouble> {
        let Some((cluster, object)) = self.cluster(named).await? else {
            return Ok(Response::go_on("the Cluster is gone".to_owned()));
        };
        let namespace = cluster.object.namespace.clone().unwrap_or_default();
        let deorbits = self.deorbits(&namespace).await?;
        match decide(&cluster, &deorbits) {
            Decision::Respond(response) => Ok(response),
            Decision::Create(name) => {
                let id = format!("{namespace}/{name}");
                let manifest = self.manifest(&cluster, object, &namespace, &name).await?;
                match apply::create(&self.client, &format!("create Deorbit {id}"), &namespace, &manifest)
                    .await
                {
                    Ok(_) => {
                        tracing::info!(cluster = %cluster.object, deorbit = id, "Cluster API deletes a cluster: its Deorbit begins")
                    }
                    // Another replica handles a request at the same time; the next request reads its Deorbit.
                    Err(Error::Outdated(_)) => {}
                    Err(error) => {
                        return Err(match error.refusal() {
                            // Only the user who reads it in the Cluster's condition can fix it.
                            Some(why) => cannot_be_made(&cluster, why),
                            None => error.into(),
                        });
                    }
                }
                Ok(Response::wait(waiting(&id)))
            }
            Decision::Abort { name, uid, response } => {
                let id = format!("{namespace}/{name}");
                let what = format!("abort Deorbit {id} by deleting it");
                apply::abort(&self.client, &what, &namespace, &name, &uid).await?;
                tracing::info!(cluster = %cluster.object, deorbit = id, "a Cluster is protected: its Deorbit is aborted");
                Ok(response)
            }
        }
    }

    /// The Cluster of a request as the API server has it; None if it is gone.
    async fn cluster(&self, named: &Named) -> Result<Option<(Cluster, Value)>, Trouble> {
        let names = [&named.metadata.namespace, &named.metadata.name, &named.metadata.uid];
        let is_name = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        };
        let refused = || Trouble::Refused("the request names no Cluster of Cluster API".to_owned());
        if !names.into_iter().all(|name| is_name(name)) || !matches!(named.kind.as_str(), "" | "Cluster") {
            return Err(refused());
        }
        let kind = match named.api_version.split_once('/') {
            Some((names::CLUSTER_API_GROUP, version)) if is_name(version) => {
                let kind = GroupVersionKind::gvk(names::CLUSTER_API_GROUP, version, "Cluster");
                ApiResource::from_gvk_with_plural(&kind, "clusters")
            }
            // Since 1.11, Cluster API converts the Cluster, which leaves it without its type.
            None if named.api_version.is_empty() => self.served(names::CLUSTER_API_GROUP, "Cluster").await?,
            _ => return Err(refused()),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &named.metadata.namespace, &kind);
        let what = format!("read Cluster {}/{}", named.metadata.namespace, named.metadata.name);
        let found = match api.get(&named.metadata.name).await {
            Ok(found) => found,
            // Any other 404 is about the path: a version that is not served any more, or a CustomResourceDefinition that is not served yet.
            Err(kube::Error::Api(status)) if names_object(&status, &named.metadata.name) => return Ok(None),
            Err(cause) => return Err(Error::kubernetes(what)(cause).into()),
        };
        if found.metadata.uid.as_deref() != Some(named.metadata.uid.as_str()) {
            return Err(Trouble::Refused("there is another Cluster of that name by now".to_owned()));
        }
        let object = serde_json::to_value(&found).unwrap_or_default();
        let cluster = cluster::read(&kind.api_version, &object);
        let cluster = cluster.ok_or_else(|| Trouble::Refused("the Cluster cannot be read".to_owned()))?;
        Ok(Some((cluster, object)))
    }

    async fn deorbits(&self, namespace: &str) -> Result<Vec<Deorbit>, Trouble> {
        let api = Api::<deorbit::Deorbit>::namespaced(self.client.clone(), namespace);
        let what = format!("list Deorbits of namespace {namespace}");
        let found = api.list(&ListParams::default()).await.map_err(Error::kubernetes(what))?;
        Ok(found.items.iter().filter_map(read_deorbit).collect())
    }

    async fn manifest(
        &self,
        cluster: &Cluster,
        mut object: Value,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Trouble> {
        let infrastructure = match &cluster.infrastructure {
            Some(infrastructure) => self.infrastructure(namespace, infrastructure).await?,
            None => Value::Null,
        };
        let identity = infrastructure.pointer("/spec/identityRef").cloned().unwrap_or_default();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("infrastructure".to_owned(), infrastructure);
        }
        let mut filled = self.template.fill(&object).map_err(|why| cannot_be_made(cluster, why))?;
        with_identity(&mut filled, &identity);
        Ok(manifest(filled, &cluster.object, "cluster-api", namespace, name))
    }

    /// A kind in the version that the API server recommends.
    async fn served(&self, group: &str, kind: &str) -> Result<ApiResource, Trouble> {
        let what = format!("look up {kind} of {group}");
        let found = discovery::group(&self.client, group).await.map_err(Error::kubernetes(what))?;
        let (resource, _) = found
            .recommended_kind(kind)
            .ok_or_else(|| Trouble::Refused(format!("the API server knows no {kind}")))?;
        Ok(resource)
    }

    async fn infrastructure(&self, namespace: &str, named: &Infrastructure) -> Result<Value, Trouble> {
        let kind = match &named.version {
            Some(version) => {
                let kind = GroupVersionKind::gvk(&named.group, version, &named.kind);
                ApiResource::from_gvk_with_plural(&kind, "openstackclusters")
            }
            None => self.served(&named.group, &named.kind).await?,
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let what = format!("read {OPENSTACK} {namespace}/{}", named.name);
        match api.get_opt(&named.name).await.map_err(Error::kubernetes(what))? {
            Some(found) => Ok(serde_json::to_value(&found).unwrap_or_default()),
            None => Err(Trouble::Refused(format!(
                "{OPENSTACK} {namespace}/{} is gone: its login is not known",
                named.name
            ))),
        }
    }
}

/// Whether a response reports that the object of this name does not exist.
fn names_object(status: &Status, name: &str) -> bool {
    status.is_not_found() && status.details.as_ref().is_some_and(|details| details.name == name)
}

fn cannot_be_made(cluster: &Cluster, why: impl std::fmt::Display) -> Trouble {
    Trouble::Refused(format!("the Deorbit of {} cannot be made: {why}", cluster.object))
}

/// Region and type of a login are copied, where the template names the OpenStackCluster's own and leaves them open: in another region
/// each ID would seem to be gone, and a ClusterIdentity is no Secret.
fn with_identity(filled: &mut DeorbitTemplate, identity: &Value) {
    let login = filled.spec.get_mut("openstack").and_then(|openstack| openstack.get_mut("identityRef"));
    let Some(login) = login.and_then(Value::as_object_mut) else { return };
    if login.get("name") != identity.get("name") {
        return;
    }
    for field in ["region", "type"] {
        let text = identity.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(text) = text {
            login.entry(field).or_insert_with(|| text.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::controller::tests::server;

    /// The response to a request about Cluster team/prod.
    async fn call(client: Client) -> Value {
        let template = super::super::template(None).unwrap();
        let handler = Handler::new(client, template, &Registry::new()).unwrap();
        let request = json!({ "apiVersion": API_VERSION, "kind": "BeforeClusterDeleteRequest", "cluster": {
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": { "name": "prod", "namespace": "team", "uid": "u" } } });
        let response = handler.before_cluster_delete(request.to_string().as_bytes()).await;
        serde_json::to_value(response).unwrap()
    }

    /// The response where the API server does not have the Cluster; `details`: of its 404.
    async fn response(details: Value) -> Value {
        let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "", "details": details });
        call(server(move |_| Some((404, status.clone())))).await
    }

    /// The response where the Cluster is protected, and its running Deorbit changes this many times between read and delete; the
    /// resourceVersion of each delete.
    async fn aborted(conflicts: usize) -> (Value, Vec<Value>) {
        let deletes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&deletes);
        let client = server(move |request| {
            let mut seen = seen.lock().unwrap();
            let (number, path) = (seen.len(), request.uri().path());
            let metadata = json!({ "name": names::deorbit("prod", "u"), "namespace": "team", "uid": "d",
                "resourceVersion": number.to_string(), "labels": { names::TARGET_UID_LABEL: "u" } });
            if request.method() == http::Method::DELETE {
                seen.push(request.body()["preconditions"]["resourceVersion"].clone());
                return Some(match number < conflicts {
                    true => (
                        409,
                        json!({ "kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict",
                            "message": "it has changed" }),
                    ),
                    false => (200, json!({ "kind": "Status", "status": "Success" })),
                });
            }
            let found = if path.ends_with("/clusters/prod") {
                json!({ "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                    "metadata": { "name": "prod", "namespace": "team", "uid": "u",
                        "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": { names::PROTECT: "true" } },
                    "spec": { "infrastructureRef": { "apiGroup": names::INFRASTRUCTURE_GROUP, "kind": OPENSTACK,
                        "name": "prod" } } })
            } else if path.ends_with("/deorbits") {
                let deorbit = json!({ "apiVersion": names::API_VERSION, "kind": "Deorbit", "metadata": metadata,
                    "spec": { "inCluster": true } });
                json!({ "apiVersion": names::API_VERSION, "kind": "DeorbitList", "metadata": {}, "items": [deorbit] })
            } else {
                json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata })
            };
            Some((200, found))
        });
        let response = call(client).await;
        let deletes = deletes.lock().unwrap().clone();
        (response, deletes)
    }

    /// Cluster API would repeat the request only after its backoff, which grows to minutes.
    #[tokio::test]
    async fn the_abort_of_a_deorbit_that_writes_its_status_meanwhile_is_repeated_at_once() {
        let (response, deletes) = aborted(1).await;
        assert!(response["message"].as_str().unwrap().contains(names::PROTECT), "{response}");
        assert_eq!(deletes, ["0", "1"]);
        let (response, deletes) = aborted(usize::MAX).await;
        assert_eq!((&response["status"], deletes.len()), (&json!("Failure"), ATTEMPTS));
        assert!(response["message"].as_str().unwrap().contains("its log says why"), "{response}");
    }

    /// Cluster API deletes the servers after a success, with all that the cluster has in the cloud.
    #[tokio::test]
    async fn only_a_404_that_names_the_cluster_lets_cluster_api_go_on() {
        let gone = response(json!({ "name": "prod", "group": "cluster.x-k8s.io", "kind": "clusters" })).await;
        assert_eq!((&gone["status"], &gone["message"]), (&json!("Success"), &json!("the Cluster is gone")));
        for details in [json!({}), Value::Null] {
            assert_eq!(response(details).await["status"], "Failure", "the version is not served");
        }
    }

    #[test]
    fn region_and_type_of_the_identity_are_copied_and_replace_none() {
        let identity = json!({ "name": "a", "region": "north", "type": "ClusterIdentity" });
        let copied = |login: Value| {
            let mut filled = DeorbitTemplate {
                spec: json!({ "openstack": { "identityRef": login } }).as_object().unwrap().clone(),
                ..DeorbitTemplate::default()
            };
            with_identity(&mut filled, &identity);
            let login = &filled.spec["openstack"]["identityRef"];
            (login["region"].clone(), login["type"].clone())
        };
        assert_eq!(copied(json!({ "name": "a" })), ("north".into(), "ClusterIdentity".into()));
        let own = json!({ "name": "a", "region": "south", "type": "Secret" });
        assert_eq!(copied(own), ("south".into(), "Secret".into()));
        assert_eq!(copied(json!({ "name": "another" })), (Value::Null, Value::Null));
    }
}
