//! Sets the commit and the compiler of this build for `--version`, the user agent and the build-info metric.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=PERIMETER_REVISION");
    println!("cargo::rerun-if-changed=build.rs");
    let revision = env::var("PERIMETER_REVISION").ok().filter(|given| !given.is_empty());
    println!("cargo::rustc-env=PERIMETER_REVISION={}", revision.unwrap_or_else(ask));

    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"])
        .and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PERIMETER_RUSTC={version}");
}

/// A debug build is work in progress without a commit: it reports that, and a new commit compiles nothing.
fn ask() -> String {
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return "development".to_owned();
    }
    watch_the_commit();
    output("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

/// A new commit changes one of these files. Only files that exist are named: cargo rebuilds each time for one that does not.
fn watch_the_commit() {
    let branch = output("git", &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = output("git", &["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
