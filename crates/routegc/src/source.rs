//! The source of a policy and the store of its status: a RouteGC, or flags and a ConfigMap with their status.

use std::fmt;
use std::time::Duration;

use common::api::routegc::{ALLOW_ANNOTATION, RouteGC, RouteGCSpec, RouteGCStatus};
use common::cluster::error_chain;
use common::leader::Leadership;
use common::names;
use common::plan::Regarding;
use common::routes::StillDesired;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};

use crate::conflict::conflicts;
use crate::error::Error;
use crate::metrics::Series;

/// The name of the controller and of its field manager.
pub const CONTROLLER: &str = "routegc";

/// Prefix of the ConfigMap with the status of a policy of flags; the router's ID follows.
const STATE_PREFIX: &str = "routegc-";

/// Its key.
const STATE_KEY: &str = "status.json";

/// Timeout of the last read before a write to OpenStack: slightly longer than one request may take. With all retries of the client, the
/// list of routes that was read before it would be a minute old.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The source of one policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicySource {
    /// A RouteGC of routegc's namespace, by its name.
    Object(String),
    /// The flags.
    Flags,
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicySource::Object(name) => f.write_str(name),
            PolicySource::Flags => f.write_str("flags"),
        }
    }
}

/// A policy and its status, as they are now.
#[derive(Clone, Debug)]
pub struct Document {
    /// The desired state.
    pub spec: RouteGCSpec,
    /// The status of the reconciliations before.
    pub status: RouteGCStatus,
    /// ID of the router, once it is known: in the spec, in the status, or since it was observed. The next status records it.
    pub router: Option<String>,
    /// metadata.generation; None for flags.
    pub generation: Option<i64>,
    /// The hash of the removals that the user approved although they exceed the threshold.
    pub allow: Option<String>,
    /// The object of its Events.
    pub regarding: Regarding,
    stored: Stored,
}

#[derive(Clone, Debug)]
enum Stored {
    Object(Box<RouteGC>),
    State(Box<ConfigMap>),
}

impl PolicySource {
    /// Reads it from the API server, not from a cache, so that a decision uses the current object.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::is_gone`] if the RouteGC was deleted.
    pub async fn load(
        &self,
        client: &Client,
        namespace: &str,
        flags: Option<&RouteGCSpec>,
    ) -> Result<Document, Error> {
        match (self, flags) {
            (PolicySource::Object(name), _) => {
                let read = Api::<RouteGC>::namespaced(client.clone(), namespace).get(name).await;
                let object =
                    read.map_err(|cause| Error::Read { what: format!("RouteGC {namespace}/{name}"), cause })?;
                Ok(Document::object(object))
            }
            (PolicySource::Flags, Some(spec)) => {
                let name = state_name(spec.router_id.as_deref().unwrap_or_default());
                let read = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(&name).await;
                let map = read
                    .map_err(|cause| Error::Read { what: format!("ConfigMap {namespace}/{name}"), cause })?;
                Ok(Document::state(spec.clone(), map.unwrap_or_else(|| empty(namespace, &name))))
            }
            (PolicySource::Flags, None) => Err(Error::Policy("no router is given".to_owned())),
        }
    }

    /// The series of its metrics while it has not been read: then the router of an object is not known.
    #[must_use]
    pub fn series(&self, namespace: &str, flags: Option<&RouteGCSpec>) -> Series {
        let router = flags.and_then(|spec| spec.router_id.clone()).unwrap_or_default();
        let name = match self {
            PolicySource::Object(name) => name.clone(),
            PolicySource::Flags => state_name(&router),
        };
        Series { namespace: namespace.to_owned(), name, router }
    }
}

impl Document {
    fn object(object: RouteGC) -> Document {
        let status = object.status.clone().unwrap_or_default();
        Document {
            router: object.spec.router_id.clone().or_else(|| status.router_id.clone()),
            spec: object.spec.clone(),
            status,
            generation: object.metadata.generation,
            allow: annotation(&object.metadata),
            regarding: regarding("routegc.perimeter.dev/v1alpha1", "RouteGC", &object.metadata),
            stored: Stored::Object(Box::new(object)),
        }
    }

