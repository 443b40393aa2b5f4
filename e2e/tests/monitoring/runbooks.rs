//! Every alert has a summary, a description and a runbook with the four sections.

use std::collections::BTreeSet;
use std::path::Path;

use super::CONTROLLERS;
use super::component::Component;
use super::scrape;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");
const ADDRESS: &str = "https://github.com/perimeter-dev/perimeter/blob/main/docs/runbooks/";

/// The sections of every page, in this order.
const HEADINGS: [&str; 4] = ["Meaning", "Impact", "Diagnosis", "Mitigation"];

fn read(name: &str) -> String {
    let file = Path::new(FOLDER).join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn every_alert_has_its_runbook_and_every_runbook_its_alert() {
    let index = read("README.md");
    let mut pages = BTreeSet::new();
    for alert in CONTROLLERS.iter().flat_map(|controller| Component::of(controller).alerts()) {
        let name = &alert.name;
        assert!(
            ["critical", "warning", "info"].contains(&alert.severity.as_str()),
            "{name}: {}",
            alert.severity
        );
        for annotation in ["summary", "description"] {
            let text = alert.annotations[annotation].as_str().unwrap_or_default();
            assert!(text.ends_with('.') && !text.contains('\n'), "{name}: {annotation}: {text:?}");
        }
        let page = format!("{name}.md");
        assert_eq!(alert.annotations["runbook_url"], format!("{ADDRESS}{page}").as_str());
        let text = read(&page);
        assert!(text.starts_with(&format!("# {name}\n")), "{page} has another title");
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{page}");
        let row = format!("| [{name}]({page}) | {} |", alert.severity);
        assert!(index.contains(&row), "README.md has no row {row}");
        pages.insert(page);
    }
    let there: BTreeSet<String> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(there, pages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_a_runbook_names_is_there() {
    let mut series = scrape::natgw().await.series("natgw");
    series.extend(scrape::cgw().await);
    let known: BTreeSet<&str> = series.iter().map(|one| one.name.as_str()).collect();
    let prefixes = [
        "natgw_",
        "cgw_controller_",
        "cgw_keeper_",
        "cgw_agent_",
        "perimeter_",
        "cloud_",
        "controller_runtime_",
        "leader_election_",
        "rest_client_",
    ];
    let mut seen = 0;
    for entry in std::fs::read_dir(FOLDER).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = read(&name);
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if prefixes.iter().any(|prefix| word.starts_with(prefix)) {
                assert!(known.contains(word), "{name}: there is no metric {word}");
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} metrics are named");
}

#[test]
fn the_runbooks_patch_removes_the_alert_that_it_names() {
    let text = read("NatgwNoStandbyGateway.md");
    let index = Component::of("natgw")
        .alerts()
        .iter()
        .position(|alert| alert.name == "NatgwNoStandbyGateway")
        .unwrap();
    let path = format!("/spec/groups/0/rules/{index}");
    assert!(
        text.contains(&format!("{{op: test, path: {path}/alert, value: NatgwNoStandbyGateway}}")),
        "{path}"
    );
    assert!(text.contains(&format!("{{op: remove, path: {path}}}")), "{path}");
}
