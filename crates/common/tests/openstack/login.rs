//! Tokens: requested once, renewed in time, replaced when refused. A refused credential is an error.

use std::time::Duration;

use common::cloud::openstack::{Cloud, Metrics, Retry, Service};
use futures::future::join_all;
use prometheus::Registry;
use serde_json::json;

use crate::site::{LOGIN, PROJECT, Reply, Site, ok, reply};

const ROUTERS: &str = "GET /networking/v2.0/routers";

fn empty() -> Reply {
    ok(&json!({"routers": []}))
}

#[tokio::test]
async fn one_login_serves_all_clones_and_calls() {
    let (site, cloud) = Site::start().await;
    site.on(ROUTERS, [empty()]);
    let clones: Vec<Cloud> = (0..8).map(|_| cloud.clone()).collect();
    for end in join_all(clones.iter().map(Cloud::routers)).await {
        assert_eq!(end.unwrap(), []);
    }
    assert_eq!(cloud.project_id().await.unwrap(), PROJECT);
    assert_eq!(site.count(LOGIN), 1);
    site.was_strict();
}

#[tokio::test]
async fn the_endpoint_of_a_single_service_can_be_overridden() {
    let (site, _) = Site::start().await;
    let own = format!(
        "    network_endpoint_override: http://{}/elsewhere/%(project_id)s\n    compute_region_name: RegionTwo\n    \
         load_balancer_interface: admin\n",
        site.address
    );
    let metrics = Metrics::register(&Registry::new()).unwrap();
    let cloud = Cloud::new(&site.credentials(&own), "perimeter-test/1", &metrics).unwrap();
    let routers = format!("GET /elsewhere/{PROJECT}/v2.0/routers");
    site.on(&routers, [empty()]);
    assert_eq!(cloud.routers().await.unwrap(), []);
    assert_eq!((site.count(&routers), site.count(ROUTERS)), (1, 0));
    assert!(cloud.has_service(Service::BlockStorage).await.unwrap(), "as the others say it");
    assert!(!cloud.has_service(Service::Compute).await.unwrap(), "there is none in that region");
    let error = cloud.has_service(Service::LoadBalancer).await.unwrap_err().to_string();
    assert!(error.contains("has no admin endpoint of load-balancer"), "{error}");
}

#[tokio::test]
async fn eight_calls_on_an_expired_token_make_one_login() {
    let (site, cloud) = Site::start().await;
    site.on(ROUTERS, [empty()]);
    cloud.routers().await.unwrap();
    {
        let mut state = site.state();
        state.valid.clear();
        state.hold = 8;
    }
    for end in join_all((0..8).map(|_| cloud.routers())).await {
        assert_eq!(end.unwrap(), []);
    }
    assert_eq!(site.count(LOGIN), 2);
    assert_eq!(site.state().refused, 8);
    site.was_strict();
}

#[tokio::test]
async fn eight_calls_that_wait_for_a_refused_login_share_its_failure() {
    let (site, cloud) = Site::start().await;
    let wrong = r#"{"error": {"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}}"#;
    site.on(LOGIN, [reply(401, wrong)]);
    for end in join_all((0..8).map(|_| cloud.routers())).await {
        let error = end.unwrap_err();
        assert!(
            error.is_unauthorized() && !error.is_retryable() && error.code() == "unauthorized",
            "{error}"
        );
        assert!(error.to_string().contains("check the credential"), "{error}");
    }
    assert_eq!(site.count(LOGIN), 1, "a password that is tried again and again gets its user locked");
    assert!(cloud.routers().await.is_err());
    assert_eq!(site.count(LOGIN), 2, "a later call logs in again");
}

#[tokio::test]
async fn a_token_that_is_refused_twice_is_an_error() {
    let (site, cloud) = Site::start().await;
    site.on(ROUTERS, [reply(401, "<html>401</html>")]);
    let error = cloud.routers().await.unwrap_err();
    assert!(error.is_unauthorized() && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("a token that was just issued is refused"), "{error}");
    assert_eq!((site.count(LOGIN), site.count(ROUTERS)), (2, 2));
}

