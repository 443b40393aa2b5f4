//! A program under test as a child process: its output line by line, its admin port, its signals and its end.
//!
//! Children are killed on drop, and by the kernel if the test process is killed. They have a clean environment, so that variables of the
//! developer's shell do not affect a test.

mod admin;
mod built;
mod output;
mod owner;
mod samples;
mod spawner;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, timeout};

use crate::wait::TIMEOUT;

pub use admin::metrics;
pub use built::{copy, program as built};
pub use output::Output;
pub use owner::Owner;
pub use samples::Samples;

/// The environment variables that every child may inherit: enough to find programs, keep temporary files in place and
/// write coverage.
const INHERITED: [&str; 6] = ["PATH", "HOME", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE", "LLVM_PROFILE_FILE"];

/// Poll interval of conditions: short compared with the seconds that tests wait.
const POLL: Duration = Duration::from_millis(10);

/// The environment variables that this output of `--help` names.
pub fn variables(help: &str) -> BTreeSet<&str> {
    let after = help.split("[env: ").skip(1);
    after.filter_map(|rest| rest.split([']', '=']).next()).collect()
}

/// How to start a program. It can be used several times.
#[derive(Clone, Debug)]
pub struct Launch {
    path: PathBuf,
    name: String,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    folder: Option<PathBuf>,
}

/// A started program.
#[derive(Debug)]
pub struct Program {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    output: Arc<Output>,
}

impl Launch {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable; of the test's own, only a handful are inherited.
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Sets the working directory; the test's own if not set.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The prefix of its echoed lines; the file's name if not set.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Starts the program. `E2E_VERBOSE=1` echoes its lines.
    ///
    /// # Errors
    /// The file is missing, or `setpriv` (util-linux) is.
    pub fn start(&self) -> Result<Program> {
        ensure!(self.path.is_file(), "{} is not there: {}", self.name, self.path.display());
        // setpriv sets the parent-death signal, because Rust has no safe function for it. It has a path for the reason of netns::NSENTER.
        let mut command = Command::new("/usr/bin/setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.path).args(&self.args);
        command.env_clear();
        command.envs(INHERITED.iter().filter_map(|key| Some((key, std::env::var_os(key)?)))).envs(&self.env);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawner::spawn(command).with_context(|| {
            format!("{} cannot be started through setpriv (Debian: util-linux)", self.name)
        })?;
        let output = Output::of(&self.name, &mut child)?;
        Ok(Program { name: self.name.clone(), pid: child.id(), child: Mutex::new(child), output })
    }
}

impl Program {
    /// A program of this workspace, from the target folder and the profile that the test itself was built in. A program that is
    /// missing or older than its sources is built first, because cargo does not build programs of other packages for a test.
    /// Without flags that say otherwise, a leader has a lease of a minute.
    ///
    /// # Errors
    /// It cannot be built; the compiler's reason is on standard error.
    pub fn binary(name: &str) -> Result<Launch> {
        // On a busy machine, a leader with the default exits when it gets no processor for ten seconds.
        Ok(Self::at(built::program(name)?)
            .env("PERIMETER_LEADER_ELECT_LEASE_DURATION", "60s")
            .env("PERIMETER_LEADER_ELECT_RENEW_DEADLINE", "50s"))
    }

    /// Any program, by its path.
    pub fn at(path: impl AsRef<Path>) -> Launch {
        let path = path.as_ref().to_owned();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Launch { path, name, args: Vec::new(), env: BTreeMap::new(), folder: None }
    }

    /// The process, which is the program itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its output, standard output and standard error together.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// The first line for which `matches` holds, among those written already too.
    ///
    /// # Errors
    /// The time is up, or the program ended without it; the error shows its last lines.
    pub async fn wait_for_line(&self, matches: impl Fn(&str) -> bool) -> Result<String> {
        match timeout(TIMEOUT, self.output.find(matches)).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => bail!("{} ended without the line{}", self.name, self.output.tail()),
            Err(_) => bail!("{} did not write the line in {TIMEOUT:?}{}", self.name, self.output.tail()),
        }
    }

    /// Sends a signal. `SIGSTOP` returns when every thread of the process has stopped.
    ///
    /// # Errors
    /// The program has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock is held until the signal is sent, so that the child is not reaped and its pid is not reused.
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            bail!("{} has ended already: {status}{}", self.name, self.output.tail());
        }
        let pid = Pid::from_raw(self.pid.try_into()?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.name))?;
        if signal == Signal::SIGSTOP {
            while !self.is_stopped()? {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Pauses it, like a hung machine: it keeps its connections and does nothing.
    ///
    /// # Errors
    /// The program has ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it after [`Program::pause`].
    ///
    /// # Errors
    /// The program has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it (SIGKILL) and waits until it has exited. Does nothing if it has already exited.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> Result<ExitStatus> {
        let mut child = self.child();
        child.kill().with_context(|| format!("kill {}", self.name))?;
        Ok(child.wait()?)
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn exited(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }

    /// Waits until it exits; [`Program::output`] is complete then.
    ///
    /// # Errors
    /// It still runs when the time is up.
    pub async fn wait_exit(&self) -> Result<ExitStatus> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.exited()? {
                // One of its children may keep the pipe open.
                let _ = timeout(Duration::from_secs(10), self.output.find(|_| false)).await;
                return Ok(status);
            }
            ensure!(
                Instant::now() < deadline,
                "{} still runs after {TIMEOUT:?}{}",
                self.name,
                self.output.tail()
            );
            sleep(POLL).await;
        }
    }

    fn is_stopped(&self) -> Result<bool> {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // "PID (NAME) STATE ...", and NAME may hold anything. A thread that ended meanwhile is not in the way.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
            if !stat
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.kill();
        if std::thread::panicking() {
            // The test failed: print the last lines of the program.
            eprintln!("{}{}", self.name, self.output.tail());
        }
    }
}

