//! The machine: this test program, started again with another kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Set inside.
const INSIDE: &str = "E2E_INSIDE_STOCK_KERNEL";
/// Path of the plugin inside the machine.
pub const PLUGIN: &str = "/opt/cni/bin/egress-router";
/// Deadline in seconds. Boot and tests take seventy on an idle machine.
const LIMIT: &str = "1800";
/// MiB of memory. The machine's files are in it, and this test program alone is about 200 MB.
const MEMORY: &str = "2048";
/// Debian's packages with the programs that the tests call.
const PACKAGES: &str = "iproute2 nftables";
/// Kernel modules of the tests' own links, which are not loaded automatically.
const MODULES: &str = "veth ipvlan macvlan nf_tables";

/// Runs a test inside the machine. Outside, the first test boots it and runs all tests in it, and each reads its own result.
pub fn inside<T: FnOnce()>(test: T) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let name = name_of::<T>();
    let text = boot();
    if text.lines().any(|line| line == format!("test {name} ... ok")) {
        return;
    }
    let own = text.split(&format!("---- {name} stdout ----")).nth(1);
    let own = own.map_or(text, |rest| rest.split("\n---- ").next().unwrap_or(rest));
    panic!("{name} on the stock kernel: {own}");
}

/// `module::function` of the test that a closure stands in.
fn name_of<T>() -> &'static str {
    let path = std::any::type_name::<T>();
    path.split_once("::").unwrap().1.split("::{{").next().unwrap()
}

/// The output of all tests inside.
fn boot() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tests = std::env::current_exe().unwrap();
        let output = Command::new(repository.join("e2e/stock-kernel/run.sh"))
            .args(["--with", PACKAGES, "--modules", MODULES])
            .arg("--add")
            .arg(format!("{}:{PLUGIN}", plugin(repository).display()))
            .arg("--add")
            .arg(format!("{}:/tests", tests.display()))
            .args([
                "--",
                "env",
                &format!("{INSIDE}=1"),
                "/tests",
                "egress_router_kernel::",
                "--test-threads=1",
                "--include-ignored",
            ])
            .env("LIMIT", LIMIT)
            .env("MEM", MEMORY)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        println!("{}", text.join("\n"));
        text.join("\n")
    })
}

/// The plugin as its image holds it, or the one that `E2E_EGRESS_ROUTER` names.
fn plugin(repository: &Path) -> PathBuf {
    if let Some(named) = std::env::var_os("E2E_EGRESS_ROUTER").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let mut script = Command::new(repository.join("scripts/static.sh"));
    let output = script.arg("egress-router-cni").stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{script:?}: {}; it says why above", output.status);
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}
