//! A node of a lab, and its processes.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, ensure};

use super::{Holder, NSENTER, PATH, UNSHARE, wait_until};

/// Timeout of a command in seconds, far longer than the longest (a script that waits for a lock).
const TIMEOUT: &str = "60";

/// All namespaces of a node except the network.
const WHOLE: [&str; 3] = ["--mount", "--uts", "--pid"];

/// Mounts the node's own files, then waits for the end of its standard input. `/proc` is still the outer one
/// here: its pid is the one by which `nsenter` finds it.
const HOLD: &str = r#"
read -r pid _ </proc/self/stat
hostname "$1"
mount -t tmpfs -o mode=755 lab /run
mkdir -p /run/lab/etc /run/lock
mount --rbind /etc /run/lab/etc
mount -t tmpfs -o mode=755 lab /etc
ln -s -t /etc /run/lab/etc/*
rm -f /etc/netplan
mount -t tmpfs -o mode=755 lab /usr/local/sbin
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_forward
for which in all default lo; do echo 0 >/proc/sys/net/ipv4/conf/$which/rp_filter; done
# No link-local addresses that appear by themselves some time later.
for which in all default; do
  if [ -d /proc/sys/net/ipv6/conf/$which ]; then echo 1 >/proc/sys/net/ipv6/conf/$which/addr_gen_mode; fi
done
echo "ready $pid"
exec cat >/dev/null
"#;

/// A machine's network. Clones are the same node; it is removed with the last of them.
#[derive(Debug, Clone)]
pub struct Node {
    name: Arc<str>,
    holder: Arc<Holder>,
    owner: Option<Arc<Holder>>,
}

/// The kernel's packet filter that the node's `iptables` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iptables {
    /// nf_tables, the default of Debian and Ubuntu 22.04.
    Nft,
    /// ip_tables, the default of Ubuntu 20.04.
    Legacy,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Exit code 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output and error, one after the other.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Node {
    pub(super) fn start(name: &str, owner: Option<Arc<Holder>>) -> anyhow::Result<Self> {
        let mut command = match &owner {
            None => Command::new(UNSHARE),
            Some(owner) => {
                let mut command = Command::new(NSENTER);
                command.args([
                    "--preserve-credentials",
                    "--user",
                    "--target",
                    &owner.pid.to_string(),
                    "unshare",
                ]);
                command
            }
        };
        command.args(["--net", "--mount", "--uts", "--pid", "--fork", "bash", "-euc", HOLD, "holder", name]);
        Ok(Self { name: name.into(), holder: Arc::new(Holder::start(command)?), owner })
    }

    /// Its name, which is also its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that holds it, as this process sees it: for tools that take a namespace by pid.
    pub fn pid(&self) -> u32 {
        self.holder.pid
    }

    /// Runs a command in the node.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the answer.
    pub fn run<S: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = S>) -> anyhow::Result<Output> {
        self.run_with_input(command, "")
    }

    /// Runs lines of bash in the node and returns their standard output.
    ///
    /// # Errors
    /// When a line fails, with its standard error.
    pub fn sh(&self, lines: &str) -> anyhow::Result<String> {
        self.must(["bash", "-euo", "pipefail", "-c", lines], "")
    }

    /// Runs the text of a script like a Job in a chroot of the node: root, `/bin/bash -c`, only the given environment,
    /// and the `PATH` of an image without sbin unless `environment` has one.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the answer.
    pub fn script(&self, text: &str, environment: &[(&str, &str)]) -> anyhow::Result<Output> {
        self.run(script_command(text, environment))
    }

    /// Starts a script as [`Node::script`] does, and leaves it running.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_script(&self, text: &str, environment: &[(&str, &str)]) -> anyhow::Result<Process> {
        self.start_process(script_command(text, environment))
    }

    /// Starts a command in the node and leaves it running. It ends with the returned value, or with the node.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_process<S: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<Process> {
        let mut enter = self.enter(&WHOLE);
        enter.args(["setpriv", "--pdeathsig", "KILL"]).args(command);
        Process::start(enter)
    }

    /// Runs a command with the node's network and files, but with the processes and `/proc` of this machine, as
    /// container runtimes run plugins.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the answer.
    pub fn run_as_runtime<S: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<Output> {
        let mut enter = self.enter(&["--mount"]);
        enter.args(["timeout", "--kill-after=1", TIMEOUT]).args(command);
        finish(enter, input)
    }

    /// Writes a file of the node (in a folder that is its own: /run, /etc, /usr/local/sbin), with `mode` as chmod takes it.
    ///
    /// # Errors
    /// When the folder is missing.
    pub fn write(&self, path: &str, mode: &str, text: &str) -> anyhow::Result<()> {
        self.must(["bash", "-euc", r#"cat >"$1"; chmod "$2" "$1""#, "write", path, mode], text).map(drop)
    }

    /// Makes `iptables`, `iptables-save` and `iptables-restore` of this node the ones of `kind`.
    ///
    /// # Errors
    /// The program or the kernel does not have it; the message says which.
    pub fn use_iptables(&self, kind: Iptables) -> anyhow::Result<()> {
        let (program, option) = match kind {
            Iptables::Nft => ("xtables-nft-multi", "CONFIG_NF_TABLES, CONFIG_NFT_COMPAT"),
            Iptables::Legacy => (
                "xtables-legacy-multi",
                "CONFIG_IP_NF_IPTABLES_LEGACY (before Linux 6.17: CONFIG_IP_NF_IPTABLES)",
            ),
        };
        ensure!(super::installed(program), "{program} is not installed; the Debian package is: iptables");
        let links = "for name in iptables iptables-save iptables-restore; do ln -sfT \"$(command -v $1)\" /usr/local/sbin/$name; done";
        self.must(["bash", "-euc", links, "links", program], "")?;
        self.sh("for table in nat filter mangle; do iptables -t $table -S; done")
            .with_context(|| format!("this kernel does not do what {program} needs ({option})"))
            .map(drop)
    }

    /// Makes a program impossible to run in this node, as if it were not installed.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn hide(&self, program: &str) -> anyhow::Result<()> {
        // Each folder that has it becomes a private one: links to all that was there, without this one.
        let cover = r#"
            covered=
            for folder in ${PATH//:/ }; do
              [ -e "$folder/$1" ] || continue
              folder=$(readlink -f "$folder") real=/run/lab/hidden$(readlink -f "$folder")
              if [ ! -d "$real" ]; then
                mkdir -p "$real"
                mount --rbind "$folder" "$real"
                PATH=$PATH:$real
                mount -t tmpfs -o mode=755 lab "$folder"
                find "$real" -mindepth 1 -maxdepth 1 ! -type l -exec ln -s -t "$folder" {} +
                find "$real" -mindepth 1 -maxdepth 1 -type l -exec cp -d -t "$folder" {} +
              fi
              rm "$folder/$1"
              covered=1
            done
            [ "$covered" ]"#;
        self.must(["bash", "-euc", cover, "hide", program], "").map(drop)
    }

    /// Reverts [`Node::hide`].
    ///
    /// # Errors
    /// When it is not hidden.
    pub fn unhide(&self, program: &str) -> anyhow::Result<()> {
        let uncover = r#"
            uncovered=
            for real in $(find /run/lab/hidden -path "*/$1"); do
              cp -d --preserve=mode "$real" "${real#/run/lab/hidden}" && uncovered=1
            done
            [ "$uncovered" ]"#;
        self.must(["bash", "-euc", uncover, "unhide", program], "").map(drop)
    }

    /// Lines for `ip -batch`, in this node's network but with the lab's view of pids.
    pub(super) fn ip_batch(&self, lines: &str) -> anyhow::Result<()> {
        let mut command = self.enter(&[]);
        command.args(["ip", "-batch", "-"]);
        let output = finish(command, lines)?;
        ensure!(output.success(), "{}", output.stderr.trim());
        Ok(())
    }

    pub(super) fn must<S: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<String> {
        let command: Vec<OsString> = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let output = self.run_with_input(&command, input)?;
        let (name, code) = (&self.name, output.code);
        ensure!(output.success(), "on {name}: {command:?} ended with {code:?}: {}", output.text().trim());
        Ok(output.stdout)
    }

    /// Runs a command in the node, with `input` as its standard input.
    ///
    /// # Errors
    /// When it cannot be started; its own failure is in the answer.
    pub fn run_with_input<S: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = S>,
        input: &str,
    ) -> anyhow::Result<Output> {
        let mut enter = self.enter(&WHOLE);
        enter.args(["timeout", "--kill-after=1", TIMEOUT]).args(command);
        finish(enter, input)
    }

    /// Enters the node's network, and more of its namespaces.
    fn enter(&self, more: &[&str]) -> Command {
        let mut command = Command::new(NSENTER);
        command.env("PATH", PATH).args(["--target", &self.holder.pid.to_string(), "--net"]);
        if self.owner.is_some() {
            command.args(["--preserve-credentials", "--user"]);
        }
        command.args(more).arg("--");
        command
    }
}

