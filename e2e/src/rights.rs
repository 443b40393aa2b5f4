//! The permissions of a program in its manifests, and a user with exactly these.
//!
//! `manifests/<program>/rbac.yaml` is read as it is installed, and given to a program under test in a namespace of the
//! test's own, so that RBAC is enforced in every test.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::fault_proxy::KubeRequest;
use crate::kustomize::{self, manifests};
use crate::wait;

/// The service account and Roles of one program.
#[derive(Debug, Clone)]
pub struct Rights {
    program: String,
    documents: Vec<Value>,
}

/// One permission: a part of a rule of a Role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Namespace; none for all namespaces and cluster-scoped resources.
    pub namespace: Option<String>,
    /// API group; empty for the core.
    pub group: String,
    /// Resource, with its subresource if there is one: `nodes/status`.
    pub resource: String,
    /// Name of the only object, if restricted.
    pub name: Option<String>,
    /// The verb.
    pub verb: String,
}

/// A user to impersonate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name of the user.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

impl Rights {
    /// The permissions of a program of this project, from its manifests.
    ///
    /// # Errors
    /// The file is missing, or is no YAML.
    pub fn of(program: &str) -> Result<Rights> {
        Rights::read(program, &manifests().join(program).join("rbac.yaml"))
    }

    /// Those of another file that is made like such a one: a service account called `program` in a namespace called so too.
    ///
    /// # Errors
    /// The file is missing, or is no YAML.
    pub fn read(program: &str, file: &Path) -> Result<Rights> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let documents = serde_yaml::from_multiple(&text).with_context(|| file.display().to_string())?;
        Ok(Rights { program: program.to_owned(), documents })
    }

    /// Those of a folder, as kubectl renders it.
    ///
    /// # Errors
    /// As [`crate::kustomize::render`].
    pub fn rendered(program: &str, folder: &Path) -> Result<Rights> {
        let mut documents = kustomize::objects(&kustomize::render(folder)?)?;
        documents.retain(|one| {
            let kind = text(one, "/kind");
            kind == "ServiceAccount" || kind.ends_with("Role") || kind.ends_with("RoleBinding")
        });
        Ok(Rights { program: program.to_owned(), documents })
    }

    /// Adds the permissions of a component of `manifests/components`.
    ///
    /// # Errors
    /// The file is missing, or is no YAML.
    pub fn and(mut self, component: &str) -> Result<Rights> {
        let file = manifests().join("components").join(component).join("rbac.yaml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let more: Vec<Value> =
            serde_yaml::from_multiple(&text).with_context(|| file.display().to_string())?;
        self.documents.extend(more);
        Ok(self)
    }

    /// All permissions: each verb on each resource of each rule, in order. Namespaces are those of the file.
    ///
    /// # Errors
    /// A Role has no binding to the program's service account, or a rule is no list of words.
    pub fn grants(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for role in self.documents.iter().filter(|document| text(document, "/kind").ends_with("Role")) {
            ensure!(self.is_bound(role), "{} {} is not bound", text(role, "/kind"), name(role));
            let namespace = role.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
            for rule in role.pointer("/rules").and_then(Value::as_array).context("a Role has rules")? {
                let names = match rule.get("resourceNames") {
                    Some(_) => words(rule, "resourceNames")?.into_iter().map(Some).collect(),
                    None => vec![None],
                };
                for (group, resource) in product(&words(rule, "apiGroups")?, &words(rule, "resources")?) {
                    for (name, verb) in product(&names, &words(rule, "verbs")?) {
                        grants.push(Grant {
                            namespace: namespace.clone(),
                            group: group.clone(),
                            resource: resource.clone(),
                            name,
                            verb,
                        });
                    }
                }
            }
        }
        Ok(grants)
    }

    /// Creates the objects for a program in `namespace`, and returns its user when the API server allows it everything. Objects outside of the
    /// namespace are named after it, and deleted with it.
    ///
    /// # Errors
    /// The API server refuses, or does not apply the Roles.
    pub async fn give(&self, client: &Client, namespace: &str) -> Result<User> {
        let owner = Api::<Namespace>::all(client.clone()).get(namespace).await?;
        let owner = json!([{
            "apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": owner.uid().unwrap_or_default(),
        }]);
        for document in &self.documents {
            let mut document = document.clone();
            self.move_to(&mut document, namespace, &owner)?;
            let object: DynamicObject = serde_json::from_value(document)?;
            let types = object.types.clone().context("a manifest has a kind")?;
            let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let params = PatchParams::apply("e2e").force();
            let what = format!("{} {}", types.kind, object.name_any());
            api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.context(what)?;
        }
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{}", self.program),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ],
        };
        for grant in self.grants()? {
            wait_until_granted(client, &user, &self.place(grant.namespace.as_deref(), namespace), &grant)
                .await?;
        }
        Ok(user)
    }

    /// The namespace where `theirs` of the file is for a program in `namespace`.
    fn place(&self, theirs: Option<&str>, namespace: &str) -> Option<String> {
        theirs.map(|theirs| if theirs == self.program { namespace } else { theirs }.to_owned())
    }

    fn move_to(&self, document: &mut Value, namespace: &str, owner: &Value) -> Result<()> {
        let inside = text(document, "/metadata/namespace") == self.program;
        let kind_of_role = text(document, "/roleRef/kind").to_owned();
        if inside {
            set(document, "/metadata/namespace", json!(namespace))?;
        } else {
            set(document, "/metadata/name", json!(namespace))?;
            let metadata = document.pointer_mut("/metadata").and_then(Value::as_object_mut);
            metadata.context("metadata")?.insert("ownerReferences".into(), owner.clone());
        }
        if kind_of_role == "ClusterRole" || (kind_of_role == "Role" && !inside) {
            set(document, "/roleRef/name", json!(namespace))?;
        }
        for subject in document.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            set(subject, "/namespace", json!(namespace))?;
        }
        Ok(())
    }

    fn is_bound(&self, role: &Value) -> bool {
        let account = json!([{"kind": "ServiceAccount", "name": self.program, "namespace": self.program}]);
        let kind = text(role, "/kind");
        self.documents.iter().any(|document| {
            text(document, "/kind") == format!("{kind}Binding")
                && text(document, "/roleRef/kind") == kind
                && text(document, "/roleRef/name") == name(role)
                && text(document, "/metadata/namespace") == text(role, "/metadata/namespace")
                && document.get("subjects") == Some(&account)
        })
    }
}

