//! A folder that is removed when the process ends, also if it is killed.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Waits until its standard input closes, kills processes with this working directory, and removes the folder. Retries for 10 s, because
/// programs that are being killed may still write a file.
const JANITOR: &str = r#"
trap '' INT TERM HUP
read -r _
for process in /proc/[0-9]*; do
  case $(readlink "$process/cwd" 2>/dev/null) in
  "$1" | "$1"/*) kill -KILL "${process#/proc/}" 2>/dev/null ;;
  esac
done
n=0
while [ -e "$1" ] && [ "$n" -lt 100 ]; do
  rm -rf -- "$1" 2>/dev/null || sleep 0.1
  n=$((n + 1))
done"#;

/// A new, private folder.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    janitor: Child,
}

impl StateDir {
    pub(crate) fn create() -> Result<Self> {
        let path =
            tempfile::Builder::new().prefix("perimeter-e2e-").tempdir().context("a temporary folder")?.keep();
        // The pipe closes when this process ends, also by SIGKILL. Its own process group, so that Ctrl-C of a terminal does not reach it.
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("the janitor of the temporary folder")?;
        Ok(Self { path, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_in_the_folder_goes_with_it() {
        let dir = StateDir::create().unwrap();
        let mut child =
            Command::new("sleep").arg("600").current_dir(dir.path()).spawn().expect("sleep can be started");
        drop(dir);
        let ended = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }

    #[test]
    fn the_folder_goes_with_its_owner() {
        let dir = StateDir::create().unwrap();
        std::fs::create_dir_all(dir.file("a/b")).unwrap();
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists());
    }
}
