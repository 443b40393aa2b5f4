//! The log file of the original: `log_file`, `log_level`. It never makes a call fail.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A larger file is renamed to `<file>.1` when it is opened, replacing an older one. 10 MiB are about 100,000 lines.
const MAX_LENGTH: u64 = 10 << 20;

/// Folders in which a log may be. A network configuration may be a tenant's, and this program is root: it must not write to any file of the
/// node. The second is the one that cluster-network-operator uses.
const FOLDERS: [&str; 2] = ["/var/log", "/tmp"];

/// The format of the time. Milliseconds distinguish its lines from those of other plugins, which write whole seconds in the same format
/// (Multus).
const TIME: &str = "2026-11-20T08:15:00.123Z";

/// First lines of the original's log, with their level (macvlanCmdAdd and loadNetConf in its pkg/macvlan/macvlan.go): its file is continued.
const ORIGINAL: [(&str, &str); 4] = [
    ("debug", "Called CNI ADD"),
    ("error", "no default route interface"),
    ("error", "Failed to get MTU"),
    ("error", "must specify explicit"),
];

/// Bytes that suffice for the time, the level and any of [`ORIGINAL`].
const START: usize = 64;

/// `log_level`: each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `panic`: nothing, because the program does not panic.
    Panic,
    /// `error`: errors that made a call fail.
    Error,
    /// `verbose`, the default: also the actions.
    Verbose,
    /// `debug`: also reasons and inputs.
    Debug,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        [("panic", Self::Panic), ("error", Self::Error), ("verbose", Self::Verbose), ("debug", Self::Debug)]
            .into_iter()
            .find(|(name, _)| text.eq_ignore_ascii_case(name))
            .map(|(_, level)| level)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Error => "error",
            Self::Verbose => "verbose",
            Self::Debug => "debug",
        }
    }
}

/// Writes lines to the file, if there is one. Errors also go to standard error, which runtimes keep.
#[derive(Debug)]
pub struct Log {
    level: Level,
    file: Option<File>,
}

impl Log {
    /// Opens `file` for lines up to `level` (panic, error, verbose, debug). A new file has mode 0640; an existing one keeps its mode, and is
    /// used only if its first line was written by this program. A failure is reported on standard error, and the call continues without
    /// a file.
    #[must_use]
    pub fn open(file: Option<&Path>, level: Option<&str>) -> Self {
        Self::within(&FOLDERS.map(Path::new), file, level)
    }

    fn within(folders: &[&Path], file: Option<&Path>, level: Option<&str>) -> Self {
        let level = level.filter(|text| !text.is_empty()).map_or(Level::Verbose, |text| {
            Level::parse(text).unwrap_or_else(|| {
                warn(format_args!("log_level {text:?} is not panic, error, verbose or debug: using verbose"));
                Level::Verbose
            })
        });
        let file = file.and_then(|path| {
            opened(folders, path)
                .inspect_err(|error| {
                    warn(format_args!("log_file {} cannot be used: {error}", path.display()))
                })
                .ok()
        });
        Self { level, file }
    }

    /// Logs an error that made the call fail.
    pub fn error(&self, args: fmt::Arguments<'_>) {
        if self.level >= Level::Error {
            warn(args);
        }
        self.line(Level::Error, args);
    }

    /// Logs an action.
    pub fn verbose(&self, args: fmt::Arguments<'_>) {
        self.line(Level::Verbose, args);
    }

    /// Logs a reason or an input.
    pub fn debug(&self, args: fmt::Arguments<'_>) {
        self.line(Level::Debug, args);
    }

    fn line(&self, level: Level, args: fmt::Arguments<'_>) {
        let Some(mut file) = self.file.as_ref().filter(|_| level <= self.level) else { return };
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        let line = format!("{now} [{}] {}\n", level.as_str(), one_line(&args.to_string()));
        // One write, so that lines of concurrent calls are not mixed. A full disk must not make the call fail.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Escapes control characters, above all line ends, so that a quoted text cannot forge a line.
fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, letter| {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
        line
    })
}

fn warn(args: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "egress-router: {}", one_line(&args.to_string()));
}