impl Grant {
    /// Whether RBAC allows a request because of this grant. There are no wildcards.
    #[must_use]
    pub fn covers(&self, request: &KubeRequest) -> bool {
        self.verb == request.verb
            && self.group == request.group
            && self.resource == request.full_resource()
            && (self.name.is_none() || self.name == request.name)
            && (self.namespace.is_none() || self.namespace == request.namespace)
    }
}

/// Waits until the API server's authorizer allows it.
async fn wait_until_granted(
    client: &Client,
    user: &User,
    namespace: &Option<String>,
    grant: &Grant,
) -> Result<()> {
    let (resource, subresource) = match grant.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (grant.resource.as_str(), None),
    };
    let resource_attributes = Some(ResourceAttributes {
        namespace: namespace.clone(),
        group: Some(grant.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        name: grant.name.clone(),
        verb: Some(grant.verb.clone()),
        ..ResourceAttributes::default()
    });
    let right = format!("the right of {} to {} {}", user.name, grant.verb, grant.resource);
    let spec = SubjectAccessReviewSpec { resource_attributes, ..SubjectAccessReviewSpec::default() };
    wait_until_allowed(client, user, spec, &right).await
}

/// Waits until the API server's authorizer allows what the first of a Role's rules has first. It reads Roles and bindings from watches, and
/// a program that ends at a refusal must not be started before.
///
/// # Errors
/// The rule names no verb; or the authorizer does not allow it within [`wait::TIMEOUT`].
pub async fn until_effective(
    client: &Client,
    user: &User,
    namespace: Option<&str>,
    rules: &[Value],
) -> Result<()> {
    let rule = rules.first().context("a Role has rules")?;
    let first = |key: &str| rule.pointer(&format!("/{key}/0")).and_then(Value::as_str).map(str::to_owned);
    let verb = first("verbs").context("a rule has verbs")?;
    if let Some(path) = first("nonResourceURLs") {
        let right = format!("the right of {} to {verb} {path}", user.name);
        let attributes = NonResourceAttributes { path: Some(path), verb: Some(verb) };
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        return wait_until_allowed(client, user, spec, &right).await;
    }
    let grant = Grant {
        namespace: None,
        group: first("apiGroups").unwrap_or_default(),
        resource: first("resources").context("a rule has resources")?,
        name: first("resourceNames"),
        verb,
    };
    wait_until_granted(client, user, &namespace.map(str::to_owned), &grant).await
}

