//! `egress-router install`: installs the program on a node.

pub mod file;
pub mod options;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

pub use self::options::{Options, USAGE};
use crate::config::settings::Settings;
use crate::kubernetes::kubeconfig::Access;
use crate::sys::signal::Termination;

/// The file's name, which network configurations have as `type`.
const PROGRAM: &str = "egress-router";

/// Runs `egress-router install` with its arguments.
///
/// Exits with 0 on success, 1 if something could not be done, 2 if the command line is invalid.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Options::parse(arguments) {
        Ok(options) => installed(&options),
        Err(words) => {
            let _ = writeln!(io::stderr(), "{PROGRAM} install: {words}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn installed(options: &Options) -> ExitCode {
    if options.uninstall {
        return if report(&uninstall(options)) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Before the first round, so that no signal is lost.
    let termination = match options.watch.then(Termination::hold).transpose() {
        Ok(termination) => termination,
        Err(error) => {
            report_failure(&format!("cannot wait for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut node = Node { options, seen: None };
    let whole = report(&node.reconcile());
    let Some(termination) = termination else {
        return if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    };
    let mut last = Vec::new();
    loop {
        match termination.within(options.interval) {
            Ok(true) => return ExitCode::SUCCESS,
            Ok(false) => (),
            Err(error) => {
                report_failure(&format!("cannot wait for signals: {error}"));
                return ExitCode::FAILURE;
            }
        }
        let done = node.reconcile();
        // A failure is reported when it changes.
        if done.iter().any(Result::is_ok) || done != last {
            report(&done);
        }
        last = done;
    }
}

/// The changes of one round (`Ok`) and its failures (`Err`), each as a line of output.
type Done = Vec<Result<String, String>>;

fn report(done: &Done) -> bool {
    for one in done {
        match one {
            Ok(words) => drop(writeln!(io::stdout(), "{words}")),
            Err(words) => report_failure(words),
        }
    }
    done.iter().all(Result::is_ok)
}

fn report_failure(words: &str) {
    let _ = writeln!(io::stderr(), "{PROGRAM} install: {words}");
}

fn uninstall(options: &Options) -> Done {
    let files = [
        Some(options.bin_dir.join(PROGRAM)),
        options.kubeconfig_out.clone(),
        options.settings.as_ref().map(|(_, out)| out.clone()),
    ];
    let removed = files.into_iter().flatten().filter_map(|path| match file::remove(&path) {
        Ok(true) => Some(Ok(format!("removed {}", path.display()))),
        Ok(false) => None,
        Err(error) => Some(Err(format!("{} cannot be removed: {error}", path.display()))),
    });
    removed.collect()
}

/// The files of one node.
struct Node<'a> {
    options: &'a Options,
    /// Metadata of the installed file when it last equalled this program, so that its content is not compared in each round.
    seen: Option<(u64, u64, SystemTime)>,
}

impl Node<'_> {
    /// Installs what differs. Settings and kubeconfig come first, because the runtime calls the program as soon as it exists.
    fn reconcile(&mut self) -> Done {
        let settings = self.options.settings.as_ref().map(|(from, to)| settings(from, to));
        let kubeconfig = self.options.kubeconfig_out.as_ref().map(|to| self.kubeconfig(to));
        let done = [settings, kubeconfig, Some(self.program())];
        done.into_iter().flatten().filter_map(Result::transpose).collect()
    }

    fn program(&mut self) -> Result<Option<String>, String> {
        let path = self.options.bin_dir.join(PROGRAM);
        let stat = || {
            use std::os::unix::fs::MetadataExt;
            let there = fs::symlink_metadata(&path).ok()?;
            Some((there.ino(), there.size(), there.modified().ok()?))
        };
        if self.seen.is_some() && self.seen == stat() {
            return Ok(None);
        }
        // The running program, also if its file was renamed; without /proc, the file that it was started from.
        let by_name = || std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
        let program = fs::read("/proc/self/exe")
            .or_else(|error| by_name().map_or(Err(error), fs::read))
            .map_err(|error| format!("/proc/self/exe cannot be read: {error}"))?;
        let written = replaced(&path, &program, 0o755)?;
        self.seen = stat();
        Ok(written)
    }

    fn kubeconfig(&self, to: &Path) -> Result<Option<String>, String> {
        let read = |name: &str| {
            let path = self.options.service_account.join(name);
            fs::read(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let server = match &self.options.server {
            Some(server) => server.clone(),
            None => server(|name| std::env::var(name).ok())?,
        };
        let text = kubeconfig(&server, &read("ca.crt")?, &read("token")?)?;
        replaced(to, text.as_bytes(), 0o600)
    }
}

fn replaced(path: &Path, content: &[u8], mode: u32) -> Result<Option<String>, String> {
    match file::replace(path, content, mode) {
        Ok(true) => Ok(Some(format!("wrote {} ({} bytes)", path.display(), content.len()))),
        Ok(false) => Ok(None),
        Err(error) => {
            let hint = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "; give the folder to root, or the container the capability DAC_OVERRIDE"
                }
                _ => "",
            };
            Err(format!("{} cannot be written: {error}{hint}", path.display()))
        }
    }
}

/// Invalid settings never replace valid ones.
fn settings(from: &PathBuf, to: &Path) -> Result<Option<String>, String> {
    let text = fs::read(from).map_err(|error| format!("{} cannot be read: {error}", from.display()))?;
    Settings::parse(&text).map_err(|error| format!("{}: {error}", from.display()))?;
    // Not secret, and readable for anyone who debugs a refused pod.
    replaced(to, &text, 0o644)
}

/// The API server's URL, from the variables of a pod.
fn server(get: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let needed = |name: &str| {
        get(name).filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} is not set: give --server"))
    };
    let (host, port) = (needed("KUBERNETES_SERVICE_HOST")?, needed("KUBERNETES_SERVICE_PORT")?);
    Ok(match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    })
}

/// A kubeconfig, verified with the plugin's own parser. Messages never contain the token.
fn kubeconfig(server: &str, authority: &[u8], token: &[u8]) -> Result<String, String> {
    let token = std::str::from_utf8(token).unwrap_or_default().trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the service account's token is empty, or has invalid characters".to_owned());
    }
    if authority.is_empty() {
        // Without a CA, the public authorities would be trusted.
        return Err("the service account's ca.crt is empty".to_owned());
    }
    // JSON is YAML too, so kubectl reads it.
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": PROGRAM,
        "clusters": [{
            "name": PROGRAM,
            "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(authority)},
        }],
        "users": [{"name": PROGRAM, "user": {"token": token}}],
        "contexts": [{"name": PROGRAM, "context": {"cluster": PROGRAM, "user": PROGRAM}}],
    });
    let text = format!("{kubeconfig:#}\n");
    Access::parse(text.as_bytes(), Path::new("/")).map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests;
