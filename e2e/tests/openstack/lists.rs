//! Lists, page by page.

use std::collections::BTreeSet;

use e2e::openstack::{Knobs, OpenStack, Parts, Release, Service};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_list_ends_where_no_next_page_is_named() {
    let knobs = Knobs { page_max: 3, ..Knobs::default() };
    let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, knobs).await.unwrap();
    let project = cloud.project("pages").await.unwrap();
    let mut made = BTreeSet::new();
    for _ in 0..7 {
        made.insert(project.port(None, Some("one-device")).await.unwrap());
    }
    let base = cloud.endpoints().base(Service::Network).unwrap();
    for first in ["/ports?device_id=one-device", "/ports?device_id=one-device&limit=100"] {
        let (mut path, mut seen, mut pages) = (first.to_owned(), Vec::new(), 0);
        loop {
            let page = project.api().get(Service::Network, &path).await.unwrap();
            let ports = page["ports"].as_array().unwrap();
            // The server's limit applies without a limit in the request, and to a larger one.
            assert!(ports.len() <= 3);
            seen.extend(ports.iter().map(|port| port["id"].as_str().unwrap().to_owned()));
            pages += 1;
            let links = page["ports_links"].as_array().unwrap();
            let next = links.iter().find(|link| link["rel"] == "next");
            let Some(next) = next.and_then(|link| link["href"].as_str()) else {
                // The last page has links too.
                assert!(links.iter().all(|link| link["rel"] == "previous") && !links.is_empty());
                break;
            };
            path = next.strip_prefix(&base).unwrap().to_owned();
        }
        assert_eq!(pages, 3);
        assert_eq!(seen.len(), 7);
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), made);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn projects_do_not_see_each_other() {
    super::on_each_release(async |_, cloud| {
        let (one, other) = (cloud.project("one").await.unwrap(), cloud.project("other").await.unwrap());
        let port = one.port(Some("10.7.0.5"), None).await.unwrap();
        other.port(Some("10.7.0.5"), None).await.unwrap();
        assert_eq!(other.api().find(Service::Network, &format!("/ports/{port}")).await.unwrap(), None);
        let routers = other.credential_api().get(Service::Network, "/routers").await.unwrap();
        let routers: Vec<_> =
            routers["routers"].as_array().unwrap().iter().map(|router| router["id"].clone()).collect();
        assert_eq!(routers, [Value::from(other.router.clone())]);
    })
    .await;
}
