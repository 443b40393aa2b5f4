//! In the node's namespaces: calls a plugin as a container runtime does, and measures from its start to its end.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::ptrace;
use nix::sys::resource::UsageWho;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::machine::{Others, own_time, peak_rss};

/// The share of the machine that other processes may use during a chunk: the same as in the specification's own figures.
pub(super) const OTHERS: f64 = 0.12;
/// The machine is observed for this time before a chunk: ten of the kernel's ticks.
const WINDOW: Duration = Duration::from_millis(100);
/// Windows until a chunk begins on a busy machine too.
const WINDOWS: usize = 100;
/// Calls of VERSION for each pod: one is too short for the machine's usage, which is counted in ticks of 10 ms.
const VERSIONS: usize = 10;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) program: PathBuf,
    pub(super) work: Work,
    pub(super) calls: Vec<Call>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// ADD in each pod, then DEL in each.
    OneByOne,
    /// ADD in all pods at the same time, then DEL in each.
    AtOnce,
    /// VERSION, ten times for each pod.
    Version,
    /// ADD in each pod, stopped at its end to read its memory, then DEL in each.
    Memory,
}

/// A pod.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) container: String,
    pub(super) netns: String,
    pub(super) config: String,
}

/// The results. VERSION counts as ADD.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) add: Vec<Taken>,
    pub(super) del: Vec<Taken>,
    /// The share of the machine that other processes used, 0 to 1.
    pub(super) others: f64,
}

/// One call.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Taken {
    /// In milliseconds.
    pub(super) wall: f64,
    /// Of the plugin and its children, in milliseconds; zero where several ran at once.
    pub(super) processor: f64,
    /// In bytes; zero where it was not read.
    pub(super) memory: u64,
}

/// Reads a [`Job`] from standard input, writes a [`Chunk`] to standard output.
pub(crate) fn run() -> Result<()> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock()).context("the job")?;
    let all =
        |verb: &str| job.calls.iter().map(|call| measured(&job, verb, call)).collect::<Result<Vec<_>>>();
    // Memory does not depend on other processes.
    let others = if job.work == Work::Memory { None } else { Some(when_idle()?) };
    let add = match job.work {
        Work::OneByOne => all("ADD")?,
        Work::Version => (0..VERSIONS).map(|_| all("VERSION")).collect::<Result<Vec<_>>>()?.concat(),
        Work::Memory => job.calls.iter().map(|call| with_memory(&job, call)).collect::<Result<_>>()?,
        Work::AtOnce => {
            let (job, gate) = (&job, &Barrier::new(job.calls.len()));
            std::thread::scope(|scope| {
                let start = |call| {
                    scope.spawn(move || {
                        gate.wait();
                        measured(job, "ADD", call)
                    })
                };
                let threads: Vec<_> = job.calls.iter().map(start).collect();
                let results =
                    threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a panic"))?);
                results.map(|taken| Ok(Taken { processor: 0.0, ..taken? })).collect::<Result<_>>()
            })?
        }
    };
    let del = if job.work == Work::Version { Vec::new() } else { all("DEL")? };
    let others = others.map_or(Ok(0.0), |others| others.share())?;
    println!("{}", serde_json::to_string(&Chunk { add, del, others })?);
    Ok(())
}

/// Waits until the machine is idle, but not for ever: the chunk will be discarded then.
fn when_idle() -> Result<Others> {
    for _ in 0..WINDOWS {
        let others = Others::from_now()?;
        std::thread::sleep(WINDOW);
        if others.share()? <= OTHERS {
            break;
        }
    }
    Others::from_now()
}

/// A call, from just before its start until the process is reaped.
fn measured(job: &Job, verb: &str, call: &Call) -> Result<Taken> {
    let before = own_time(UsageWho::RUSAGE_CHILDREN)?;
    let began = Instant::now();
    let mut child = start(job, verb, call)?;
    send_config(&mut child, call)?;
    let output = output(&mut child)?;
    let status = child.wait()?;
    let wall = began.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "{verb} {call:?}: {status}: {output}");
    Ok(Taken { wall, processor: own_time(UsageWho::RUSAGE_CHILDREN)? - before, memory: 0 })
}

/// An ADD with the peak of its memory, read at its end. rusage would include the memory of the parent before the exec.
fn with_memory(job: &Job, call: &Call) -> Result<Taken> {
    let mut child = start(job, "ADD", call)?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    // It waits for its standard input now.
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT).context("seize")?;
    send_config(&mut child, call)?;
    let mut memory = 0;
    loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceEvent(..) => {
                memory = peak_rss(child.id())?;
                ptrace::cont(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(_, 0) => return Ok(Taken { wall: 0.0, processor: 0.0, memory }),
            other => bail!("ADD {call:?}: {other:?}: {}", output(&mut child)?),
        }
    }
}

fn start(job: &Job, verb: &str, call: &Call) -> Result<Child> {
    let Call { container, netns, .. } = call;
    let args = format!(
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME={container};K8S_POD_INFRA_CONTAINER_ID={container}"
    );
    let folder = job.program.parent().context("a program without a folder")?;
    let mut command = Command::new(&job.program);
    command.env_clear().env("CNI_COMMAND", verb).env("CNI_PATH", folder).env("CNI_ARGS", args);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_IFNAME", "net1");
    command.env("CNI_CONTAINERID", container).env("CNI_NETNS", netns);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().with_context(|| job.program.display().to_string())
}

fn send_config(child: &mut Child, call: &Call) -> Result<()> {
    // VERSION may end without reading.
    match child.stdin.take().context("standard input")?.write_all(call.config.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("standard input"),
        _ => Ok(()),
    }
}

fn output(child: &mut Child) -> Result<String> {
    let mut text = String::new();
    child.stdout.take().context("standard output")?.read_to_string(&mut text)?;
    Ok(text)
}
