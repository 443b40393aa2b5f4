//! Atomic replacement of a file on the node.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Names of temporary files: `.egress-router.<random>.new`.
const BEGIN: &str = ".egress-router.";
const END: &str = ".new";

/// A temporary file that is older belongs to a killed process.
const STALE: Duration = Duration::from_secs(600);

/// Writes `content` with `mode` to `path`, by renaming a temporary file. A reader finds the old file or the new one, also after a crash,
/// and a running program is not affected. Returns whether anything was written.
///
/// # Errors
///
/// The kernel's; then nothing has changed.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there)
            if there.is_file() && there.size() == content.len() as u64 && fs::read(path)? == content =>
        {
            if there.mode() & 0o7777 == mode {
                return Ok(false);
            }
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            return Ok(true);
        }
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    sweep(folder);
    let new = folder.join(format!("{BEGIN}{:016x}{END}", fastrand::u64(..)));
    let written = write(&new, content, mode).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// Removes `path`. Returns whether it existed.
///
/// # Errors
///
/// The kernel refuses.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(new: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(content)?;
    // Independent of the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Removes temporary files of killed processes.
fn sweep(folder: &Path) {
    let old = |file: &fs::DirEntry| {
        let modified = file.metadata().and_then(|there| there.modified()).ok();
        modified.and_then(|then| SystemTime::now().duration_since(then).ok()).is_some_and(|age| age > STALE)
    };
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(BEGIN) && name.ends_with(END));
        if ours && old(&file) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::{remove, replace};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn an_equal_file_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        assert!(replace(&path, b"one", 0o755).unwrap());
        let before = fs::metadata(&path).unwrap();
        assert!(!replace(&path, b"one", 0o755).unwrap());
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.modified().unwrap()), (after.ino(), after.modified().unwrap()));
        assert!(replace(&path, b"one", 0o600).unwrap());
        assert_eq!(mode(&path), 0o600);
        assert!(replace(&path, b"two", 0o755).unwrap());
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o755));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_running_program_is_replaced_and_keeps_running() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let sleep = fs::read("/bin/sleep").unwrap();
        replace(&path, &sleep, 0o755).unwrap();
        // A child process of another test inherits this open file until its exec, which can make the write fail for a moment.
        let mut running = loop {
            match std::process::Command::new(&path).arg("600").spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now()
                }
                started => break started.unwrap(),
            }
        };
        let replaced = replace(&path, b"#!/bin/sh\n", 0o755);
        let state = running.try_wait();
        running.kill().unwrap();
        running.wait().unwrap();
        assert!(replaced.unwrap() && state.unwrap().is_none());
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_its_target_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("file"), folder.path().join("target"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &path).unwrap();
        assert!(replace(&path, b"precious", 0o644).unwrap());
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_failed_replacement_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"one", 0o755).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(remove(&path).is_err());
    }

    #[test]
    fn only_old_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) =
            (folder.path().join(".egress-router.1.new"), folder.path().join(".egress-router.2.new"));
        for path in [&old, &new] {
            fs::write(path, "half").unwrap();
        }
        let hour = SystemTime::now() - Duration::from_secs(3600);
        fs::File::options().write(true).open(&old).unwrap().set_modified(hour).unwrap();
        replace(&folder.path().join("file"), b"one", 0o644).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn removing_a_missing_file_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(!remove(&path).unwrap());
        fs::write(&path, "").unwrap();
        assert!(remove(&path).unwrap());
    }
}
