//! A list is complete, or an error.

use serde_json::{Value, json};

use crate::site::{PROJECT, Reply, Site, ok, reply};

fn server(id: u32) -> Value {
    json!({"id": format!("s{id}"), "name": "n", "status": "ACTIVE", "addresses": {}})
}

/// A page of these servers, with a link to `next`.
fn page(servers: &[u32], next: Option<&str>) -> Reply {
    let servers: Vec<Value> = servers.iter().map(|id| server(*id)).collect();
    let mut body = json!({"servers": servers});
    if let Some(next) = next {
        // As a proxy makes it: another scheme, host and path.
        let href = format!("https://nova.internal:8774/v2.1/servers/detail?{next}");
        body["servers_links"] = json!([{"rel": "previous", "href": "x"}, {"rel": "next", "href": href}]);
    }
    ok(&body)
}

const GROUP_FIELDS: &str = "fields=id&fields=name&fields=description&fields=project_id&";
const FIRST: &str = "GET /compute/v2.1/servers/detail";

#[tokio::test]
async fn the_next_page_is_requested_at_the_endpoint_of_the_catalogue() {
    let (site, cloud) = Site::start().await;
    site.on(FIRST, [page(&[1, 2], Some("limit=2&marker=s2"))]);
    site.on("GET /compute/v2.1/servers/detail?limit=2&marker=s2", [page(&[3], Some("marker=s3#x"))]);
    let last = json!({"servers": [server(4)], "servers_links": [{"rel": "previous", "href": "/?marker=s4"}]});
    site.on("GET /compute/v2.1/servers/detail?marker=s3", [ok(&last)]);
    let ids: Vec<String> = cloud.servers().await.unwrap().into_iter().map(|server| server.id).collect();
    assert_eq!(ids, ["s1", "s2", "s3", "s4"]);
    site.was_strict();
}

#[tokio::test]
async fn a_page_is_retried_after_a_transient_error() {
    let (site, cloud) = Site::start().await;
    site.on(FIRST, [page(&[1], Some("marker=s1"))]);
    let busy = reply(503, "<html>busy</html>");
    site.on("GET /compute/v2.1/servers/detail?marker=s1", [busy.clone(), busy, page(&[2], None)]);
    assert_eq!(cloud.servers().await.unwrap().len(), 2);
}

/// A rate limiter may refuse every tenth request.
#[tokio::test]
async fn each_page_has_its_own_number_of_retries() {
    let (site, cloud) = Site::start().await;
    for id in 1..=6 {
        let line = if id == 1 { FIRST.to_owned() } else { format!("{FIRST}?marker=s{}", id - 1) };
        let next = format!("marker=s{id}");
        site.on(&line, [reply(429, ""), page(&[id], (id < 6).then_some(next.as_str()))]);
    }
    assert_eq!(cloud.servers().await.unwrap().len(), 6);
    assert_eq!(site.count(FIRST), 12);
}