#[tokio::test]
async fn a_write_that_was_refused_for_its_token_is_sent_again() {
    let (site, cloud) = Site::start().await;
    cloud.project_id().await.unwrap();
    site.state().valid.clear();
    site.on("DELETE /volume/v3/volumes/v1", [reply(202, "")]);
    cloud.delete_volume("v1", false).await.unwrap();
    assert_eq!(site.count("DELETE /volume/v3/volumes/v1"), 2);
    assert_eq!(site.count(LOGIN), 2);
    site.was_strict();
}

#[tokio::test]
async fn a_deleted_application_credential_is_reported_and_not_taken_for_a_missing_object() {
    let (site, cloud) = Site::start().await;
    let gone = r#"{"error": {"code": 404, "message": "Could not find Application Credential: c.", "title": "Not Found"}}"#;
    site.on(LOGIN, [reply(404, gone)]);
    let error = cloud.volume("v1").await.unwrap_err();
    assert!(error.is_credential_gone() && !error.is_not_found() && !error.is_retryable(), "{error}");
    assert_eq!((error.code(), error.kind()), ("credential_gone", Some("Not Found")));
    assert!(error.to_string().contains("the application credential is gone: make a new one"), "{error}");
    assert!(cloud.delete_volume("v1", true).await.unwrap_err().is_credential_gone());
    // The 404 of something that stands before Keystone says nothing of the credential.
    site.on(LOGIN, [reply(404, "<html>no such site</html>")]);
    let error = cloud.volume("v1").await.unwrap_err();
    assert!(!error.is_credential_gone() && !error.is_not_found(), "{error}");
    assert_eq!(site.count(""), site.count(LOGIN), "nothing else was asked");
}

/// Polls until `done`, with a generous deadline.
async fn until(mut done: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), waited).await.expect("it never came to be");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let (site, cloud) = Site::start().await;
    site.state().life = 2;
    site.on(ROUTERS, [empty()]);
    until(async || {
        cloud.routers().await.unwrap();
        site.count(LOGIN) == 3
    })
    .await;
    assert_eq!(site.state().refused, 0, "no call had to fail for it");
    site.was_strict();
}

#[tokio::test]
async fn the_old_token_serves_while_keystone_is_away() {
    let proxys = |status| reply(status, "<html>later</html>").with("Content-Type", "text/html");
    let away = [
        reply(503, "").with("Retry-After", "3600"),
        proxys(404),
        proxys(302).with("Location", "/maintenance"),
        proxys(200),
    ];
    join_all(away.map(serves_while)).await;
}

async fn serves_while(away: Reply) {
    let (site, cloud) = Site::start().await;
    site.state().life = 6;
    site.on(ROUTERS, [empty()]);
    cloud.routers().await.unwrap();
    site.on(LOGIN, [away]);
    until(async || {
        cloud.routers().await.unwrap();
        site.count(LOGIN) == 2
    })
    .await;
    for _ in 0..5 {
        cloud.routers().await.unwrap();
    }
    assert_eq!(site.count(LOGIN), 2, "the next try is not with the next call");
}

#[tokio::test]
async fn a_login_is_retried_after_a_transient_error() {
    let (site, cloud) = Site::start().await;
    site.state().life = 3600;
    site.on(LOGIN, [reply(503, "<html>busy</html>")]);
    let project = cloud.project_id();
    let heal = async {
        until(async || site.count(LOGIN) >= 2).await;
        site.on(LOGIN, []);
    };
    let (project, ()) = tokio::join!(project, heal);
    assert_eq!(project.unwrap(), PROJECT);
    assert!(site.count(LOGIN) >= 3);
}

