//! `common::cloud::openstack` with the real services. These tests confirm the assumptions of its unit tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::cloud::openstack::{Cloud, CloudConf, Credentials, Metrics, Route, Service};
use e2e::openstack::{CLOUD, Knobs, OpenStack, Parts, Project, Release, Service as Api};
use e2e::wait::until_slow;
use futures::future::join_all;
use prometheus::Registry;
use serde_json::json;

/// An ID that no object has.
const NOTHING: &str = "6a0d9c1e-0000-4000-8000-000000000000";

fn client(credentials: &Credentials) -> Cloud {
    let metrics = Metrics::register(&Registry::new()).unwrap();
    Cloud::new(credentials, "perimeter-test/1", &metrics).unwrap()
}

fn of(project: &Project) -> Cloud {
    let text = project.clouds_yaml().unwrap();
    client(&Credentials::from_clouds_yaml(&text, None, Some(CLOUD)).unwrap())
}

/// With another application credential.
fn with(openstack: &OpenStack, project: &Project, (id, secret): (&str, &str)) -> Cloud {
    let keystone = openstack.endpoints().base(Api::Identity).unwrap();
    let text = project.clouds_yaml_of(&keystone, id, secret);
    client(&Credentials::from_clouds_yaml(&text, None, None).unwrap())
}

fn route(to: &str, via: &str) -> Route {
    Route { destination: to.to_owned(), nexthop: via.to_owned() }
}