#[tokio::test]
async fn a_page_that_fails_fails_the_list() {
    let second = "GET /compute/v2.1/servers/detail?marker=s1";
    for (wrong, code, retry) in [
        (
            reply(403, r#"{"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}"#),
            "forbidden",
            false,
        ),
        (
            reply(400, r#"{"badRequest": {"code": 400, "message": "marker [s1] not found"}}"#),
            "bad_request",
            false,
        ),
        (
            reply(404, r#"{"itemNotFound": {"code": 404, "message": "marker [s1] not found"}}"#),
            "not_found",
            false,
        ),
        (reply(200, "{}"), "unreadable", false),
        (reply(200, r#"{"servers": null}"#), "unreadable", false),
        (reply(200, r#"{"servers": [{"id": 1}]}"#), "unreadable", false),
        (reply(200, "<html>sign in</html>"), "unreadable", false),
        (reply(204, ""), "unreadable", false),
        (reply(503, "").with("Retry-After", "3600"), "server_error", true),
        (page(&[2], Some("marker=s1")), "partial_list", true),
    ] {
        let (site, cloud) = Site::start().await;
        site.on(FIRST, [page(&[1], Some("marker=s1"))]);
        site.on(second, [wrong.clone()]);
        let error = cloud.servers().await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (code, retry), "{error} {wrong:?}");
        assert_eq!(site.count(second), 1);
    }
}

/// A server may truncate a list without a link to the next page: a page as long as the limit may not be the last.
#[tokio::test]
async fn a_page_as_long_as_the_limit_is_followed_by_another_request() {
    let (site, cloud) = Site::start().await;
    let group = |id: u32| json!({"id": format!("g{id}"), "name": "n", "project_id": PROJECT});
    let page = |ids: &[u32]| {
        let groups: Vec<Value> = ids.iter().map(|id| group(*id)).collect();
        ok(&json!({"security_groups": groups}))
    };
    let ids: Vec<u32> = (1..=500).collect();
    let first = format!("GET /networking/v2.0/security-groups?project_id={PROJECT}&{GROUP_FIELDS}limit=500");
    let behind = format!("{first}&marker=g500");
    site.on(&first, [page(&ids)]);
    site.on(&behind, [page(&[501])]);
    assert_eq!(cloud.security_groups().await.unwrap().len(), 501);
    site.on(&behind, [page(&[])]);
    assert_eq!(cloud.security_groups().await.unwrap().len(), 500);
    // One that does not know markers, either.
    site.on(&behind, [page(&ids)]);
    assert_eq!(cloud.security_groups().await.unwrap_err().code(), "partial_list");
    // One that says that there are no more, and one that does not know limits.
    let asked = site.count(&behind);
    let mut groups: Vec<Value> = ids.iter().map(|id| group(*id)).collect();
    site.on(&first, [ok(&json!({"security_groups": groups, "security_groups_links": []}))]);
    assert_eq!(cloud.security_groups().await.unwrap().len(), 500);
    groups.push(group(501));
    site.on(&first, [ok(&json!({"security_groups": groups, "security_groups_links": null}))]);
    assert_eq!(cloud.security_groups().await.unwrap().len(), 501);
    assert_eq!(site.count(&behind), asked);
    site.was_strict();
}

#[tokio::test]
async fn loops_of_any_length_end() {
    let (site, cloud) = Site::start().await;
    site.on(
        "GET /compute/v2.1/servers/detail",
        [
            page(&[1], Some("marker=a")),
            page(&[2], Some("marker=b&limit=1")),
            page(&[3], Some("limit=1&marker=a")),
            page(&[4], None),
        ],
    );
    let error = cloud.servers().await.unwrap_err();
    assert!(error.to_string().contains("links to a page that was already read"), "{error}");
    assert_eq!(site.count("GET /compute"), 3);
    site.on("GET /compute/v2.1/servers/detail", [page(&[1], Some(""))]);
    let error = cloud.servers().await.unwrap_err();
    assert!(error.to_string().contains("no query"), "{error}");
}

#[tokio::test]
async fn servers_of_a_cell_that_is_down_are_listed() {
    let (site, cloud) = Site::start().await;
    let down = json!({"id": "s2", "status": "UNKNOWN", "tenant_id": "p", "created": "2026-01-01T00:00:00Z"});
    site.on(FIRST, [ok(&json!({"servers": [server(1), down]}))]);
    let servers = cloud.servers().await.unwrap();
    assert_eq!(
        (servers[1].status.as_str(), &servers[1].name, &servers[1].addresses),
        ("UNKNOWN", &None, &None)
    );
    assert_eq!(servers[0].addresses.as_ref().unwrap().len(), 0);
    site.was_strict();
}

#[tokio::test]
async fn there_are_no_floating_ips_where_neutron_lacks_the_router_extension() {
    let extensions = |aliases: &[&str]| {
        let all: Vec<Value> = aliases.iter().map(|alias| json!({ "alias": alias })).collect();
        ok(&json!({ "extensions": all }))
    };
    let error_body = |kind: &str, message: &str| {
        reply(404, &json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}).to_string())
    };
    let unknown = || error_body("HTTPNotFound", "The resource could not be found.");
    let without = || extensions(&["security-group", "extraroute"]);
    let refusal = r#"{"NeutronError": {"type": "HTTPForbidden", "message": "no", "detail": ""}}"#;
    for (response, extensions, end, asked) in [
        (unknown(), without(), Ok(vec![]), 1),
        (reply(404, "<html>404</html>"), without(), Ok(vec![]), 1),
        (unknown(), extensions(&["router", "security-group"]), Err("not_found_elsewhere"), 1),
        (unknown(), reply(403, refusal), Err("forbidden"), 1),
        (unknown(), reply(200, "{}"), Err("unreadable"), 1),
        (unknown(), unknown(), Err("not_found_elsewhere"), 1),
        (error_body("NetworkNotFound", "Network n1 could not be found."), without(), Err("not_found"), 0),
        (reply(403, refusal), without(), Err("forbidden"), 0),
    ] {
        let (site, cloud) = Site::start().await;
        site.on("GET /networking/v2.0/floatingips", [response.clone()]);
        site.on("GET /networking/v2.0/extensions", [extensions]);
        assert_eq!(cloud.floating_ips().await.map_err(|error| error.code()), end, "{response:?}");
        assert_eq!(site.count("GET /networking/v2.0/extensions"), asked, "{response:?}");
        site.was_strict();
    }
}