static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A free loopback port that no other test gets as long as this process runs: a program may be started
/// much later, or again. It lies below the range that the kernel gives to outgoing connections.
///
/// # Errors
/// None was found.
pub fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    for _ in 0..1000 {
        let random = RandomState::new().hash_one(()) % u64::from(COUNT);
        let port = FIRST + u16::try_from(random)?;
        // An abstract name is one for each network namespace, as the port is, and goes with the process that has it.
        let name = SocketAddr::from_abstract_name(format!("perimeter-test-port-{port}"))?;
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::at("/bin/sh").args(["-c", script]).start().unwrap()
    }

    #[tokio::test]
    async fn lines_are_found_and_the_exit_is_reported() {
        let program = shell("echo one; echo two >&2; exit 7");
        program.wait_for_line(|line| line == "two").await.unwrap();
        assert_eq!(program.wait_exit().await.unwrap().code(), Some(7));
        let error = program.wait_for_line(|line| line == "three").await.unwrap_err();
        assert!(error.to_string().contains("| one"), "{error}");
        assert!(program.signal(Signal::SIGTERM).is_err());
    }

    #[tokio::test]
    async fn signals_reach_it_and_its_environment_is_clean() {
        let program = shell(
            "trap 'echo caught; exit 0' TERM; echo ready ${CARGO_MANIFEST_DIR-clean}; while :; do sleep 0.01; done",
        );
        program.wait_for_line(|line| line == "ready clean").await.unwrap();
        program.pause().unwrap();
        program.signal(Signal::SIGTERM).unwrap();
        assert!(program.exited().unwrap().is_none(), "a paused process handles no signal");
        program.resume().unwrap();
        assert!(program.wait_exit().await.unwrap().success());
        assert_eq!(program.output().lines(), ["ready clean", "caught"]);
    }

    #[test]
    fn a_port_is_given_once() {
        let ports: std::collections::BTreeSet<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 200);
        let name = format!("perimeter-test-port-{}", ports.first().unwrap());
        let claimed = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap());
        assert!(claimed.is_err(), "not by another process either");
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let program = std::thread::spawn(|| shell("read -r line </dev/zero")).join().unwrap();
        // When the thread has left /proc, the kernel has sent its parent-death signals.
        assert_eq!(program.exited().unwrap(), None);
        program.kill().unwrap();
    }
}
