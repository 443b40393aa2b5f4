//! `applicationCredential: Delete`, with a real Keystone: the application credential of the login is deleted last.

use common::api::deorbit::{DeorbitStatus, Phase};
use common::conditions::Status;
use e2e::deorbiter::{Driver, TestEnv};
use e2e::fault_proxy::{Fault, FaultProxy, Matcher, Reply, Upstream};
use e2e::openstack::{Project, Service};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use super::cloud::{exists, spec, start};

/// The spec of a run that deletes its credential.
fn delete(more: Value) -> Value {
    let mut spec = spec(more);
    spec["openstack"]["applicationCredential"] = json!("Delete");
    spec
}

/// Another application credential of the project, which the Secret has from then on. Its ID.
async fn log_in(env: &TestEnv, project: &Project, keystone: &str, more: Value) -> String {
    let name = format!("run-{}", more.to_string().len());
    let (id, secret) = project.new_credential(&name, more).await.unwrap();
    env.secret("cloud", "clouds.yaml", &project.clouds_yaml_of(keystone, &id, &secret)).await.unwrap();
    id
}

fn keystone_of(project: &Project) -> String {
    project.api().endpoints().base(Service::Identity).unwrap()
}

async fn has(project: &Project, credential: &str) -> bool {
    let path = format!("/users/{}/application_credentials/{credential}", project.user);
    exists(project, Service::Identity, &path).await
}

/// A claim with a volume in Cinder, which proves the login.
async fn claim(env: &TestEnv, project: &Project, name: &str) -> String {
    let volume = project.volume(&format!("pvc-{name}"), json!({})).await.unwrap();
    env.claim(name, &volume, "Delete").await.unwrap();
    format!("/volumes/{volume}")
}