#[tokio::test]
async fn the_catalogue_decides_which_services_exist() {
    let (site, cloud) = Site::start().await;
    for service in [Service::Network, Service::Compute, Service::BlockStorage, Service::LoadBalancer] {
        assert!(cloud.has_service(service).await.unwrap());
    }
    let metrics = || Metrics::register(&Registry::new()).unwrap();
    let internal = site.credentials("    interface: internal\n");
    let elsewhere = Cloud::new(&internal, "perimeter-test/1", &metrics()).unwrap();
    assert!(elsewhere.has_service(Service::Network).await.unwrap());
    let admin = site.credentials("    interface: admin\n");
    let nowhere = Cloud::new(&admin, "perimeter-test/1", &metrics()).unwrap();
    let error = nowhere.has_service(Service::Network).await.unwrap_err();
    assert!(error.is_no_service() && error.retry() == Retry::Never, "{error}");
    assert!(error.to_string().contains("no admin endpoint of network"), "{error}");
    site.state().catalog = json!([{"type": "image", "endpoints": []}]);
    site.state().valid.clear();
    let small = Cloud::new(&site.credentials(""), "perimeter-test/1", &metrics()).unwrap();
    assert!(!small.has_service(Service::LoadBalancer).await.unwrap());
    let error = small.load_balancers().await.unwrap_err();
    assert!(error.is_no_service() && error.to_string().contains("it has image"), "{error}");
}

/// Without microversions Nova cannot report which cells are down. What the user can fix in the credentials is another error.
#[tokio::test]
async fn a_nova_that_is_listed_without_microversions_alone_is_too_old() {
    let (site, _) = Site::start().await;
    let metrics = || Metrics::register(&Registry::new()).unwrap();
    let old = json!({"interface": "public", "region": "RegionOne", "url": "https://a:8774/v2/4aacf05d"});
    let new = json!({"interface": "internal", "region": "RegionOne", "url": "https://a:8774/v2.1"});
    for (endpoints, too_old) in [(json!([old]), true), (json!([old, new]), false)] {
        site.state().catalog = json!([{"type": "compute", "endpoints": endpoints}]);
        let cloud = Cloud::new(&site.credentials(""), "perimeter-test/1", &metrics()).unwrap();
        let errors =
            [cloud.has_service(Service::Compute).await.unwrap_err(), cloud.servers().await.unwrap_err()];
        for error in errors {
            assert_eq!((error.is_too_old(), error.retry()), (too_old, Retry::Never), "{error}");
            assert!(error.is_no_service() && error.to_string().contains("https://a:8774/v2/"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_nova_of_another_region_without_a_neutron_of_its_own_shares_ours() {
    let (site, cloud) = Site::start().await;
    assert!(!cloud.shares_neutron().await.unwrap());
    let other = json!({"interface": "public", "region": "RegionTwo", "url": "https://b/compute"});
    let other = json!({"type": "compute", "endpoints": [other]});
    site.state().catalog.as_array_mut().unwrap().push(other);
    for fields in ["", "    compute_region_name: RegionTwo\n"] {
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let cloud = Cloud::new(&site.credentials(fields), "perimeter-test/1", &metrics).unwrap();
        assert!(cloud.shares_neutron().await.unwrap(), "{fields}");
    }
}

#[tokio::test]
async fn cinder_is_found_with_and_without_a_project_in_its_path() {
    let (site, cloud) = Site::start().await;
    site.on("GET /volume/v3/snapshots/detail", [ok(&json!({"snapshots": []}))]);
    cloud.snapshots(Some).await.unwrap();
    site.state().catalog.as_array_mut().unwrap().retain(|entry| entry["type"] != "block-storage");
    let metrics = Metrics::register(&Registry::new()).unwrap();
    let cloud = Cloud::new(&site.credentials(""), "perimeter-test/1", &metrics).unwrap();
    site.on(&format!("GET /volume/v3/{PROJECT}/snapshots/detail"), [ok(&json!({"snapshots": []}))]);
    cloud.snapshots(Some).await.unwrap();
    site.was_strict();
}
