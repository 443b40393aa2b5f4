//! The monitoring components: prometheus-operator's CRDs accept the objects, promtool accepts the rules, every alert fires in its case and no
//! other, every metric of a rule or a panel exists, and every alert has a runbook.

mod alerts;
mod apinetlet;
mod cases;
mod cgw;
pub mod component;
mod deorbiter;
mod metrics;
pub mod promql;
mod resources;
mod routegc;
mod runbooks;
mod scrape;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use component::Component;

/// Controllers with a folder in manifests/components/monitoring. A new one needs a scrape here.
const CONTROLLERS: [&str; 5] = ["apinetlet", "cgw-controller", "deorbiter", "natgw", "routegc"];

/// Runs a program of the assets to its end.
fn run(program: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // In a thread, because a program may write before it has read all of its input.
    let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = feed.join().unwrap();
    output
}

/// Runs promtool, which must succeed. Returns its output.
fn promtool(args: &[&str], input: &str) -> String {
    let output = run(&e2e::assets::promtool(), args, input);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {}: {}\n{text}", args.join(" "), output.status);
    text
}

#[test]
fn every_monitored_controller_is_tested() {
    let mut folders: Vec<String> =
        std::fs::read_dir(e2e::kustomize::manifests().join("components/monitoring"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
    folders.sort();
    assert_eq!(folders, CONTROLLERS);
}

#[test]
fn prometheus_accepts_the_rules() {
    for controller in CONTROLLERS {
        let folder = tempfile::tempdir().unwrap();
        let rules = Component::of(controller).rules_file(folder.path());
        let text = promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules], "");
        assert!(text.contains("rules found"), "{text}");
    }
}
