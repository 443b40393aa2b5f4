//! Programs of this workspace, as they are in its sources now.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

/// Programs that this process has checked.
static CURRENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The path of a program of the workspace, in the profile of this process. In a test it is built if it is missing or older than
/// its sources; a demo or a bench was built together with it.
///
/// # Errors
/// It cannot be built, or is not there.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this process has no path")?;
    // target/PROFILE/PROGRAM, or target/PROFILE/deps/TEST
    let folder = own.parent().context("this process has no folder")?;
    let is_test = folder.ends_with("deps");
    let profile = if is_test { folder.parent().context("deps is no root")? } else { folder };
    let path = profile.join(name);
    // The lock is held while cargo runs, so that other tests wait.
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if is_test && !current.contains(name) {
        if !is_current(&path) {
            build(name, profile)?;
        }
        current.insert(name.to_owned());
    }
    ensure!(path.is_file(), "{} is not built", path.display());
    Ok(path)
}

/// Copies a program for a test that starts the copy. Another process writes it: children that other threads start inherit a file that this
/// process is writing, and until they execute their own program, the kernel refuses to execute the file (ETXTBSY).
///
/// # Errors
/// It cannot be copied.
pub fn copy(program: &Path, to: &Path) -> Result<()> {
    let output = Command::new("cp").arg(program).arg(to).output().context("cp")?;
    ensure!(output.status.success(), "cp: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whether no source is newer. cargo lists them beside the program: `PROGRAM: SOURCE SOURCE ...`.
fn is_current(path: &Path) -> bool {
    let time = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let (Some(built), Ok(list)) = (time(path), fs::read_to_string(path.with_extension("d"))) else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    // A path with an escaped space is never found; then cargo decides.
    sources.split_whitespace().all(|source| time(Path::new(source)).is_some_and(|changed| changed <= built))
}

fn build(name: &str, profile: &Path) -> Result<()> {
    let profile_name =
        match profile.file_name().and_then(|name| name.to_str()).context("a profile has a name")? {
            "debug" => "dev",
            other => other,
        };
    let target = profile.parent().context("a profile is in the target folder")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
        .args(["build", "--locked", "--quiet", "--profile", profile_name, "--bin", name, "--target-dir"])
        .arg(target);
    // Cargo's variables of the test would cause a rebuild by build scripts.
    for (key, _) in std::env::vars_os() {
        let of_package = key.to_str().is_some_and(|key| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
                .iter()
                .any(|of| key.starts_with(of))
        });
        if of_package {
            command.env_remove(key);
        }
    }
    eprintln!("building {name}");
    let status = command.stdin(Stdio::null()).status().context("cargo cannot be started")?;
    ensure!(status.success(), "cargo build --bin {name}: {status}; the reason is above");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_copy_can_be_started_while_other_threads_start_programs() {
        let folder = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        let start = |program: &Path| Command::new(program).status();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        start(Path::new("/bin/true")).unwrap();
                    }
                });
            }
            let failed = (0..200).find_map(|number| {
                let program = folder.path().join(number.to_string());
                copy(Path::new("/bin/true"), &program).unwrap();
                start(&program).err()
            });
            over.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }
}
