//! Routes: exactly the given routes are written.

use common::cloud::openstack::Route;
use serde_json::{Value, json};

use crate::site::{PROJECT, Site, ok, reply};

const ROUTER: &str = "/networking/v2.0/routers/r1";

fn route(n: u8) -> Route {
    Route { destination: format!("10.100.{n}.0/24"), nexthop: format!("10.7.0.{n}") }
}

fn router(routes: &[u8], revision: u64) -> Value {
    let routes: Vec<Value> = routes
        .iter()
        .map(|n| json!({"destination": route(*n).destination, "nexthop": route(*n).nexthop}))
        .collect();
    json!({"router": {
        "id": "r1", "name": "r", "project_id": "p", "tenant_id": "p", "revision_number": revision, "routes": routes,
        "external_gateway_info": null, "ha": false,
    }})
}

#[tokio::test]
async fn the_three_writes_send_the_texts_unchanged() {
    let (site, cloud) = Site::start().await;
    let odd = Route { destination: "FD00:0:1::/64".to_owned(), nexthop: "fd00::00A".to_owned() };
    let body = json!({"router": {"routes": [{"destination": "FD00:0:1::/64", "nexthop": "fd00::00A"}]}});
    for path in ["remove_extraroutes", "add_extraroutes"] {
        site.on(&format!("PUT {ROUTER}/{path}"), [ok(&router(&[1], 7))]);
    }
    site.on(&format!("PUT {ROUTER}"), [ok(&router(&[], 8))]);
    let routes = std::slice::from_ref(&odd);
    let left = cloud.remove_extraroutes("r1", routes, Some(6)).await.unwrap();
    assert_eq!((left.routes, left.revision_number), (vec![route(1)], Some(7)));
    let seen = site.last();
    assert_eq!(seen.line, format!("PUT {ROUTER}/remove_extraroutes"));
    assert_eq!((seen.body, seen.headers["if-match"].to_str().unwrap()), (body.clone(), "revision_number=6"));
    cloud.add_extraroutes("r1", routes, None).await.unwrap();
    let seen = site.last();
    assert_eq!(seen.line, format!("PUT {ROUTER}/add_extraroutes"));
    assert!(seen.body == body && !seen.headers.contains_key("if-match"));
    cloud.replace_routes("r1", routes, Some(0)).await.unwrap();
    let seen = site.last();
    assert_eq!(seen.line, format!("PUT {ROUTER}"));
    assert_eq!((seen.body, seen.headers["if-match"].to_str().unwrap()), (body, "revision_number=0"));
    assert!(cloud.replace_routes("r1", &[], Some(1)).await.unwrap().routes.is_empty());
    assert_eq!(site.last().body, json!({"router": {"routes": []}}));
    site.was_strict();
}

#[tokio::test]
async fn a_request_that_neutron_would_fail_with_500_is_not_sent() {
    let (site, cloud) = Site::start().await;
    let half = Route { destination: "10.0.0.0/24".to_owned(), nexthop: String::new() };
    for routes in [&[][..], &[route(1), half]] {
        for end in [
            cloud.remove_extraroutes("r1", routes, None).await,
            cloud.add_extraroutes("r1", routes, None).await,
        ] {
            let error = end.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("setup", false), "{error}");
        }
    }
    assert!(site.state().seen.is_empty());
}

