//! schemathesis generates requests from the served description, valid and invalid ones, and checks each response against it: at most
//! 5 for each operation in `make test`, 25 in `make test-full`.

use std::path::PathBuf;
use std::process::Command;

use e2e::sweep::Slice;

use super::env::TestEnv;

const REQUIREMENTS: &str = include_str!("requirements.txt");

/// The Python with schemathesis, which `scripts/python.sh schemathesis` installs.
fn python() -> PathBuf {
    let version = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("schemathesis==")).unwrap();
    let cache = || {
        let default = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(default, PathBuf::from).join("perimeter")
    };
    let assets = std::env::var_os("PERIMETER_ASSETS").map_or_else(cache, PathBuf::from);
    let python = assets.join(format!("schemathesis-{version}/python"));
    assert!(python.exists(), "schemathesis is missing ({}): run `make assets` first", python.display());
    python
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_served_description_is_what_the_api_does() {
    let env = TestEnv::start().await;
    let controller = env.controller().await;
    let token = env.token("admin", "cgw-controller.perimeter.dev").await;
    let whole = Slice::chosen("cgw-controller's API", 2).unwrap().is_whole();
    // It keeps its examples in the working directory.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python());
    command
        .current_dir(folder.path())
        .args(["-m", "schemathesis.cli", "run"])
        .arg(format!("https://{}/openapi.json", controller.api))
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--tls-verify", "false", "--max-examples", if whole { "25" } else { "5" }])
        .args(["--generation-deterministic", "--no-color"])
        // A request that is refused before its body is read ends the connection, which some requests of the tool then meet.
        .args(["--request-retries", "3"])
        // A 503 is documented: the API server may be away.
        .args(["--checks", "all", "--exclude-checks", "not_a_server_error"])
        .env("HOME", folder.path());
    let output = tokio::task::spawn_blocking(move || {
        let _slot = e2e::slots::PYTHON.take();
        command.output().unwrap()
    })
    .await
    .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{text}");
    assert_eq!(controller.program.exited().unwrap(), None);
}
