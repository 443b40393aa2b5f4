//! In the node's namespaces: calls a plugin as a runtime does, and takes the time from its start to its end.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::machine::{OTHERS, Watch};

/// A call that takes so little is made more often: the machine's use by others is told in ticks of 10 ms.
const VERSIONS: usize = 10;

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) work: Work,
    pub(crate) calls: Vec<Call>,
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// ADD in each pod, then DEL in each.
    OneByOne,
    /// ADD in all pods at the same time, then DEL in each.
    AtOnce,
    /// VERSION, ten times as often.
    Version,
    /// ADD in each pod, stopped at its end for a look at its memory, then DEL in each.
    Memory,
}

/// One pod.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) container: String,
    pub(crate) netns: String,
    pub(crate) config: String,
}

/// What came of it. VERSION counts as ADD.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Chunk {
    pub(crate) add: Vec<Taken>,
    pub(crate) del: Vec<Taken>,
    /// What others used of the machine meanwhile, 0 to 1.
    pub(crate) others: f64,
}

/// One call, in milliseconds; memory in bytes, where it was looked at.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub(crate) wall: f64,
    /// Of the plugin and what it started; zero where several ran at once.
    pub(crate) processor: f64,
    pub(crate) memory: u64,
}

impl Chunk {
    pub(crate) fn quiet(&self) -> bool {
        self.others <= OTHERS
    }
}

/// Reads a [`Job`] from standard input, writes a [`Chunk`] to standard output.
///
/// # Errors
/// A plugin fails; its answer is in the message.
pub(crate) fn run() -> Result<()> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock()).context("the job")?;
    // Memory is the same beside others.
    let watch = if job.work == Work::Memory { None } else { Some(Watch::when_idle()?) };
    let mut chunk = Chunk::default();
    let one = |verb: &str, call: &Call| taken(&job, verb, call);
    match job.work {
        Work::OneByOne => chunk.add = job.calls.iter().map(|call| one("ADD", call)).collect::<Result<_>>()?,
        Work::Version => {
            let calls = job.calls.iter().cycle().take(VERSIONS * job.calls.len());
            chunk.add = calls.map(|call| one("VERSION", call)).collect::<Result<_>>()?;
        }
        Work::Memory => {
            chunk.add = job.calls.iter().map(|call| looked_at(&job, call)).collect::<Result<_>>()?
        }
        Work::AtOnce => {
            let gate = Barrier::new(job.calls.len());
            chunk.add = std::thread::scope(|scope| {
                let start = |call| {
                    let (gate, one) = (&gate, &one);
                    scope.spawn(move || {
                        gate.wait();
                        one("ADD", call)
                    })
                };
                let threads: Vec<_> = job.calls.iter().map(start).collect();
                let ends = threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
                ends.map(|end| end.map(|taken| Taken { processor: 0.0, ..taken })).collect::<Result<_>>()
            })?;
        }
    }
    if job.work != Work::Version {
        chunk.del = job.calls.iter().map(|call| one("DEL", call)).collect::<Result<_>>()?;
    }
    chunk.others = watch.map_or(Ok(0.0), |watch| watch.others())?;
    println!("{}", serde_json::to_string(&chunk)?);
    Ok(())
}

/// A call, from just before its start until it is reaped.
fn taken(job: &Job, verb: &str, call: &Call) -> Result<Taken> {
    let before = processor()?;
    let begun = Instant::now();
    let mut child = start(job, verb, call)?;
    feed(&mut child, call)?;
    let answer = answer(&mut child)?;
    let status = child.wait()?;
    let wall = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "{verb} {call:?}: {status}: {answer}");
    Ok(Taken { wall, processor: processor()? - before, memory: 0 })
}

/// The same, with a look at the most memory that it ever had, at its end. rusage would not do: a child begins with what its
/// parent has.
fn looked_at(job: &Job, call: &Call) -> Result<Taken> {
    let mut child = start(job, "ADD", call)?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    // It waits for its standard input: there is time.
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACEEXIT).context("seize")?;
    feed(&mut child, call)?;
    let mut memory = 0;
    loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceEvent(..) => {
                memory = crate::machine::peak_rss(child.id())?;
                ptrace::cont(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(_, 0) => break,
            other => bail!("ADD {call:?}: {other:?}: {}", answer(&mut child)?),
        }
    }
    Ok(Taken { wall: 0.0, processor: 0.0, memory })
}

fn start(job: &Job, verb: &str, call: &Call) -> Result<Child> {
    let Call { container, netns, .. } = call;
    let args = format!(
        "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME={container};K8S_POD_INFRA_CONTAINER_ID={container}"
    );
    let mut command = Command::new(&job.program);
    let beside = job.program.parent().context("a program without a folder")?;
    command.env_clear().env("CNI_COMMAND", verb).env("CNI_PATH", beside).env("CNI_ARGS", args);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("CNI_IFNAME", "net1");
    command.env("CNI_CONTAINERID", container).env("CNI_NETNS", netns);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().with_context(|| job.program.display().to_string())
}

fn feed(child: &mut Child, call: &Call) -> Result<()> {
    // VERSION may end without reading.
    match child.stdin.take().context("standard input")?.write_all(call.config.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("standard input"),
        _ => Ok(()),
    }
}

fn answer(child: &mut Child) -> Result<String> {
    let mut text = String::new();
    child.stdout.take().context("standard output")?.read_to_string(&mut text)?;
    Ok(text)
}

/// Milliseconds that reaped children, and theirs, have used.
fn processor() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    // Exact up to centuries.
    Ok(micros as f64 / 1e3)
}
