//! Errors: an object that is gone, transient failures, permanent ones.

use std::time::Duration;

use common::cloud::openstack::{Error, Retry};
use serde_json::json;

use crate::site::{LOGIN, Reply, Site, ok, reply};

const VOLUME: &str = "/volume/v3/volumes/v1";

fn gone() -> Reply {
    reply(404, r#"{"itemNotFound": {"code": 404, "message": "Volume v1 could not be found."}}"#)
}

#[tokio::test]
async fn an_object_is_gone_if_the_service_itself_reports_it() {
    let (site, cloud) = Site::start().await;
    site.on(&format!("GET {VOLUME}"), [gone()]);
    site.on(&format!("DELETE {VOLUME}"), [gone()]);
    assert_eq!(cloud.volume("v1").await.unwrap(), None);
    cloud.delete_volume("v1", true).await.unwrap();
    site.on(
        "GET /load-balancer/v2.0/lbaas/loadbalancers/l1",
        [reply(
            404,
            r#"{"faultcode": "Client", "faultstring": "Load Balancer l1 not found.", "debuginfo": null}"#,
        )],
    );
    assert_eq!(cloud.load_balancer("l1").await.unwrap(), None);
    site.on(
        "GET /networking/v2.0/routers/r1",
        [reply(404, r#"{"NeutronError": {"type": "RouterNotFound", "message": "Router r1 could not be found", "detail": ""}}"#)],
    );
    assert!(cloud.router("r1").await.unwrap_err().is_not_found());
    site.was_strict();
}

#[tokio::test]
async fn a_404_of_a_proxy_does_not_mean_that_the_object_is_gone() {
    let (site, cloud) = Site::start().await;
    for body in [
        "",
        "404 page not found",
        "<html><h1>404 Not Found</h1></html>",
        "{}",
        r#"{"message": "no Route matched with those values"}"#,
        r#"{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}"#,
    ] {
        site.on(&format!("GET {VOLUME}"), [reply(404, body)]);
        site.on(&format!("DELETE {VOLUME}"), [reply(404, body)]);
        for error in
            [cloud.volume("v1").await.unwrap_err(), cloud.delete_volume("v1", false).await.unwrap_err()]
        {
            assert!(!error.is_not_found() && error.code() == "not_found_elsewhere", "{error}");
        }
    }
}

/// The error of reading the volume while the service answers so.
async fn read(response: Reply) -> (Error, usize) {
    let (site, cloud) = Site::start().await;
    site.on(&format!("GET {VOLUME}"), [response]);
    let error = cloud.volume("v1").await.unwrap_err();
    (error, site.count("GET"))
}

/// Ten clouds that ask for a minute each must not occupy all workers of a controller: the call returns at once, and the error
/// carries the wait, although the read's own budget is longer than that.
#[tokio::test]
async fn a_long_retry_after_is_returned_to_the_caller() {
    for status in [429, 413, 503] {
        let limit = r#"{"overLimit": {"code": 413, "message": "This request was rate-limited."}}"#;
        let began = std::time::Instant::now();
        let (error, requests) = read(reply(status, limit).with("Retry-After", "60")).await;
        assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
        assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
        assert_eq!((error.retry(), requests), (Retry::After(Duration::from_secs(60)), 1), "{error}");
    }
}

#[tokio::test]
async fn a_long_retry_after_of_keystone_is_returned_to_the_caller() {
    let (site, cloud) = Site::start().await;
    site.on(LOGIN, [reply(429, "").with("Retry-After", "50")]);
    let began = std::time::Instant::now();
    let error = cloud.volume("v1").await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!((error.retry_after(), site.count(LOGIN)), (Some(Duration::from_secs(50)), 1), "{error}");
}

#[tokio::test]
async fn a_short_retry_after_is_waited_for() {
    let (site, cloud) = Site::start().await;
    let busy = reply(429, "").with("Retry-After", "1");
    let volume = json!({"volume": {"id": "v1", "status": "available", "size": 1}});
    site.on(&format!("GET {VOLUME}"), [busy, ok(&volume)]);
    let began = std::time::Instant::now();
    assert_eq!(cloud.volume("v1").await.unwrap().unwrap().id, "v1");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn an_exceeded_quota_is_not_retried() {
    let over = r#"{"overLimit": {"code": 413, "message": "VolumeLimitExceeded: Maximum number of volumes allowed"}}"#;
    for response in [reply(413, over), reply(413, over).with("Retry-After", "0")] {
        let (error, requests) = read(response).await;
        assert_eq!((error.retry(), requests, error.kind()), (Retry::Never, 1, Some("overLimit")));
    }
}

#[tokio::test]
async fn a_read_is_retried_until_it_succeeds() {
    let (site, cloud) = Site::start().await;
    let volume = json!({"volume": {"id": "v1", "status": "available", "size": 1}});
    let fault = reply(500, r#"{"computeFault": {"code": 500, "message": "Unexpected API Error."}}"#);
    site.on(&format!("GET {VOLUME}"), [fault, reply(502, "<html>bad gateway</html>"), ok(&volume)]);
    cloud.volume("v1").await.unwrap().unwrap();
    assert_eq!(site.count(&format!("GET {VOLUME}")), 3);
}

#[tokio::test]
async fn an_old_nova_is_reported() {
    let (site, cloud) = Site::start().await;
    let body = r#"{"computeFault": {"code": 406, "message": "Version 2.69 is not supported by the API. Minimum is 2.1 and maximum is 2.60."}}"#;
    site.on("GET /compute/v2.1/servers/s1", [reply(406, body)]);
    let error = cloud.server("s1").await.unwrap_err();
    assert_eq!(error.code(), "version");
    assert!(error.to_string().contains("older than this microversion"), "{error}");
}

/// A service may list its versions, and a proxy may redirect to TLS: redirects are not followed.
#[tokio::test]
async fn redirects_are_not_followed() {
    let versions =
        r#"{"versions": [{"id": "v3.0", "links": [{"rel": "self", "href": "http://elsewhere/v3/"}]}]}"#;
    for response in [reply(300, versions), reply(308, "").with("Location", "http://elsewhere/")] {
        let (error, requests) = read(response.clone()).await;
        assert!(error.to_string().contains("redirects are not followed"), "{error}");
        assert_eq!((error.retry(), requests, error.code()), (Retry::Never, 1, "refused"));
        let (site, cloud) = Site::start().await;
        site.on(LOGIN, [response]);
        let error = cloud.volume("v1").await.unwrap_err();
        assert!(error.to_string().contains("redirects of a login are not followed"), "{error}");
        assert_eq!(site.count(""), 1);
    }
}

#[tokio::test]
async fn an_absurd_retry_after_is_bounded() {
    for absurd in ["18446744073709551615", "Fri, 01 Jan 9999 00:00:00 GMT"] {
        let (error, requests) = read(reply(503, "").with("Retry-After", absurd)).await;
        assert_eq!((error.retry_after(), requests), (Some(Duration::from_secs(600)), 1), "{error}");
    }
}

#[tokio::test]
async fn a_response_that_a_proxy_compressed_is_reported() {
    let (error, requests) = read(reply(200, "\u{1f}").with("Content-Encoding", "gzip")).await;
    assert!(error.to_string().contains("the response is encoded (gzip)"), "{error}");
    assert_eq!(requests, 1);
    let volume = json!({"volume": {"id": "v1", "status": "available", "size": 1}});
    let (site, cloud) = Site::start().await;
    site.on(&format!("GET {VOLUME}"), [ok(&volume).with("Content-Encoding", "utf-8")]);
    cloud.volume("v1").await.unwrap().unwrap();
    assert_eq!(site.last().headers["accept-encoding"], "identity");
}

#[tokio::test]
async fn an_error_is_one_line_with_call_status_and_request_id() {
    let (error, _) =
        read(reply(403, r#"{"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}"#)).await;
    assert_eq!(
        error.to_string(),
        "block-storage GET /volume/v3/volumes/v1: 403 forbidden: Policy doesn't allow it. (req-1); a role or an access rule \
         is missing, see docs/openstack-rights.md"
    );
}

/// An address without a listener as a service's endpoint in the catalogue. It is no address of the clients of other tests, one of which
/// might get the port before a listener does.
async fn away(site: &Site, service: &str) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.77:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for entry in site.state().catalog.as_array_mut().unwrap() {
        if entry["type"] == service {
            entry["endpoints"][1]["url"] = json!(format!("http://{address}/volume/v3"));
        }
    }
    address
}

#[tokio::test]
async fn a_write_is_retried_while_no_connection_can_be_made() {
    let (site, cloud) = Site::start().await;
    let address = away(&site, "block-storage").await;
    site.on(&format!("DELETE {VOLUME}"), [reply(202, "")]);
    let comes_back = async {
        let failed = || {
            let text = prometheus::TextEncoder::new().encode_to_string(&site.registry.gather()).unwrap();
            text.contains(
                r#"cloud_api_requests_total{cloud="openstack",code="<error>",method="DELETE",service="block-storage"}"#,
            )
        };
        while !failed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        site.serve(tokio::net::TcpListener::bind(address).await.unwrap());
    };
    let (end, ()) = tokio::join!(cloud.delete_volume("v1", false), comes_back);
    end.unwrap();
    assert_eq!(site.count("DELETE"), 1);
    site.was_strict();
}

/// The connection breaks after the request was read: it may have acted, so it is not sent again.
#[tokio::test]
async fn a_write_that_may_have_acted_is_not_retried() {
    let (site, cloud) = Site::start().await;
    let address = away(&site, "block-storage").await;
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let cut = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let read = tokio::io::AsyncReadExt::read(&mut stream, &mut request).await.unwrap();
        assert!(request[..read].starts_with(b"DELETE /volume/v3/volumes/v1 "));
    };
    let (end, ()) = tokio::join!(cloud.delete_volume("v1", false), cut);
    let error = end.unwrap_err();
    assert!(error.code() == "no_response" && error.is_retryable(), "{error}");
    let second = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(second.is_err(), "there is no second connection");
}