async fn on_each_release(test: impl AsyncFn(OpenStack)) {
    for &release in Release::tested() {
        test(OpenStack::shared(Parts::KeystoneNeutron, release).await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_works_in_each_format() {
    on_each_release(async |openstack| {
        let project = openstack.project("texts").await.unwrap();
        let clouds = project.clouds_yaml().unwrap();
        let secret = BTreeMap::from([("clouds.yaml".to_owned(), clouds.into_bytes())]);
        let secret = Credentials::from_secret(&secret, CLOUD, None).unwrap();
        let conf = CloudConf::parse(&project.cloud_conf().unwrap()).unwrap();
        assert_eq!(conf.router_id.as_deref(), Some(project.router.as_str()));
        for credentials in [secret, conf.credentials] {
            let cloud = client(&credentials);
            assert_eq!(cloud.project_id().await.unwrap(), project.id);
            assert_eq!(cloud.router(&project.router).await.unwrap().project_id, project.id);
        }
        let keystone = openstack.endpoints().address(Api::Identity).unwrap();
        let auth = format!(
            "{{auth_url: \"{keystone}/v3\", username: {0}, password: a-test's-own, user_domain_id: default, project_name: {0}}}",
            project.name
        );
        // Other tests register regions of their own in this Keystone.
        let text = format!("clouds: {{x: {{auth: {auth}, region_name: RegionOne}}}}");
        let cloud = client(&Credentials::from_clouds_yaml(&text, None, None).unwrap());
        assert_eq!(cloud.project_id().await.unwrap(), project.id);
        assert!(cloud.has_service(Service::Network).await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_credential_is_not_found_and_a_wrong_one_is_refused() {
    on_each_release(async |openstack| {
        let project = openstack.project("gone").await.unwrap();
        let (id, secret) = project.new_credential("short-lived", json!({})).await.unwrap();
        let cloud = with(&openstack, &project, (&id, &secret));
        cloud.router(&project.router).await.unwrap();
        let path = format!("/users/{}/application_credentials/{id}", project.user);
        project.api().delete(Api::Identity, &path).await.unwrap();
        let error = with(&openstack, &project, (&id, &secret)).router(&project.router).await.unwrap_err();
        assert!(error.is_credential_gone() && !error.is_not_found() && !error.is_retryable(), "{error}");
        assert!(error.request_id().is_some_and(|id| id.starts_with("req-")), "{error}");
        let wrong = with(&openstack, &project, (&project.credential, "s3cr3t-but-wrong"));
        let error = wrong.project_id().await.unwrap_err();
        assert!(error.is_unauthorized() && !error.is_credential_gone(), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_expires_is_refused_from_then_on() {
    on_each_release(async |openstack| {
        let project = openstack.project("expires").await.unwrap();
        // On a busy machine, the first request may come after the shortest of these times.
        for seconds in [45, 90, 180] {
            let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            let expires = soon.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
            let name = format!("expires-{seconds}");
            let (id, secret) = project.new_credential(&name, json!({ "expires_at": expires })).await.unwrap();
            let cloud = with(&openstack, &project, (&id, &secret));
            match cloud.router(&project.router).await {
                Err(error) if error.is_unauthorized() => continue,
                accepted => drop(accepted.unwrap()),
            }
            let refused = async || Ok(cloud.router(&project.router).await.err());
            let error = until_slow("the end of the credential", refused).await.unwrap();
            assert!(error.is_unauthorized() && !error.is_credential_gone(), "{error}");
            return;
        }
        panic!("each credential had expired before its first request");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: a cloud of its own; the client's own tests have tokens and pages"]
async fn calls_outlive_their_tokens_and_lists_their_pages() {
    // Longer than any request on a busy machine.
    let knobs = Knobs { token_ttl: Duration::from_secs(20), token_cache: None, page_max: 3 };
    let openstack = OpenStack::start(Parts::KeystoneNeutron, Release::Main, knobs).await.unwrap();
    let project = openstack.project("pages").await.unwrap();
    let mut made = BTreeSet::new();
    for number in 0..10 {
        made.insert(project.port(Some(&format!("10.7.0.{}", number + 10)), Some("d1")).await.unwrap());
    }
    let cloud = of(&project);
    let began = tokio::time::Instant::now();
    let mut rounds = 0;
    // Longer than the lifetime of a token, with four concurrent requests, so that some happen during a renewal.
    while began.elapsed() < Duration::from_secs(30) || rounds < 2 {
        let lists = join_all((0..4).map(|_| cloud.ports_of_device("d1"))).await;
        for ports in lists {
            let ids: BTreeSet<String> = ports.unwrap().into_iter().map(|port| port.id).collect();
            assert_eq!(ids, made);
        }
        rounds += 1;
        // The requests of other tests need the processors too.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // The router's own port, and the ten.
    let ports = cloud.ports_of_network(&project.network).await.unwrap();
    assert_eq!(ports.len(), 11);
    let leg = ports.iter().find(|port| port.device_id == project.router).unwrap();
    assert_eq!(leg.device_owner, "network:router_interface");
    assert!(cloud.security_groups().await.unwrap().iter().any(|group| group.name == "default"));
    assert!(cloud.extensions().await.unwrap().contains("extraroute-atomic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_added_removed_and_guarded_by_the_revision() {
    on_each_release(async |openstack| {
        let project = openstack.project("routes").await.unwrap();
        let (router, cloud) = (project.router.as_str(), of(&project));
        let extensions = cloud.extensions().await.unwrap();
        for needed in ["extraroute-atomic", "revision-if-match", "standard-attr-revisions"] {
            assert!(extensions.contains(needed), "{extensions:?}");
        }
        let (a, b, c) = (
            route("10.100.1.0/24", "10.7.0.11"),
            route("10.100.2.0/24", "10.7.0.12"),
            route("fd00:1::/64", "10.7.0.13"),
        );
        let before = cloud.router(router).await.unwrap().revision_number.unwrap();
        let both = [a.clone(), b.clone(), c.clone()];
        let set = |routes: &[Route]| routes.iter().cloned().collect::<BTreeSet<Route>>();
        let added = cloud.add_extraroutes(router, &both, Some(before)).await.unwrap();
        assert_eq!(set(&added.routes), set(&both));
        let revision = added.revision_number.unwrap();
        assert!(revision > before);
        // An existing route changes nothing, with any revision.
        let repeated = cloud.add_extraroutes(router, &both, Some(before)).await.unwrap();
        assert_eq!(repeated.revision_number, Some(revision));
        let one = std::slice::from_ref(&a);
        for end in [
            cloud.remove_extraroutes(router, one, Some(before)).await,
            cloud.replace_routes(router, one, Some(before)).await,
        ] {
            let error = end.unwrap_err();
            assert!(error.is_precondition_failed() && error.code() == "precondition_failed", "{error}");
            assert_eq!(error.kind(), Some("RevisionNumberConstraintFailed"));
        }
        // Another next hop of the same destination is another route; so is another spelling.
        let other = [route("10.100.1.0/24", "10.7.0.99"), route("FD00:1::/64", "10.7.0.13")];
        let left = cloud.remove_extraroutes(router, &other, Some(revision)).await.unwrap();
        assert_eq!(set(&left.routes), set(&both));
        let left = cloud.remove_extraroutes(router, &[a, c], Some(revision)).await.unwrap();
        assert_eq!(left.routes, std::slice::from_ref(&b));
        assert_eq!(cloud.router(router).await.unwrap(), left);
        let lost = route("10.100.3.0/24", "192.0.2.1");
        let error = cloud.add_extraroutes(router, &[lost], None).await.unwrap_err();
        assert!(error.is_bad_request() && error.kind() == Some("InvalidRoutes"), "{error}");
        let kept = cloud.replace_routes(router, &[], left.revision_number).await.unwrap();
        assert!(kept.routes.is_empty() && kept.revision_number > left.revision_number);
        let many: Vec<Route> = (0..40).map(|n| route(&format!("10.101.{n}.0/24"), "10.7.0.11")).collect();
        let error = cloud.add_extraroutes(router, &many, None).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        assert!(["RoutesExhausted", "OverQuota"].contains(&error.kind().unwrap()), "{error}");
        let limit = cloud.quota_router_route().await.unwrap();
        assert_eq!(limit.is_some(), error.kind() == Some("OverQuota"), "{limit:?} {error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_objects_are_read_and_missing_ones_are_none() {
    on_each_release(async |openstack| {
        let (project, foreign) =
            (openstack.project("seen").await.unwrap(), openstack.project("foreign").await.unwrap());
        let cloud = of(&project);
        let routers = cloud.routers().await.unwrap();
        assert_eq!(routers.iter().map(|router| &router.id).collect::<Vec<_>>(), [&project.router]);
        assert_eq!(cloud.routers_named("nodes").await.unwrap(), routers);
        assert_eq!(cloud.routers_named("Nodes").await.unwrap(), []);
        let network = cloud.network(&project.network).await.unwrap();
        assert_eq!((network.name.as_str(), &network.project_id), ("nodes", &project.id));
        let port = project.port(Some("10.7.0.20"), Some("d1")).await.unwrap();
        let found = cloud.ports_of_network(&project.network).await.unwrap();
        let found = found.iter().find(|one| one.id == port).unwrap();
        assert_eq!(found.fixed_ips[0].ip_address, "10.7.0.20");
        assert_eq!(cloud.ports_of_device("d1").await.unwrap()[0].fixed_ips[0].ip_address, "10.7.0.20");
        let id = project
            .floating_ip("Floating IP for Kubernetes external service a/b from cluster c")
            .await
            .unwrap();
        let found = cloud.floating_ips().await.unwrap();
        assert_eq!(found.iter().map(|one| &one.id).collect::<Vec<_>>(), [&id]);
        assert!(found[0].description.ends_with("from cluster c") && found[0].port_id.is_none());
        cloud.delete_floating_ip(&id).await.unwrap();
        assert_eq!(cloud.floating_ips().await.unwrap(), []);
        cloud.delete_floating_ip(&id).await.unwrap();
        let group = json!({ "security_group": { "name": "lb-sg-1", "description": "d" } });
        let group = project.api().post(Api::Network, "/security-groups", group).await.unwrap();
        let id = group["security_group"]["id"].as_str().unwrap();
        let groups = cloud.security_groups().await.unwrap();
        let found = groups.iter().find(|group| group.id == id).unwrap();
        assert_eq!((found.name.as_str(), &found.project_id), ("lb-sg-1", &project.id));
        cloud.delete_security_group(id).await.unwrap();
        assert!(cloud.security_groups().await.unwrap().iter().all(|group| group.id != id));
        for id in [NOTHING, &foreign.router] {
            let error = cloud.router(id).await.unwrap_err();
            assert!(error.is_not_found() && error.kind() == Some("RouterNotFound"), "{error}");
        }
        assert!(cloud.network(&foreign.network).await.unwrap_err().is_not_found());
        assert_eq!(cloud.ports_of_network(&foreign.network).await.unwrap(), []);
    })
    .await;
}

/// An administrator's credential sees everything; the client shows what the project has.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_gets_the_objects_of_its_project_only() {
    let openstack = OpenStack::shared(Parts::KeystoneNeutron, Release::Main).await.unwrap();
    let (mine, other) = (openstack.project("mine").await.unwrap(), openstack.project("other").await.unwrap());
    other.floating_ip("of another project").await.unwrap();
    let keystone = openstack.endpoints().address(Api::Identity).unwrap();
    let roles = openstack.admin().get(Api::Identity, "/roles?name=admin").await.unwrap();
    let role = roles["roles"][0]["id"].as_str().unwrap();
    let grant = format!("/projects/{}/users/{}/roles/{role}", mine.id, mine.user);
    openstack.admin().put(Api::Identity, &grant, json!({})).await.unwrap();
    let auth = format!(
        "{{auth_url: \"{keystone}\", user_id: {}, password: a-test's-own, project_id: {}}}",
        mine.user, mine.id
    );
    // Other tests register regions of their own in this Keystone.
    let text = format!("clouds: {{x: {{auth: {auth}, region_name: RegionOne}}}}");
    let cloud = client(&Credentials::from_clouds_yaml(&text, None, None).unwrap());
    assert_eq!(cloud.router(&other.router).await.unwrap().project_id, other.id, "the role is broad");
    assert_eq!(cloud.routers().await.unwrap().len(), 1);
    let named = cloud.routers_named("nodes").await.unwrap();
    assert_eq!(named.iter().map(|router| &router.id).collect::<Vec<_>>(), [&mine.router]);
    assert_eq!(cloud.floating_ips().await.unwrap(), []);
    assert!(cloud.security_groups().await.unwrap().iter().all(|group| group.project_id == mine.id));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrestricted_credential_deletes_itself_if_its_access_rules_permit_that() {
    on_each_release(async |openstack| {
        let project = openstack.project("itself").await.unwrap();
        let rule = |method: &str| {
            let path = "/v3/users/*/application_credentials/*";
            json!([{ "service": "identity", "method": method, "path": path }])
        };
        let made = async |name: &str, more: serde_json::Value| {
            let (id, secret) = project.new_credential(name, more).await.unwrap();
            (with(&openstack, &project, (&id, &secret)), id, secret)
        };
        let exists = async |id: &str| {
            let path = format!("/users/{}/application_credentials/{id}", project.user);
            project.api().find(Api::Identity, &path).await.unwrap().is_some()
        };
        let (restricted, id, _) = made("restricted", json!({})).await;
        let seen = restricted.application_credential().await.unwrap().unwrap();
        assert_eq!((&seen.id, &seen.user, seen.is_unrestricted), (&id, &project.user, false));
        let error = restricted.delete_application_credential(&project.user, &id).await.unwrap_err();
        assert!(error.is_forbidden() && exists(&id).await, "{error}");
        let (other, id, _) =
            made("other", json!({ "unrestricted": true, "access_rules": rule("GET") })).await;
        let seen = other.application_credential().await.unwrap().unwrap();
        assert_eq!((seen.is_unrestricted, seen.permits_delete), (true, false));
        let error = other.delete_application_credential(&project.user, &id).await.unwrap_err();
        assert!(error.is_unauthorized() && exists(&id).await, "{error}");
        for more in [json!({}), json!({ "access_rules": rule("DELETE") })] {
            let mut asked = json!({ "unrestricted": true });
            asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let (cloud, id, secret) = made(&format!("own-{}", more.to_string().len()), asked).await;
            let seen = cloud.application_credential().await.unwrap().unwrap();
            assert!(seen.is_unrestricted && seen.permits_delete, "{seen:?}");
            cloud.delete_application_credential(&project.user, &id).await.unwrap();
            assert!(!exists(&id).await);
            // With a token of a credential that is gone, and with a new login.
            cloud.delete_application_credential(&project.user, &id).await.unwrap();
            let error = with(&openstack, &project, (&id, &secret)).project_id().await.unwrap_err();
            assert!(error.is_credential_gone(), "{error}");
        }
    })
    .await;
}

/// As `docs/openstack-rights.md` says: these services have no `service_type`, so that a credential with access rules is
/// refused by each of them, whatever the rules allow.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn access_rules_need_a_service_with_a_service_type() {
    let openstack = OpenStack::shared(Parts::KeystoneNeutron, Release::Main).await.unwrap();
    let project = openstack.project("rules").await.unwrap();
    let rules = json!([{ "service": "network", "method": "GET", "path": "/v2.0/routers/*" }]);
    let (id, secret) = project.new_credential("rules", json!({ "access_rules": rules })).await.unwrap();
    let cloud = with(&openstack, &project, (&id, &secret));
    assert_eq!(cloud.project_id().await.unwrap(), project.id, "the login needs no rule");
    let error = cloud.router(&project.router).await.unwrap_err();
    assert!(error.is_unauthorized() && error.to_string().contains("access rules"), "{error}");
}
