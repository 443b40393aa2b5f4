//! Routes of a router: revisions, the atomic calls, limits.

use e2e::openstack::{Api, Project, Release, Service};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::on_each_release;

/// `PUT` of something of the router, with an If-Match if one is given: the status, and the kind of Neutron's error.
async fn put(project: &Project, what: &str, if_match: Option<&str>, routes: Value) -> (u16, String) {
    let path = format!("/routers/{}{what}", project.router);
    let headers: Vec<_> = if_match.map(|value| ("if-match", value)).into_iter().collect();
    let body = json!({ "router": { "routes": routes } });
    let response =
        project.api().send(Method::PUT, Service::Network, &path, &headers, Some(&body)).await.unwrap();
    let kind =
        response.json().pointer("/NeutronError/type").and_then(Value::as_str).unwrap_or_default().to_owned();
    (response.status.as_u16(), kind)
}

fn route(number: u8) -> Value {
    json!({ "destination": format!("10.244.{number}.0/24"), "nexthop": format!("10.7.1.{number}") })
}

async fn revision(project: &Project) -> u64 {
    project.router().await.unwrap()["revision_number"].as_u64().unwrap()
}

fn ok() -> (u16, String) {
    (200, String::new())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn if_match_has_two_valid_forms() {
    on_each_release(async |_, cloud| {
        let project = cloud.project("if-match").await.unwrap();
        for (index, form) in ["revision_number=N", "\"revision_number=N\""].iter().enumerate() {
            let number = u8::try_from(index).unwrap() + 1;
            let current = form.replace('N', &revision(&project).await.to_string());
            assert_eq!(put(&project, "/add_extraroutes", Some(&current), json!([route(number)])).await, ok());
            let stale = (412, "RevisionNumberConstraintFailed".to_owned());
            for (what, routes) in [
                ("/add_extraroutes", json!([route(100)])),
                ("/remove_extraroutes", json!([route(number)])),
                ("", json!([])),
            ] {
                assert_eq!(put(&project, what, Some(&current), routes).await, stale, "{what} {current}");
            }
            // Without a change, the revision is not compared.
            assert_eq!(put(&project, "/remove_extraroutes", Some(&current), json!([route(200)])).await, ok());
        }
        // An unknown form is ignored, and the write succeeds.
        for (index, unknown) in ["\"0\"", "0", "*", "W/\"0\"", "REVISION_NUMBER=0"].iter().enumerate() {
            let number = u8::try_from(index).unwrap() + 10;
            let written = put(&project, "/add_extraroutes", Some(unknown), json!([route(number)])).await;
            assert_eq!(written, ok(), "{unknown}");
        }
        assert_eq!(put(&project, "", Some("revision_number=abc"), json!([])).await.0, 400);
        assert_eq!(project.routes().await.unwrap().len(), 7);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn atomic_calls_touch_exactly_the_pairs_that_they_name() {
    on_each_release(async |_, cloud| {
        let project = cloud.project("atomic").await.unwrap();
        let pairs =
            [("10.244.1.0/24", "10.7.1.1"), ("10.244.1.0/24", "10.7.1.2"), ("10.244.2.0/24", "10.7.1.2")];
        project.add_routes(&pairs).await.unwrap();
        let before = revision(&project).await;
        // Adding an existing route and removing a missing one succeed without a change.
        project.add_routes(&pairs).await.unwrap();
        project.remove_routes(&[("10.244.1.0/24", "10.7.1.9"), ("10.244.9.0/24", "10.7.1.1")]).await.unwrap();
        assert_eq!(revision(&project).await, before);
        project.remove_routes(&pairs[..1]).await.unwrap();
        let left: Vec<_> = pairs[1..].iter().map(|(to, via)| ((*to).to_owned(), (*via).to_owned())).collect();
        assert_eq!(project.routes().await.unwrap(), left);
        // An invalid route makes the whole request fail.
        let bad = json!([route(50), { "destination": "10.244.51.0/24", "nexthop": "203.0.113.1" }]);
        assert_eq!(put(&project, "/add_extraroutes", None, bad).await, (400, "InvalidRoutes".to_owned()));
        let bits = json!([{ "destination": "10.244.50.1/24", "nexthop": "10.7.1.1" }]);
        assert_eq!(put(&project, "", None, bits.clone()).await.0, 400);
        assert_eq!(project.routes().await.unwrap(), left);
        // The atomic call accepts spellings that the plain one refuses, and stores them unchanged.
        assert_eq!(put(&project, "/add_extraroutes", None, bits).await, ok());
        let written = ("10.244.50.1/24".to_owned(), "10.7.1.1".to_owned());
        assert!(project.routes().await.unwrap().contains(&written));
        // An optional field that is null empties the router.
        assert_eq!(put(&project, "", None, Value::Null).await, ok());
        assert_eq!(project.routes().await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_full_router_has_the_error_of_its_release() {
    on_each_release(async |release, cloud| {
        let project = cloud.project("full").await.unwrap();
        let thirty: Vec<_> = (1..=30).map(route).collect();
        assert_eq!(put(&project, "/add_extraroutes", None, json!(thirty)).await, ok());
        let refused = put(&project, "/add_extraroutes", None, json!([route(31)])).await;
        let expected = match release {
            Release::Main => (409, "OverQuota".to_owned()),
            Release::Oldest => (400, "RoutesExhausted".to_owned()),
        };
        assert_eq!(refused, expected);
        assert_eq!(project.routes().await.unwrap().len(), 30);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_route_outlives_the_port_of_its_next_hop() {
    on_each_release(async |release, cloud| {
        let project = cloud.project("orphan").await.unwrap();
        let port = project.port(Some("10.7.1.5"), Some("a-server")).await.unwrap();
        project.add_routes(&[("10.244.5.0/24", "10.7.1.5")]).await.unwrap();
        // Since the main release a server's port is not its owner's to delete.
        let path = format!("/ports/{port}");
        let delete = async |api: &Api| {
            api.send(Method::DELETE, Service::Network, &path, &[], None).await.unwrap().status
        };
        let own = delete(project.api()).await;
        match release {
            Release::Main => assert_eq!(own, StatusCode::FORBIDDEN),
            Release::Oldest => assert_eq!(own, StatusCode::NO_CONTENT),
        }
        if own == StatusCode::FORBIDDEN {
            assert_eq!(delete(cloud.admin()).await, StatusCode::NO_CONTENT);
        }
        assert_eq!(project.routes().await.unwrap(), [("10.244.5.0/24".to_owned(), "10.7.1.5".to_owned())]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn writers_lose_each_others_routes_unless_they_use_the_atomic_calls() {
    on_each_release(async |_, cloud| {
        let project = cloud.project("writers").await.unwrap();
        let writer = async |first: u8| {
            for number in first..first + 3 {
                let added = route(number);
                let pair = (added["destination"].as_str().unwrap(), added["nexthop"].as_str().unwrap());
                project.add_routes(&[pair]).await.unwrap();
            }
        };
        tokio::join!(writer(10), writer(20), writer(30), writer(40));
        assert_eq!(project.routes().await.unwrap().len(), 12);
        // A plain write removes routes that the other writer added after its read.
        let read = project.router().await.unwrap()["routes"].clone();
        writer(50).await;
        assert_eq!(put(&project, "", None, read).await, ok());
        assert_eq!(project.routes().await.unwrap().len(), 12);
    })
    .await;
}