async fn wait_until_allowed(
    client: &Client,
    user: &User,
    spec: SubjectAccessReviewSpec,
    right: &str,
) -> Result<()> {
    let spec =
        SubjectAccessReviewSpec { user: Some(user.name.clone()), groups: Some(user.groups.clone()), ..spec };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    wait::until(right, async || {
        let review = reviews.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed).then_some(()))
    })
    .await
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(document: &Value) -> &str {
    text(document, "/metadata/name")
}

fn set(document: &mut Value, pointer: &str, value: Value) -> Result<()> {
    *document.pointer_mut(pointer).with_context(|| format!("a manifest without {pointer}"))? = value;
    Ok(())
}

/// The values of a rule's list. A wildcard is an error, because it cannot be compared with the used permissions.
fn words(rule: &Value, field: &str) -> Result<Vec<String>> {
    let list: Vec<String> = serde_json::from_value(rule.get(field).cloned().unwrap_or_default())
        .with_context(|| format!("{field} of {rule}"))?;
    ensure!(!list.iter().any(|word| word.contains('*')), "a wildcard in {field} of {rule}");
    Ok(list)
}

fn product<A: Clone, B: Clone>(these: &[A], those: &[B]) -> Vec<(A, B)> {
    these.iter().flat_map(|this| those.iter().map(move |that| (this.clone(), that.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: http::Method, target: &str) -> KubeRequest {
        KubeRequest::parse(&method, target).unwrap()
    }

    #[test]
    fn a_grant_covers_what_rbac_would_let_pass() {
        let lease = Grant {
            namespace: Some("natgw".into()),
            group: "coordination.k8s.io".into(),
            resource: "leases".into(),
            name: Some("natgw".into()),
            verb: "update".into(),
        };
        let put = |place: &str| request(http::Method::PUT, &format!("/apis/{place}"));
        assert!(lease.covers(&put("coordination.k8s.io/v1/namespaces/natgw/leases/natgw")));
        for other in [
            "coordination.k8s.io/v1/namespaces/natgw/leases/other",
            "coordination.k8s.io/v1/namespaces/default/leases/natgw",
            "coordination.k8s.io/v1/namespaces/natgw/leases/natgw/status",
            "events.k8s.io/v1/namespaces/natgw/leases/natgw",
        ] {
            assert!(!lease.covers(&put(other)), "{other}");
        }
        let create = Grant { name: None, verb: "create".into(), ..lease.clone() };
        let post = request(http::Method::POST, "/apis/coordination.k8s.io/v1/namespaces/natgw/leases");
        assert!(create.covers(&post));
        assert!(!Grant { name: Some("natgw".into()), ..create }.covers(&post), "an object without a name");
        assert!(!lease.covers(&post));
    }

    #[test]
    fn rules_that_cannot_be_compared_are_refused() {
        let mut rights = Rights::of("natgw").unwrap();
        assert!(rights.grants().is_ok());
        let role = rights.documents.iter().position(|document| text(document, "/kind") == "Role").unwrap();
        rights.documents[role]["rules"][0]["verbs"] = json!(["*"]);
        assert!(rights.grants().unwrap_err().to_string().contains("wildcard"));

        let mut rights = Rights::of("natgw").unwrap();
        rights.documents.retain(|document| text(document, "/kind") != "ClusterRoleBinding");
        assert!(rights.grants().unwrap_err().to_string().contains("not bound"));
    }
}