    fn state(spec: RouteGCSpec, map: ConfigMap) -> Document {
        let text = map.data.as_ref().and_then(|data| data.get(STATE_KEY));
        Document {
            router: spec.router_id.clone(),
            spec,
            // An unreadable status is dropped. Then all routes need their confirmations again, which is safe.
            status: text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            generation: None,
            allow: annotation(&map.metadata),
            regarding: regarding("v1", "ConfigMap", &map.metadata),
            stored: Stored::State(Box::new(map)),
        }
    }

    /// The series of its metrics.
    #[must_use]
    pub fn series(&self) -> Series {
        let Regarding { namespace, name, .. } = self.regarding.clone();
        Series {
            namespace: namespace.unwrap_or_default(),
            name,
            router: self.router.clone().unwrap_or_default(),
        }
    }

    /// Checks before a removal that this process leads, and that the policy is unchanged: the RouteGC exists with the same spec and the
    /// same approval, is not being deleted, and no other one covers the same routes. Flags cannot change.
    #[must_use]
    pub fn still_desired(&self, client: &Client, leadership: &Leadership) -> StillDesired {
        let read = match &self.stored {
            Stored::Object(object) => Some(object.metadata.clone()),
            Stored::State(_) => None,
        };
        let (client, leadership) = (client.clone(), leadership.clone());
        StillDesired::new(move || {
            let (client, leadership, read) = (client.clone(), leadership.clone(), read.clone());
            async move {
                let unchanged = match read {
                    Some(read) => is_unchanged(client, read).await?,
                    None => true,
                };
                // Last: the answer may have taken longer than the Lease.
                if leadership.is_leading() {
                    Ok(unchanged)
                } else {
                    Err("this process no longer leads".to_owned())
                }
            }
            .boxed()
        })
    }