fn condition<'a>(status: &'a DeorbitStatus, kind: &str) -> (Status, &'a str) {
    let found = status.conditions.iter().find(|one| one.kind == kind).unwrap();
    (found.status, &found.reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrestricted_credential_is_deleted_after_everything_else_and_kept_by_default() {
    let (env, _cloud, project) = start().await;
    let _cinder = Driver::cinder(env.client.clone(), &project);
    let id = log_in(&env, &project, &keystone_of(&project), json!({"unrestricted": true})).await;
    let deorbiter = env.deorbiter().unwrap();
    claim(&env, &project, "first").await;
    env.deorbit("keeps", spec(json!({}))).await.unwrap();
    env.wait_for_complete("keeps").await.unwrap();
    assert!(has(&project, &id).await, "the default is Keep");
    env.delete("keeps").await.unwrap();
    let volume = claim(&env, &project, "second").await;
    env.deorbit("deletes", delete(json!({}))).await.unwrap();
    let status = env.wait_for_complete("deletes").await.unwrap();
    assert!(!has(&project, &id).await && !exists(&project, Service::BlockStorage, &volume).await);
    assert_eq!(condition(&status, "Verified"), (Status::True, "EachIDIsGone"), "{status:#?}");
    assert_eq!(condition(&status, "CloudReachable"), (Status::Unknown, "CredentialDeleted"), "{status:#?}");
    let events = Api::<Event>::namespaced(env.client.clone(), &env.namespace);
    let words = format!("delete the application credential {id} in OpenStack: everything else is gone");
    env.wait("an Event", async || {
        let all = events.list(&ListParams::default()).await?.items;
        Ok(all.iter().any(|one| one.note.as_ref().is_some_and(|note| note.starts_with(&words))))
    })
    .await
    .unwrap();
    let metrics = deorbiter.metrics().await.unwrap();
    let deletes = [("method", "DeleteApplicationCredential")];
    assert_eq!(metrics.sum("deorbiter_operation_duration_seconds_count", &deletes), Some(1.0));
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the client's tests have Keystone"]
async fn a_credential_that_cannot_delete_itself_holds_the_run_and_one_that_another_needs_stays() {
    let (env, _cloud, project) = start().await;
    let _cinder = Driver::cinder(env.client.clone(), &project);
    let volume = claim(&env, &project, "data").await;
    let keystone = keystone_of(&project);
    let deorbiter = env.deorbiter().unwrap();
    let limits = json!({"timeouts": {"total": "1s", "apiUnavailable": "1s"}});
    // The credential of the project is restricted, as Keystone makes them by default.
    env.deorbit("run", delete(limits)).await.unwrap();
    env.wait_for_refusal("run", "CloudReachable", "is restricted, and Keystone allows only").await.unwrap();
    // A token has the access rules of its credential, whatever the services make of them.
    let rules = json!([{ "service": "block-storage", "method": "GET", "path": "/v3/volumes/*" }]);
    log_in(&env, &project, &keystone, json!({"unrestricted": true, "access_rules": rules})).await;
    env.wait_for_refusal("run", "CloudReachable", "do not permit identity DELETE").await.unwrap();
    let login = json!({"clouds": {"openstack": {"region_name": e2e::openstack::REGION, "auth": {
        "auth_url": keystone, "username": project.name, "password": "a-test's-own", "user_domain_id": "default",
        "project_id": project.id }}}});
    env.secret("cloud", "clouds.yaml", &login.to_string()).await.unwrap();
    env.wait_for_refusal("run", "CloudReachable", "the login is none").await.unwrap();
    env.wait_for_reconciliations(&deorbiter, 2).await.unwrap();
    assert_eq!(env.status("run").await.unwrap().phase, Phase::Pending);
    let claims = Api::<core::PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    assert_eq!(claims.get("data").await.unwrap().metadata.deletion_timestamp, None);
    assert!(exists(&project, Service::BlockStorage, &volume).await && !env.is_blocked().await.unwrap());
    // One that does not end is not waited for: the credential is left to the last one.
    let other = delete(json!({"kubeconfig": {"secretRef": {"name": "missing"}}}));
    env.deorbit("other", other).await.unwrap();
    env.wait_for_refusal("other", "TargetReachable", "missing").await.unwrap();
    env.set_timeouts("run", json!({"total": "1h", "apiUnavailable": "10m"})).await.unwrap();
    let id = log_in(&env, &project, &keystone, json!({"unrestricted": true})).await;
    let status = env.wait_for_debris("run").await.unwrap();
    let words = format!("Deorbit {}/other logs in with the same Secret", env.namespace);
    assert!(status.debris.len() == 1 && status.debris[0].reason.contains(&words), "{status:#?}");
    assert!(has(&project, &id).await && !exists(&project, Service::BlockStorage, &volume).await);
    env.deorbits().delete("other", &DeleteParams::default()).await.unwrap();
    env.delete("run").await.unwrap();
    claim(&env, &project, "more").await;
    env.deorbit("last", delete(json!({}))).await.unwrap();
    env.wait_for_complete("last").await.unwrap();
    assert!(!has(&project, &id).await);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn stopped_after_the_delete_a_run_completes_and_a_refused_delete_is_listed() {
    let (env, cloud, project) = start().await;
    let _cinder = Driver::cinder(env.client.clone(), &project);
    let keystone =
        FaultProxy::start(Upstream::neutron(cloud.endpoints().address(Service::Identity).unwrap()));
    let keystone = keystone.await.unwrap();
    let url = format!("{}/v3", keystone.url());
    let id = log_in(&env, &project, &url, json!({"unrestricted": true})).await;
    let deletes = || Matcher::any().method(Method::DELETE).path("/v3/users/*/application_credentials/*");
    let refused = keystone.rule(deletes(), Fault::Reject(Reply::status(StatusCode::FORBIDDEN)));
    let deorbiter = env.deorbiter().unwrap();
    claim(&env, &project, "first").await;
    // Long enough for two attempts on a busy machine.
    let asked = json!({"onTimeout": "Block", "timeouts": {"apiUnavailable": "20s"}});
    env.deorbit("refused", delete(asked)).await.unwrap();
    let status = env.wait_for_debris("refused").await.unwrap();
    let [left] = status.debris.as_slice() else { panic!("{status:#?}") };
    assert_eq!((left.kind.as_str(), left.id.as_deref()), ("ApplicationCredential", Some(id.as_str())));
    assert!(left.reason.contains("403") && left.name == "cloud", "{left:?}");
    assert!(has(&project, &id).await && keystone.applied(refused) > 1);
    env.delete("refused").await.unwrap();
    keystone.remove(refused);
    // Keystone deletes it, and deorbiter is stopped before it stores the end.
    let late = keystone.rule(deletes(), Fault::DelayResponse(e2e::wait::TIMEOUT));
    claim(&env, &project, "second").await;
    env.deorbit("run", delete(json!({}))).await.unwrap();
    env.wait("the credential to be gone", async || Ok(!has(&project, &id).await)).await.unwrap();
    deorbiter.kill().unwrap();
    assert_eq!((keystone.applied(late), env.status("run").await.unwrap().phase), (1, Phase::Finishing));
    keystone.remove(late);
    keystone.clear_requests();
    let restarted = env.deorbiter().unwrap();
    let status = env.wait_for_complete("run").await.unwrap();
    assert_eq!(condition(&status, "Verified"), (Status::True, "EachIDIsGone"), "{status:#?}");
    let requests = keystone.requests();
    assert!(requests.iter().all(|one| one.method == Method::POST), "only the login: {requests:#?}");
    // A run that has deleted nothing of the kind waits.
    env.delete("run").await.unwrap();
    env.deorbit("later", delete(json!({}))).await.unwrap();
    env.wait_for_refusal("later", "CloudReachable", "the application credential is gone").await.unwrap();
    drop((deorbiter, restarted));
}