fn script_command(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let mut command = vec!["env".to_owned(), "-i".into(), "PATH=/usr/bin:/bin".into()];
    command.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
    command.extend(["/usr/sbin/chroot", "/", "/bin/bash", "-c", text].map(str::to_owned));
    command
}

fn finish(mut command: Command, input: &str) -> anyhow::Result<Output> {
    let mut process = Process::start_with(&mut command, Stdio::piped())?;
    if let Some(mut stdin) = process.child.stdin.take()
        && let Err(error) = stdin.write_all(input.as_bytes())
    {
        // A command may exit without reading its input.
        ensure!(error.kind() == std::io::ErrorKind::BrokenPipe, "cannot write to {command:?}: {error}");
    }
    process.wait()
}

/// A running command in a node, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        Self::start_with(&mut command, Stdio::null())
    }

    fn start_with(command: &mut Command, stdin: Stdio) -> anyhow::Result<Self> {
        let started = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child =
            started.with_context(|| format!("cannot run {}", Path::new(command.get_program()).display()))?;
        let stdout = Reader::start(child.stdout.take());
        let stderr = Reader::start(child.stderr.take());
        Ok(Self { child, stdout, stderr })
    }

    /// Waits until it has printed `text` (to standard output or error).
    ///
    /// # Errors
    /// When it does not within [`crate::wait::TIMEOUT`], with what it printed instead.
    pub fn wait_for(&self, text: &str) -> anyhow::Result<()> {
        wait_until(&format!("it prints {text:?}"), || Ok(self.printed().contains(text)))
            .with_context(|| format!("it printed {:?}", self.printed()))
    }

    /// Its output so far: standard output, then standard error.
    pub fn printed(&self) -> String {
        self.stdout.so_far() + &self.stderr.so_far()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the process is out of reach.
    pub fn wait(mut self) -> anyhow::Result<Output> {
        let status = self.child.wait()?;
        Ok(Output { code: status.code(), stdout: self.stdout.finish(), stderr: self.stderr.finish() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Collects the output of a pipe.
#[derive(Debug)]
struct Reader {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&text);
        let thread = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                    let read = buffer.get(..length).unwrap_or_default();
                    sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(read);
                }
            })
        });
        Self { text, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn finish(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.so_far()
    }
}
