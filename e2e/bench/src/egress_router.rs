//! egress-router against Debian's macvlan and static plugins: both in turn, in the same run, in the same namespaces.
//!
//! ```text
//!   machine  is anybody else at work here?
//!   driver   in the node's namespaces: starts a plugin, feeds it, reads its answer, reaps it; takes the time of that
//!   table    what is printed
//! ```
//!
//! A chunk is ten ADDs and ten DELs of one program, each in a pod of its own; the programs take turns chunk by chunk. A chunk
//! begins when the machine is idle, and does not count if others used more than an eighth of it meanwhile.

pub(crate) mod driver;
mod machine;
mod table;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use e2e::egress_router::{GATEWAY, Pod, TestEnv, UPLINK, debian, plugin};
use serde_json::{Value, json};

use driver::{Call, Chunk, Job, Work};
use table::{Column, Table};

/// ADDs and DELs of each program, and at least twice as many VERSIONs.
const CALLS: usize = 100;
/// Pods, and so calls in a chunk.
const PODS: usize = 10;
/// At once.
const CROWD: usize = 8;
/// Of them in all, in whole crowds.
const CROWD_CALLS: usize = 13 * CROWD;
/// Of a plugin that waits for duplicate address detection: one or two seconds each.
const SLOW_CALLS: usize = 5;
/// Chunks that may be thrown away for each that counts, until the machine is given up as never quiet.
const DISCARDS: usize = 5;

/// What DEL costs where nothing but a link is deleted, as a plugin: by `ip`, which needs no more time to start than a plugin does.
const BARE: &str = r#"#!/bin/sh
case $CNI_COMMAND in
ADD) exec ip link add link UPLINK name "$CNI_IFNAME" netns "$CNI_NETNS" type macvlan mode bridge ;;
DEL) exec nsenter --net="$CNI_NETNS" ip link del "$CNI_IFNAME" ;;
esac
"#;

/// Measures, and returns what is to be printed.
///
/// # Errors
/// A plugin fails; the machine is never quiet.
pub(crate) fn measure(program: Option<&Path>) -> Result<String> {
    let installed = Installed::new()?;
    let ours = installed.copy(&program.map_or_else(plugin, |path| Ok(path.to_owned()))?)?;
    let (peer, helper) = (installed.copy(&debian("macvlan")?)?, installed.copy(&debian("static")?)?);
    let bare = installed.script("bare", &BARE.replace("UPLINK", UPLINK))?;
    let bench = Bench::new()?;
    let mut table = Table::new(&ours, &[("macvlan", &peer), ("static", &helper)])?;

    // The newest version that both speak.
    let config = |ip: Value, args: Value| json!({"cniVersion": "1.0.0", "name": "egress", "type": "egress-router", "ip": ip, "interfaceArgs": args});
    let master = || json!({"master": UPLINK});
    let plain = |pod: usize| {
        config(
            json!({"addresses": [format!("192.168.50.{}/24", 100 + pod)], "gateway": GATEWAY[0]}),
            master(),
        )
    };
    // Redirects and a list: the whole job, as an operator's configuration has it.
    let whole = |pod: usize| {
        let destinations = ["203.0.113.0/24", "80 TCP 203.0.113.9", "8080 TCP 203.0.113.10 80"];
        let addresses = [format!("192.168.50.{}/24", 100 + pod)];
        config(json!({"addresses": addresses, "gateway": GATEWAY[0], "destinations": destinations}), master())
    };
    let inferred =
        |pod: usize| config(json!({"addresses": [format!("192.168.50.{}/24", 100 + pod)]}), json!({}));
    let ipv6 = |pod: usize| {
        config(
            json!({"addresses": [format!("2001:db8:50::{}/64", 100 + pod)], "gateway": GATEWAY[1]}),
            master(),
        )
    };
    let macvlan = |addresses: Value| {
        json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": UPLINK,
            "ipam": {"type": "static", "addresses": addresses}})
    };
    let peers = |pod: usize| macvlan(json!([{"address": format!("192.168.50.{}/24", 100 + pod)}]));
    let peers_ipv6 = |pod: usize| macvlan(json!([{"address": format!("2001:db8:50::{}/64", 100 + pod)}]));

    eprintln!("bench: memory");
    for (column, program, config) in [
        (Column::Ours, &ours, &plain as &dyn Fn(usize) -> Value),
        (Column::OursWhole, &ours, &whole),
        (Column::Peer, &peer, &peers),
    ] {
        table.memory(column, &bench.run(program, config, PODS, Work::Memory)?);
    }
    let mut subjects = [
        Subject::new(Column::Ours, &ours, CALLS, &plain),
        Subject::new(Column::Peer, &peer, CALLS, &peers),
        Subject::new(Column::OursInferred, &ours, CALLS, &inferred),
        Subject::new(Column::OursWhole, &ours, CALLS, &whole),
        Subject::new(Column::OursIpv6, &ours, CALLS, &ipv6),
        Subject::new(Column::PeerIpv6, &peer, SLOW_CALLS, &peers_ipv6),
        Subject::new(Column::Bare, &bare, CALLS, &peers),
    ];
    bench.in_turn(&mut subjects, Work::OneByOne)?;
    for subject in subjects {
        table.calls(subject.column, &subject.chunks);
    }
    eprintln!("bench: {CROWD} at once");
    let mut crowds = [
        Subject::new(Column::OursCrowd, &ours, CROWD_CALLS, &plain),
        Subject::new(Column::PeerCrowd, &peer, CROWD_CALLS, &peers),
    ];
    bench.in_turn(&mut crowds, Work::AtOnce)?;
    for subject in crowds {
        table.calls(subject.column, &subject.chunks);
    }
    eprintln!("bench: VERSION");
    let mut versions = [
        Subject::new(Column::OursVersion, &ours, 2 * CALLS, &plain),
        Subject::new(Column::PeerVersion, &peer, 2 * CALLS, &peers),
    ];
    bench.in_turn(&mut versions, Work::Version)?;
    for subject in versions {
        table.calls(subject.column, &subject.chunks);
    }
    bench.unchanged()?;
    table.circumstances = bench.circumstances()?;
    Ok(table.to_string())
}