fn opened(folders: &[&Path], path: &Path) -> io::Result<File> {
    let file = append(folders, path)?;
    if file.metadata()?.len() < MAX_LENGTH {
        return Ok(file);
    }
    // Of concurrent calls the first one renames the file; the others then find a new one under its name.
    file.lock()?;
    if fs::symlink_metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino())) {
        let mut old = path.as_os_str().to_owned();
        old.push(".1");
        let old = PathBuf::from(old);
        if !may_be_replaced(&old)? {
            let words = format!("{} exists and is not a log of this program", old.display());
            return Err(io::Error::other(words));
        }
        fs::rename(path, old)?;
    }
    append(folders, path)
}

fn append(folders: &[&Path], path: &Path) -> io::Result<File> {
    let refused = |words: &str| Err(io::Error::other(words.to_owned()));
    let inside = |path: &Path| folders.iter().any(|folder| path.starts_with(folder));
    let parent = path.parent().unwrap_or(Path::new("/")).canonicalize()?;
    if !inside(&parent) {
        return refused("it must be in /var/log or /tmp");
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o640)
        // So that opening a pipe does not block.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let (there, ours) = (file.metadata()?, fs::metadata("/proc/self")?);
    if !there.is_file() {
        return refused("it is not a regular file");
    }
    if there.nlink() != 1 || there.uid() != ours.uid() {
        return refused("it belongs to another user, or has a second hard link");
    }
    // A parent folder may have been replaced by a link since the first check.
    if !inside(&fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?) {
        return refused("it must be in /var/log or /tmp");
    }
    // The same folders contain logs of other programs.
    if !is_log(&file)? {
        return refused("it is not a log of this program");
    }
    Ok(file)
}

/// Whether `path` does not exist, or is a log of this program.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(file.metadata()?.is_file() && is_log(&file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a file is empty, or begins with a line of this program. The start of the first line is within one page, so a full disk has
/// written all or nothing of it.
fn is_log(file: &File) -> io::Result<bool> {
    let mut start = [0; START];
    let length = file.read_at(&mut start, 0)?;
    let start = String::from_utf8_lossy(start.get(..length).unwrap_or_default());
    Ok(start.is_empty() || begins_a_log(&start))
}