    /// Writes the status if it differs. The write has the resourceVersion that was read, so a concurrent write is a conflict.
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::is_outdated`] after a concurrent write.
    pub async fn store(&mut self, client: &Client, status: RouteGCStatus) -> Result<bool, Error> {
        let status = RouteGCStatus { router_id: self.router.clone(), ..status };
        if status == self.status {
            return Ok(false);
        }
        let parameters = PostParams { field_manager: Some(names::field_manager(CONTROLLER)), dry_run: false };
        let failed = |cause| Error::Write { what: self.regarding.to_string(), cause };
        match &mut self.stored {
            Stored::Object(object) => {
                let mut next = object.clone();
                next.status = Some(status.clone());
                let (name, namespace) = place(&next.metadata);
                let api = Api::<RouteGC>::namespaced(client.clone(), &namespace);
                **object = api.replace_status(&name, &parameters, &next).await.map_err(failed)?;
            }
            Stored::State(map) => {
                let mut next = map.clone();
                let text = serde_json::to_string(&status).unwrap_or_default();
                next.data = Some([(STATE_KEY.to_owned(), text)].into());
                let (name, namespace) = place(&next.metadata);
                let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
                let written = match &next.metadata.resource_version {
                    None => api.create(&parameters, &next).await,
                    Some(_) => api.replace(&name, &parameters, &next).await,
                };
                **map = written.map_err(failed)?;
            }
        }
        self.status = status;
        Ok(true)
    }
}

async fn is_unchanged(client: Client, read: ObjectMeta) -> Result<bool, String> {
    let (name, namespace) = place(&read);
    let api = Api::<RouteGC>::namespaced(client, &namespace);
    // All of them: two policies may have found out at the same moment that their names lead to the same router. Each records its
    // router before this read, so that at least one of the two reads both.
    match tokio::time::timeout(TIMEOUT, api.list(&ListParams::default())).await {
        Ok(Ok(all)) => {
            let now = all.items.iter().find(|object| object.name_any() == name);
            let unchanged = now.is_some_and(|RouteGC { metadata: now, .. }| {
                now.deletion_timestamp.is_none()
                    && annotation(now) == annotation(&read)
                    && (&now.uid, now.generation) == (&read.uid, read.generation)
            });
            Ok(unchanged && !conflicts(&all.items).contains_key(&PolicySource::Object(name)))
        }
        Ok(Err(error)) => Err(format!("cannot list the RouteGCs of {namespace}: {}", error_chain(&error))),
        Err(_) => Err(format!("no list of the RouteGCs of {namespace} within {TIMEOUT:?}")),
    }
}

/// Name of the ConfigMap of one router, in lower case, because a name must not have upper case.
fn state_name(router: &str) -> String {
    format!("{STATE_PREFIX}{}", router.to_ascii_lowercase())
}

fn empty(namespace: &str, name: &str) -> ConfigMap {
    let labels = [(names::MANAGED_BY.to_owned(), names::field_manager(CONTROLLER))].into();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn place(metadata: &ObjectMeta) -> (String, String) {
    (metadata.name.clone().unwrap_or_default(), metadata.namespace.clone().unwrap_or_default())
}

fn annotation(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(ALLOW_ANNOTATION).cloned()
}

fn regarding(api_version: &'static str, kind: &'static str, metadata: &ObjectMeta) -> Regarding {
    let (name, namespace) = place(metadata);
    Regarding { api_version, kind, namespace: Some(namespace), name, uid: metadata.uid.clone() }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: Value) -> Value {
        let spec = json!({
            "identityRef": { "name": "cloud-config" }, "routerID": "r-1", "podCIDRs": ["10.244.0.0/16"],
        });
        json!({
            "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC", "metadata": metadata, "spec": spec,
        })
    }

    /// A client of an API server that sends this response to every request.
    fn client(code: u16, body: &Value) -> Client {
        let body = body.to_string();
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let body = Body::from(body.clone().into_bytes());
            std::future::ready(http::Response::builder().status(code).body(body))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_removal_is_desired_while_the_policy_is_unchanged() {
        let metadata = json!({ "name": "prod", "namespace": "ns", "uid": "u-1", "generation": 3 });
        let read: RouteGC = serde_json::from_value(object(metadata.clone())).unwrap();
        let document = Document::object(read);
        let list =
            |items: &[Value]| json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items });
        let with = |field: &str, value: Value| {
            let mut metadata = metadata.clone();
            metadata[field] = value;
            list(&[object(metadata)])
        };
        // Its name leads to the same router.
        let rival = |recorded: &str| {
            let mut rival =
                object(json!({ "name": "rival", "namespace": "ns", "uid": "u-9", "generation": 1 }));
            rival["spec"]["routerID"] = Value::Null;
            rival["spec"]["routerName"] = json!("nodes");
            rival["status"] = json!({ "routerID": recorded });
            list(&[rival, object(metadata.clone())])
        };
        let refused = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": "Forbidden", "code": 403 });
        for (code, body, expected) in [
            (200, list(&[object(metadata.clone())]), true),
            (200, list(&[]), false),
            (200, rival("r-1"), false),
            (200, rival("r-2"), true),
            (200, with("resourceVersion", json!("9")), true),
            (200, with("generation", json!(4)), false),
            (200, with("uid", json!("u-2")), false),
            (200, with("annotations", json!({ (ALLOW_ANNOTATION): "0123" })), false),
            (200, with("annotations", json!({ "note": "0123" })), true),
            (200, with("deletionTimestamp", json!("2026-01-01T00:00:00Z")), false),
        ] {
            let desired = document.still_desired(&client(code, &body), &Leadership::always());
            assert_eq!(desired.check().await, Ok(expected), "{body}");
        }
        let unknown = document.still_desired(&client(403, &refused), &Leadership::always()).check().await;
        assert!(unknown.unwrap_err().starts_with("cannot list the RouteGCs of ns: "));
    }

    #[tokio::test]
    async fn a_policy_of_flags_needs_only_the_lead() {
        let read: RouteGC = serde_json::from_value(object(json!({ "name": "prod" }))).unwrap();
        let document = Document::state(read.spec, empty("ns", "routegc-r-1"));
        let none = client(500, &json!({}));
        assert_eq!(document.still_desired(&none, &Leadership::always()).check().await, Ok(true));
        assert!(document.still_desired(&none, &Leadership::never()).check().await.is_err());
    }
}