#[tokio::test]
async fn refusals_are_distinguished_and_not_retried() {
    let (site, cloud) = Site::start().await;
    let path = format!("PUT {ROUTER}/remove_extraroutes");
    let neutron = |kind: &str, message: &str| {
        json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}).to_string()
    };
    let long = neutron("InvalidRoutes", &"Invalid format for routes: [{'destination': ...}], ".repeat(50));
    for (status, body, code, kind) in [
        (
            412,
            neutron("RevisionNumberConstraintFailed", "Constrained to 10, but current revision is 11"),
            "precondition_failed",
            Some("RevisionNumberConstraintFailed"),
        ),
        (400, long, "bad_request", Some("InvalidRoutes")),
        (
            400,
            neutron("RoutesExhausted", "Unable to complete operation"),
            "bad_request",
            Some("RoutesExhausted"),
        ),
        (
            409,
            neutron("OverQuota", "Quota exceeded for resources: ['router_route']."),
            "over_quota",
            Some("OverQuota"),
        ),
        (409, neutron("RouterInUse", "Router r1 is busy"), "conflict", Some("RouterInUse")),
        (
            403,
            neutron("PolicyNotAuthorized", "rule:update_router is disallowed by policy"),
            "forbidden",
            Some("PolicyNotAuthorized"),
        ),
        (404, neutron("RouterNotFound", "Router r1 could not be found"), "not_found", Some("RouterNotFound")),
        (
            404,
            neutron("HTTPNotFound", "The resource could not be found."),
            "not_found_elsewhere",
            Some("HTTPNotFound"),
        ),
        (
            500,
            neutron("HTTPInternalServerError", "Request Failed: internal server error"),
            "server_error",
            Some("HTTPInternalServerError"),
        ),
        (503, "<html>no backend</html>".to_owned(), "server_error", None),
    ] {
        site.on(&path, [reply(status, &body)]);
        let before = site.count(&path);
        let error = cloud.remove_extraroutes("r1", &[route(1)], Some(10)).await.unwrap_err();
        assert_eq!((error.code(), error.kind(), error.status()), (code, kind, Some(status)), "{error}");
        assert_eq!(error.is_retryable(), status >= 500, "{error}");
        assert_eq!(error.is_precondition_failed(), status == 412);
        assert_eq!(error.is_conflict(), status == 409);
        assert_eq!(error.is_bad_request(), status == 400);
        assert_eq!(error.is_forbidden(), status == 403);
        assert_eq!(error.is_not_found(), code == "not_found");
        assert_eq!(error.request_id(), Some("req-1"));
        let text = error.to_string();
        assert!(text.starts_with(&format!("network {path}: {status}")) && text.contains("(req-1)"), "{text}");
        assert_eq!(site.count(&path), before + 1, "a write is sent once");
    }
    site.was_strict();
}

#[tokio::test]
async fn a_router_with_missing_fields_is_read() {
    let (site, cloud) = Site::start().await;
    site.on(&format!("GET {ROUTER}"), [ok(&json!({"router": {"id": "r1", "name": null}}))]);
    let bare = cloud.router("r1").await.unwrap();
    assert_eq!((bare.revision_number, bare.routes.len(), bare.name.as_str()), (None, 0, ""));
    site.on("GET /networking/v2.0/routers", [ok(&json!({"routers": [router(&[1, 2], 3)["router"]]}))]);
    assert_eq!(cloud.routers().await.unwrap()[0].routes, [route(1), route(2)]);
    assert_eq!(site.last().line, "GET /networking/v2.0/routers?project_id=4aacf05d&limit=500");
    site.was_strict();
}

#[tokio::test]
async fn routers_of_a_name_have_exactly_this_name_and_are_of_this_project() {
    let (site, cloud) = Site::start().await;
    let named = |id: &str, name: &str, project: &str| json!({"id": id, "name": name, "project_id": project});
    let routers = [
        named("r1", "edge 1", PROJECT),
        named("r2", "Edge 1", PROJECT),
        named("r3", "edge 1", "another"),
        json!({"id": "r4", "name": "edge 1"}),
        json!({"id": "r5", "name": "edge 1", "project_id": null, "tenant_id": PROJECT}),
        json!({"id": "r6", "name": "edge 1", "tenant_id": "another"}),
    ];
    site.on("GET /networking/v2.0/routers", [ok(&json!({ "routers": routers }))]);
    let found = cloud.routers_named("edge 1").await.unwrap();
    assert_eq!(found.iter().map(|router| router.id.as_str()).collect::<Vec<_>>(), ["r1", "r5"]);
    let line = "GET /networking/v2.0/routers?name=edge%201&project_id=4aacf05d&limit=500";
    assert_eq!(site.last().line, line);
    let sent = site.count("GET /networking/v2.0/routers");
    assert!(cloud.routers_named("").await.is_err(), "an empty filter brings all routers");
    assert_eq!(site.count("GET /networking/v2.0/routers"), sent);
    site.was_strict();
}