/// The programs as a node has them: copied in one go, as an installer does. A linker leaves its output in the page cache in single
/// pages, and each page fault of a program then finds less: 0.05 ms of a VERSION.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir().context("a folder for the programs")?))
    }

    fn copy(&self, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().with_context(|| format!("{}: not a file", program.display()))?;
        let copy = self.0.path().join(name);
        std::fs::copy(program, &copy)
            .with_context(|| format!("{} to {}", program.display(), copy.display()))?;
        Ok(copy)
    }

    fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// A program with a configuration, and what was measured of it.
struct Subject<'a> {
    column: Column,
    program: &'a Path,
    calls: usize,
    config: &'a dyn Fn(usize) -> Value,
    chunks: Vec<Chunk>,
}

impl<'a> Subject<'a> {
    fn new(column: Column, program: &'a Path, calls: usize, config: &'a dyn Fn(usize) -> Value) -> Self {
        Self { column, program, calls, config, chunks: Vec::new() }
    }

    fn measured(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.add.len()).sum()
    }
}

/// A environment with pods.
struct Bench {
    env: TestEnv,
    pods: Vec<Pod>,
    before: Vec<e2e::netns::Snapshot>,
    own: PathBuf,
    kept: std::cell::Cell<usize>,
    discarded: std::cell::Cell<usize>,
}

impl Bench {
    fn new() -> Result<Self> {
        let env = TestEnv::new()?;
        let pods = (0..PODS).map(|number| env.pod(&format!("pod{number}"))).collect::<Result<Vec<_>>>()?;
        let before = pods.iter().map(|pod| pod.inside.network_state()).collect::<Result<_>>()?;
        let own = std::env::current_exe().context("where is this program?")?;
        Ok(Self { env, pods, before, own, kept: 0.into(), discarded: 0.into() })
    }

    /// A chunk of each, again and again, until each has as many calls as it shall have.
    fn in_turn(&self, subjects: &mut [Subject<'_>], work: Work) -> Result<()> {
        while subjects.iter().any(|subject| subject.measured() < subject.calls) {
            for subject in subjects.iter_mut().filter(|subject| subject.measured() < subject.calls) {
                let left = subject.calls - subject.measured();
                let most = if work == Work::AtOnce { CROWD } else { PODS };
                let chunk = self.run(subject.program, subject.config, left.min(most), work)?;
                subject.chunks.push(chunk);
            }
            let done: Vec<_> = subjects.iter().map(|subject| subject.measured().to_string()).collect();
            eprintln!("bench: {} calls, {} chunks discarded", done.join(" + "), self.discarded.get());
        }
        Ok(())
    }

    /// A chunk while nobody else was at work.
    fn run(
        &self,
        program: &Path,
        config: &dyn Fn(usize) -> Value,
        calls: usize,
        work: Work,
    ) -> Result<Chunk> {
        let calls = self.pods.iter().take(calls).enumerate().map(|(number, pod)| Call {
            container: pod.name().to_owned(),
            netns: pod.netns.clone(),
            config: config(number).to_string(),
        });
        let job = Job { program: program.to_owned(), work, calls: calls.collect() };
        let job = serde_json::to_string(&job)?;
        loop {
            let output = self
                .env
                .node
                .run_as_runtime([self.own.as_os_str(), "egress-router-driver".as_ref()], &job)?;
            ensure!(output.success(), "{}: {}", program.display(), output.text().trim());
            let chunk: Chunk = serde_json::from_str(&output.stdout).context("the driver's answer")?;
            if chunk.quiet() {
                self.kept.set(self.kept.get() + 1);
                return Ok(chunk);
            }
            self.discarded.set(self.discarded.get() + 1);
            if self.discarded.get() > DISCARDS * (self.kept.get() + DISCARDS) {
                bail!("this machine is never quiet: {} chunks were thrown away", self.discarded.get());
            }
        }
    }

    /// What was added and deleted so often has left nothing.
    fn unchanged(&self) -> Result<()> {
        for (pod, before) in self.pods.iter().zip(&self.before) {
            let changes = before.changes(&pod.inside.network_state()?);
            ensure!(changes.is_empty(), "{} is not as it was: {changes:?}", pod.name());
        }
        Ok(())
    }

    fn circumstances(&self) -> Result<Vec<String>> {
        let build = if cfg!(debug_assertions) { "DEBUG" } else { "release" };
        Ok(vec![
            format!(
                "{} on {}; bench: {build} build",
                jiff::Timestamp::now().strftime("%F"),
                crate::machine::hardware()?
            ),
            format!(
                "{} chunks counted, {} discarded because others used more than {:.0} % of the machine; load average at the end {}",
                self.kept.get(),
                self.discarded.get(),
                100.0 * machine::OTHERS,
                crate::machine::load()?
            ),
        ])
    }
}