fn begins_a_log(start: &str) -> bool {
    let Some((time, rest)) = start.split_once(" [") else { return false };
    let Some((level, words)) = rest.split_once("] ") else { return false };
    let ours = time.len() == TIME.len() && humantime::parse_rfc3339(time).is_ok();
    let original = ORIGINAL.iter().any(|(at, start)| level == *at && words.starts_with(start));
    original || (ours && Level::parse(level).is_some())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::{Log, MAX_LENGTH, START, TIME, begins_a_log};

    fn read(path: &Path) -> Vec<String> {
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn write_all(log: &Log) {
        log.error(format_args!("e"));
        log.verbose(format_args!("v"));
        log.debug(format_args!("d"));
    }

    #[test]
    fn each_level_includes_those_before_it() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        for (level, lines) in [
            (Some("panic"), 0),
            (Some("error"), 1),
            (None, 2),
            (Some("VERBOSE"), 2),
            (Some("loud"), 2),
            (Some("debug"), 3),
        ] {
            let path = folder.path().join(level.unwrap_or("none"));
            write_all(&Log::open(Some(&path), level));
            assert_eq!(read(&path).len(), lines, "{level:?}");
        }
    }

    #[test]
    fn a_line_has_a_time_and_a_level_and_is_one_line() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("log");
        Log::open(Some(&path), None).verbose(format_args!("ADD\nforged\u{1b}[0m"));
        let line = read(&path).pop().unwrap();
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
        assert_eq!(rest, r"[verbose] ADD\nforged\u{1b}[0m");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
    }

    #[test]
    fn only_a_regular_file_in_the_allowed_folders_is_opened() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let target = folder.path().join("target");
        fs::write(&target, "").unwrap();
        symlink(&target, folder.path().join("link")).unwrap();
        fs::hard_link(&target, folder.path().join("second")).unwrap();
        symlink("/", folder.path().join("root")).unwrap();
        for path in [
            folder.path().join("link"),
            folder.path().join("second"),
            folder.path().to_path_buf(),
            folder.path().join("absent/log"),
            folder.path().join("root/log"),
            "/dev/null".into(),
            "/etc/cron.d/log".into(),
            "/tmp/../etc/log".into(),
            "log".into(),
        ] {
            let log = Log::open(Some(&path), Some("debug"));
            assert!(log.file.is_none(), "{}", path.display());
            write_all(&log);
        }
        assert_eq!(read(&target), Vec::<String>::new());
        let outside = tempfile::tempdir_in("/tmp").unwrap();
        let log = Log::within(&[outside.path()], Some(&folder.path().join("log")), None);
        assert!(log.file.is_none());
    }

    #[test]
    fn a_large_file_is_rotated_once() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        for round in 0..3 {
            Log::open(Some(&path), None).verbose(format_args!("first"));
            fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(MAX_LENGTH).unwrap();
            let log = Log::open(Some(&path), None);
            log.verbose(format_args!("{round}"));
            assert!(fs::metadata(&path).unwrap().len() < 100);
            assert_eq!(fs::metadata(&old).unwrap().len(), MAX_LENGTH);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_a_file_that_begins_with_an_own_line_is_a_log() {
        let head = |level: &str, words: &str| format!("{TIME} [{level}] {words}");
        for level in ["panic", "error", "verbose", "debug"] {
            assert!(head(level, "").len() < START && begins_a_log(&head(level, "")), "{level}");
            assert!(begins_a_log(&head(level, "ADD \u{fffd}")));
        }
        for original in [
            "2025-08-01T10:00:00+02:00 [debug] Called CNI ADD\n",
            "2025-08-01T10:00:00Z [debug] Called CNI ADD\n",
            "2025-08-01T10:00:00Z [error] no default route interface found\n",
            "2025-08-01T10:00:00+02:00 [error] Failed to get MTU on link: no such device\n",
        ] {
            assert!(begins_a_log(original), "{original}");
        }
        for other in [
            "type=LOGIN msg=audit(1700000000.000:1): pid=1 res=1",
            "2025-08-01T10:00:00Z [verbose] Add: default:web-0",
            "2025-08-01T10:00:00Z [debug] Used defaults from parsed flat file config",
            "2025-08-01T10:00:00.123456+00:00 node1 kernel: [    0.000000] x",
            "2025-08-01T10:00:00.123Z [info] x",
            "2025-08-01T10:00:00.123",
            "Aug  1 10:00:00 node1 sshd[1]: x",
            "\0\0\0\0",
        ] {
            assert!(!begins_a_log(other), "{other}");
        }
    }

    #[test]
    fn foreign_files_are_neither_written_nor_renamed_nor_replaced() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let long = vec![b'x'; usize::try_from(MAX_LENGTH).unwrap()];
        let contents: [&[u8]; 3] = [b"precious", &[0; 384], &long];
        for content in contents {
            fs::write(&path, content).unwrap();
            let log = Log::open(Some(&path), Some("debug"));
            assert!(log.file.is_none());
            write_all(&log);
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        fs::remove_file(&path).unwrap();
        Log::open(Some(&path), None).verbose(format_args!("first"));
        fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(MAX_LENGTH).unwrap();
        fs::write(&old, "precious").unwrap();
        assert!(Log::open(Some(&path), None).file.is_none());
        assert_eq!(fs::read_to_string(&old).unwrap(), "precious");
        assert_eq!(fs::metadata(&path).unwrap().len(), MAX_LENGTH);
        fs::remove_file(&old).unwrap();
        symlink("/etc/hostname", &old).unwrap();
        assert!(Log::open(Some(&path), None).file.is_none());
        fs::remove_file(&old).unwrap();
        fs::write(&old, "").unwrap();
        assert!(Log::open(Some(&path), None).file.is_some());
        assert_eq!(fs::metadata(&old).unwrap().len(), MAX_LENGTH);
    }

    #[test]
    fn the_log_of_the_original_is_continued() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "2025-08-01T10:00:00+02:00 [debug] Called CNI ADD\n").unwrap();
        Log::open(Some(&path), None).verbose(format_args!("ADD"));
        assert_eq!(read(&path).len(), 2);
    }

    #[test]
    fn lines_of_concurrent_writers_are_not_mixed() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("log");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let log = Log::open(Some(&path), None);
                    (0..50).for_each(|_| log.verbose(format_args!("{}", "x".repeat(200))));
                });
            }
        });
        let lines = read(&path);
        assert_eq!(lines.len(), 400);
        assert!(lines.iter().all(|line| line.ends_with(&format!("[verbose] {}", "x".repeat(200)))));
    }
}
