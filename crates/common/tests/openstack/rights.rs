//! `docs/openstack-rights.md` shows the table of calls.

use common::cloud::openstack::{Call, Service, User};

/// The path as an access rule has it: of the service's root, with an asterisk for an ID.
fn rule(service: Service, path: &str) -> String {
    let version = match service {
        Service::Network => "/v2.0",
        Service::Compute => "/v2.1",
        Service::BlockStorage => "/v3",
        Service::LoadBalancer => "/v2.0/lbaas",
        Service::Identity => "/v3",
    };
    format!("{version}{}", path.replace("{id}", "*"))
}

#[test]
fn the_page_lists_every_call_with_its_users_and_no_other() {
    let selected: Vec<String> = Call::ALL
        .iter()
        .map(|call| call.right())
        .filter(|right| !right.users.is_empty())
        .map(|right| {
            let users = User::ALL.map(|user| if right.users.contains(&user) { "x" } else { "" });
            let path = rule(right.service, right.path);
            format!("| {} | {} | `{path}` | {} |", right.service, right.method, users.join(" | "))
        })
        .collect();
    let page = include_str!("../../../../docs/openstack-rights.md");
    let found: Vec<&str> = page.lines().filter(|line| line.contains("| `/")).collect();
    let heading =
        format!("| service | method | path | {} |", User::ALL.map(|user| user.to_string()).join(" | "));
    assert!(page.lines().any(|line| line == heading), "the heading is:\n{heading}");
    assert_eq!(found, selected, "the table is:\n{}", selected.join("\n"));
}

#[test]
fn only_modes_that_may_change_something_use_writing_calls() {
    for call in Call::ALL {
        let right = call.right();
        let reads = right.method == http::Method::GET;
        for user in [User::RoutegcAudit, User::DeorbiterReport] {
            assert!(reads || !right.users.contains(&user), "{user} {right:?}");
        }
    }
}
