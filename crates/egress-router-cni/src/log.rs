//! The log file of the original: `log_file`, `log_level`. It never makes a call fail.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

/// A larger file is renamed to `<file>.1` when it is opened, replacing an older one. 10 MiB are about 100,000 lines.
const MAX_LENGTH: u64 = 10 << 20;

/// The folder of all logs. A network configuration may be a tenant's, and this program is root: of `log_file` only the last component is used,
/// so that it names no file of another program.
pub const FOLDER: &str = "/var/log/egress-router";

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
    /// Opens the file of this name in [`FOLDER`] for lines up to `level` (panic, error, verbose, debug), with mode 0640. A failure is reported
    /// on standard error, and the call continues without a file.
    #[must_use]
    pub fn open(file: Option<&Path>, level: Option<&str>) -> Self {
        Self::within(Path::new(FOLDER), file, level)
    }

    fn within(folder: &Path, file: Option<&Path>, level: Option<&str>) -> Self {
        let level = level.filter(|text| !text.is_empty()).map_or(Level::Verbose, |text| {
            Level::parse(text).unwrap_or_else(|| {
                warn(format_args!("log_level {text:?} is not panic, error, verbose or debug: using verbose"));
                Level::Verbose
            })
        });
        let file = file.and_then(|path| {
            opened(folder, path)
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

fn opened(folder: &Path, path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    let open = || {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        OpenOptions::new().read(true).custom_flags(flags).open(folder)
    };
    let folder = open().or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o750).create(folder)?;
            open()
        }
        _ => Err(error),
    })?;
    // Through its descriptor, because another folder may get its name.
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    let file = append(&path)?;
    if file.metadata()?.len() < MAX_LENGTH {
        return Ok(file);
    }
    // Of concurrent calls the first one renames the file; the others then find a new one under its name.
    file.lock()?;
    if append(&path)?.metadata()?.ino() == file.metadata()?.ino() {
        let mut old = path.clone().into_os_string();
        old.push(".1");
        fs::rename(&path, old)?;
    }
    append(&path)
}

/// Opens or creates a file. A symbolic link is refused, and a pipe does not block.
fn append(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::{Log, MAX_LENGTH};

    fn open(folder: &tempfile::TempDir, level: Option<&str>) -> Log {
        Log::within(folder.path(), Some(Path::new("log")), level)
    }

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
        let folder = tempfile::tempdir().unwrap();
        for (level, lines) in [
            (Some("panic"), 0),
            (Some("error"), 1),
            (None, 2),
            (Some("VERBOSE"), 2),
            (Some("loud"), 2),
            (Some("debug"), 3),
        ] {
            // The path of the original's file works too: only its last component is used.
            let path = Path::new("/tmp").join(level.unwrap_or("none"));
            write_all(&Log::within(folder.path(), Some(&path), level));
            assert_eq!(read(&folder.path().join(level.unwrap_or("none"))).len(), lines, "{level:?}");
        }
    }

    #[test]
    fn a_line_has_a_time_and_a_level_and_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        open(&folder, None).verbose(format_args!("ADD\nforged\u{1b}[0m"));
        let line = read(&path).pop().unwrap();
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
        assert_eq!(rest, r"[verbose] ADD\nforged\u{1b}[0m");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
    }

    #[test]
    fn only_a_regular_file_in_the_folder_is_opened() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join("target");
        fs::write(&target, "").unwrap();
        symlink(&target, folder.path().join("link")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        for path in ["link", "/etc/link", "folder", "/", "..", ""] {
            let log = Log::within(folder.path(), Some(Path::new(path)), Some("debug"));
            assert!(log.file.is_none(), "{path}");
            write_all(&log);
        }
        // The folder itself is a link.
        symlink(outside.path(), folder.path().join("logs")).unwrap();
        let log = Log::within(&folder.path().join("logs"), Some(Path::new("log")), None);
        assert!(log.file.is_none());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        assert_eq!(read(&target), Vec::<String>::new());
        // A missing folder is created, for root alone.
        let made = folder.path().join("made");
        write_all(&Log::within(&made, Some(Path::new("log")), None));
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o027, 0);
        assert_eq!(read(&made.join("log")).len(), 2);
    }

    #[test]
    fn a_large_file_is_rotated_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        for round in 0..3 {
            open(&folder, None).verbose(format_args!("first"));
            fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(MAX_LENGTH).unwrap();
            let log = open(&folder, None);
            log.verbose(format_args!("{round}"));
            assert!(fs::metadata(&path).unwrap().len() < 100);
            assert_eq!(fs::metadata(&old).unwrap().len(), MAX_LENGTH);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn lines_of_concurrent_writers_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let log = open(&folder, None);
                    (0..50).for_each(|_| log.verbose(format_args!("{}", "x".repeat(200))));
                });
            }
        });
        let lines = read(&path);
        assert_eq!(lines.len(), 400);
        assert!(lines.iter().all(|line| line.ends_with(&format!("[verbose] {}", "x".repeat(200)))));
    }
}
