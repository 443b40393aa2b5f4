//! The block: new claims, snapshots and load balancers are refused by the target's own API server. Its name carries the
//! Deorbit's UID, so it is found again even after a crash between its creation and the write of the status.

use kube::Client;
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::object::{only_version, settled};
use crate::error::Error;
use crate::names;
use crate::observe::snapshot::{Block, Version};
use crate::plan::action::Form;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MESSAGE: &str = "this cluster is being cleaned up by deorbiter before it is deleted: no new volumes, snapshots or load balancers";
/// The CEL expression of the block: of all requests that the rules match, only those that satisfy it are allowed. A
/// Service that becomes a load balancer counts as a new one. One that is a load balancer already may still change;
/// otherwise its finalizer could not be removed.
const EXPRESSION: &str = "request.resource.resource == 'services' && (!has(object.spec.type) || object.spec.type != 'LoadBalancer' || \
     (request.operation == 'UPDATE' && has(oldObject.spec.type) && oldObject.spec.type == 'LoadBalancer'))";

/// Creates it. One that exists is a success.
///
/// # Errors
/// [`Error::Kubernetes`] with the API server's response.
pub async fn create(client: &Client, form: Form, uid: &str) -> Result<(), Error> {
    let objects: Vec<(&str, Value)> = match form {
        Form::Policy => vec![
            ("validatingadmissionpolicies", policy(uid)),
            ("validatingadmissionpolicybindings", binding(uid)),
        ],
        Form::Webhook => {
            let shown =
                post(client, "validatingwebhookconfigurations", "&dryRun=All", &webhook(uid, true)).await?;
            let conditions = shown.is_none_or(|shown| knows_conditions(&shown));
            vec![("validatingwebhookconfigurations", webhook(uid, conditions))]
        }
    };
    for (plural, object) in objects {
        post(client, plural, "", &object).await?;
    }
    Ok(())
}

/// Sends one; None: it exists already.
async fn post(client: &Client, plural: &str, more: &str, object: &Value) -> Result<Option<Value>, Error> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let what = || format!("create {plural}/{name}");
    let request = http::Request::post(format!("{GROUP}/{plural}?fieldManager={}{more}", names::MANAGER))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| Error::kubernetes(what())(kube::Error::HttpError(error)))?;
    match client.request(request).await {
        Ok(shown) => Ok(Some(shown)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(cause) => Err(Error::kubernetes(what())(cause)),
    }
}

/// Whether the API server keeps matchConditions. Before 1.28 it drops them silently, and the webhook would then refuse every change
/// to any Service, including the removal of the finalizer when its load balancer is gone.
fn knows_conditions(shown: &Value) -> bool {
    let webhooks = shown.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().any(|webhook| {
        webhook.get("matchConditions").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    })
}

/// Deletes all of its objects that were read. One that cannot be deleted does not stop the deletion of the others.
///
/// # Errors
/// The first failure.
pub async fn remove(client: &Client, name: &str, seen: &Block) -> Result<(), Error> {
    let mut result = Ok(());
    // The binding before its policy: a binding without a policy is an error to the API server.
    for (plural, seen) in [
        ("validatingadmissionpolicybindings", &seen.binding),
        ("validatingadmissionpolicies", &seen.policy),
        ("validatingwebhookconfigurations", &seen.webhook),
    ] {
        let Some(Version { uid, resource_version }) = seen else { continue };
        let request =
            Request::new(format!("{GROUP}/{plural}")).delete(name, &only_version(uid, resource_version));
        let deleted = match request.map_err(kube::Error::BuildRequest) {
            Ok(request) => client.request::<IgnoredAny>(request).await,
            Err(error) => Err(error),
        };
        result = result.and(settled(|| format!("delete {plural}/{name}"), deleted));
    }
    result
}

fn metadata(uid: &str) -> Value {
    json!({"name": names::block(uid), "labels": {common::names::MANAGED_BY: names::PROGRAM, names::RUN_LABEL: uid}})
}

fn rule(group: &str, operations: &[&str], resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource], "scope": "*"})
}

fn policy(uid: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata(uid),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                rule("", &["CREATE"], "persistentvolumeclaims"),
                rule("snapshot.storage.k8s.io", &["CREATE"], "volumesnapshots"),
                rule("", &["CREATE", "UPDATE"], "services"),
            ]},
            "validations": [{"expression": EXPRESSION, "message": MESSAGE, "reason": "Forbidden"}],
        },
    })
}

fn binding(uid: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata(uid),
        "spec": {"policyName": names::block(uid), "validationActions": ["Deny"]},
    })
}

/// A webhook that never responds: port 1 of the API server's own machine. Where the API server has no matchConditions, new Services
/// of all types are refused, and existing ones may still change.
fn webhook(uid: &str, conditions: bool) -> Value {
    let call = |name: &str, rules: Value, conditions: Value| {
        json!({
            "name": name, "rules": rules, "matchConditions": conditions, "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1"},
        })
    };
    let (services, operations): (Value, &[&str]) = if conditions {
        let condition = format!("!({EXPRESSION})");
        (json!([{"name": "becomes-a-load-balancer", "expression": condition}]), &["CREATE", "UPDATE"])
    } else {
        (json!([]), &["CREATE"])
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": metadata(uid),
        "webhooks": [
            call("storage.block.deorbiter.perimeter.dev", json!([
                rule("", &["CREATE"], "persistentvolumeclaims"),
                rule("snapshot.storage.k8s.io", &["CREATE"], "volumesnapshots"),
            ]), json!([])),
            call("services.block.deorbiter.perimeter.dev", json!([rule("", operations, "services")]), services),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_match_conditions_changes_of_services_are_allowed() {
        let mut shown = webhook("u", true);
        assert!(knows_conditions(&shown));
        assert_eq!(shown["webhooks"][1]["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        // The response of an API server of 1.26.
        for webhook in shown["webhooks"].as_array_mut().unwrap() {
            webhook.as_object_mut().unwrap().remove("matchConditions");
        }
        assert!(!knows_conditions(&shown));
        let plain = webhook("u", false);
        assert_eq!(plain["webhooks"][1]["rules"][0]["operations"], json!(["CREATE"]));
        assert_eq!(plain["webhooks"][0], webhook("u", true)["webhooks"][0]);
    }
}
