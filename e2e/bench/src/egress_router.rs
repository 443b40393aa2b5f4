//! egress-router side by side with Debian's macvlan and static plugins, in the same run and the same namespaces.
//!
//! ```text
//!   driver   in the node's namespaces: runs a plugin and measures it
//!   table    what is printed
//! ```
//!
//! A chunk is ten ADDs and ten DELs of one program, each in a pod of its own. The programs take turns, one chunk each. A chunk begins
//! when the machine is idle, and is discarded if other processes used more than an eighth of the machine.

pub(crate) mod driver;
mod table;

use std::cell::Cell;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::egress_router::{GATEWAY, Pod, TestEnv, UPLINK, debian};
use e2e::netns::Snapshot;
use serde_json::{Value, json};

use self::driver::{Call, Chunk, Job, OTHERS, Work};
use self::table::{Row, table};
use crate::machine;

/// ADDs and DELs of each program, and twice as many VERSIONs.
const CALLS: usize = 100;
/// Pods, and so calls in a chunk.
const PODS: usize = 10;
/// Calls at the same time.
const CROWD: usize = 8;
/// Whole crowds.
const CROWD_CALLS: usize = 13 * CROWD;
/// Attachments of other pods on a full node: as many as a kubelet with a raised limit runs pods.
const FULL: usize = 250;
/// Of a plugin that waits for duplicate address detection: one or two seconds each.
const SLOW_CALLS: usize = 5;
/// Discarded chunks for each that counts, after which the bench fails.
const DISCARDS: usize = 5;

/// The cost of a DEL that only deletes a link, as a plugin. `ip` does not need more time to start than a plugin.
const BARE: &str = r#"#!/bin/sh
case $CNI_COMMAND in
ADD) exec ip link add link UPLINK name "$CNI_IFNAME" netns "$CNI_NETNS" type macvlan mode bridge ;;
DEL) exec nsenter --net="$CNI_NETNS" ip link del "$CNI_IFNAME" ;;
esac
"#;

/// Calls the plugin `$1` with the configuration `$2` (NUMBER is the pod's) for `$3` pods without a primary interface. Before ADD it makes their
/// namespaces, after DEL it removes them.
const OTHERS_PODS: &str = r#"
for number in $(seq "$3"); do
  netns=/run/netns/other$number
  if [ "$CNI_COMMAND" = ADD ]; then touch "$netns"; unshare --net="$netns" true; fi
  CNI_CONTAINERID=other$number CNI_NETNS=$netns CNI_IFNAME=net1 "$1" <<<"${2/NUMBER/$(printf %x "$number")}" >/dev/null
  if [ "$CNI_COMMAND" = DEL ]; then umount "$netns"; rm "$netns"; fi
done"#;

/// A program with a configuration for each pod, and what was measured of it.
struct Subject<'a> {
    title: &'static str,
    program: &'a Path,
    config: &'a dyn Fn(usize) -> Value,
    calls: usize,
    chunks: Vec<Chunk>,
}

impl Subject<'_> {
    fn missing(&self) -> usize {
        self.calls.saturating_sub(self.chunks.iter().map(|chunk| chunk.add.len()).sum())
    }
}

pub(crate) fn measure(program: &Path) -> Result<String> {
    let installed = Installed(tempfile::tempdir().context("a folder for the programs")?);
    let ours = installed.copy(program)?;
    let (peer, helper) = (installed.copy(&debian("macvlan")?)?, installed.copy(&debian("static")?)?);
    let bare = installed.script("bare", &BARE.replace("UPLINK", UPLINK))?;
    let (ours, peer, bare) = (ours.as_path(), peer.as_path(), bare.as_path());

    let ipv4 = |pod: usize| format!("192.168.50.{}/24", 100 + pod);
    let ipv6 = |pod: usize| format!("2001:db8:50::{}/64", 100 + pod);
    // The newest version that both implement.
    let egress = |ip: Value, args: Value| json!({"cniVersion": "1.0.0", "name": "egress", "type": "egress-router", "ip": ip, "interfaceArgs": args});
    let macvlan = |address: String| {
        json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": UPLINK,
        "ipam": {"type": "static", "addresses": [{"address": address}]}})
    };
    let master = || json!({"master": UPLINK});
    let plain = |pod| egress(json!({"addresses": [ipv4(pod)], "gateway": GATEWAY[0]}), master());
    let inferred = |pod| egress(json!({"addresses": [ipv4(pod)]}), json!({}));
    // A list and two redirects, as an operator's configuration has them.
    let destinations = ["203.0.113.0/24", "80 TCP 203.0.113.9", "8080 TCP 203.0.113.10 80"];
    let whole = |pod| {
        egress(
            json!({"addresses": [ipv4(pod)], "gateway": GATEWAY[0], "destinations": destinations}),
            master(),
        )
    };
    let plain_v6 = |pod| egress(json!({"addresses": [ipv6(pod)], "gateway": GATEWAY[1]}), master());
    let peers = |pod| macvlan(ipv4(pod));
    let peers_v6 = |pod| macvlan(ipv6(pod));

    let subject =
        |title, program, config, calls| Subject { title, program, config, calls, chunks: Vec::new() };
    let mut one_by_one = [
        subject(table::OURS, ours, &plain as &dyn Fn(usize) -> Value, CALLS),
        subject("egress-router, master and gateway inferred", ours, &inferred, CALLS),
        subject(table::OURS_WHOLE, ours, &whole, CALLS),
        subject(table::OURS_V6, ours, &plain_v6, CALLS),
        subject(table::PEER, peer, &peers, CALLS),
        subject("macvlan + static, IPv6", peer, &peers_v6, SLOW_CALLS),
        subject("the kernel alone: a macvlan created and deleted by `ip`", bare, &peers, CALLS),
    ];
    let mut full = [subject(table::OURS_FULL, ours, &plain, CALLS)];
    let mut crowds = [
        subject(table::OURS_CROWD, ours, &plain, CROWD_CALLS),
        subject("macvlan + static, 8 at once", peer, &peers, CROWD_CALLS),
    ];
    let mut versions = [
        subject(table::OURS_VERSION, ours, &plain, 2 * CALLS),
        subject("macvlan, VERSION", peer, &peers, 2 * CALLS),
    ];
    let lab = Lab::new()?;
    eprintln!("bench: memory");
    let with_memory = [table::OURS, table::OURS_WHOLE, table::PEER];
    let with_memory = one_by_one.iter().filter(|subject| with_memory.contains(&subject.title));
    let memory = with_memory.map(|subject| {
        let chunk = lab.run(subject.program, subject.config, PODS, Work::Memory)?;
        Ok((subject.title, chunk.add.iter().map(|taken| taken.memory).max()))
    });
    let memory = memory.collect::<Result<Vec<_>>>()?;
    lab.alternate(&mut one_by_one, Work::OneByOne)?;
    lab.others("ADD", ours)?;
    lab.alternate(&mut full, Work::OneByOne)?;
    lab.others("DEL", ours)?;
    lab.alternate(&mut crowds, Work::AtOnce)?;
    lab.alternate(&mut versions, Work::Version)?;
    lab.ensure_unchanged()?;

    let all = one_by_one.iter().chain(&full).chain(&crowds).chain(&versions);
    let mut rows: Vec<Row> = all.map(|subject| Row::of(subject.title, &subject.chunks)).collect();
    for row in &mut rows {
        row.memory = memory.iter().find(|(title, _)| *title == row.title).and_then(|(_, memory)| *memory);
    }
    let size = |path: &Path| anyhow::Ok(std::fs::metadata(path)?.len());
    let sizes = (size(ours)?, size(peer)?, size(&helper)?);
    let (date, hardware) = (jiff::Timestamp::now().strftime("%F"), machine::hardware()?);
    Ok(format!(
        "* {date} on {hardware}; bench: {}\n* {} chunks counted, {} discarded because others used more than {:.0} % of the \
         machine; load average at the end {}\n* Program files, bytes: egress-router {}, macvlan {}, static {}\n\n{}",
        machine::BUILD,
        lab.kept.get(),
        lab.discarded.get(),
        100.0 * OTHERS,
        machine::load()?,
        sizes.0,
        sizes.1,
        sizes.2,
        table(&rows, sizes.0)
    ))
}

/// The programs as on a node: copied at once, as an installer does. A linker's output is in the page cache in single pages, and then
/// the page faults of a VERSION take 0.05 ms longer.
struct Installed(tempfile::TempDir);

impl Installed {
    fn copy(&self, program: &Path) -> Result<PathBuf> {
        let copy = self.0.path().join(program.file_name().context("a program is a file")?);
        std::fs::copy(program, &copy).with_context(|| program.display().to_string())?;
        Ok(copy)
    }

    fn script(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

/// The namespaces, with pods.
struct Lab {
    env: TestEnv,
    pods: Vec<Pod>,
    before: Vec<Snapshot>,
    kept: Cell<usize>,
    discarded: Cell<usize>,
}

impl Lab {
    fn new() -> Result<Self> {
        let env = TestEnv::new()?;
        let pods = (0..PODS).map(|number| env.pod(&format!("pod{number}"))).collect::<Result<Vec<_>>>()?;
        let before = pods.iter().map(|pod| pod.inside.network_state()).collect::<Result<_>>()?;
        Ok(Self { env, pods, before, kept: 0.into(), discarded: 0.into() })
    }

    /// ADD or DEL of the attachments of many other pods.
    fn others(&self, verb: &str, program: &Path) -> Result<()> {
        let config = json!({"cniVersion": "1.0.0", "name": "egress", "type": "egress-router", "interfaceArgs": {"master": UPLINK},
            "ip": {"addresses": ["2001:db8:50::1:NUMBER/64"], "gateway": GATEWAY[1]}});
        let (config, number) = (config.to_string(), FULL.to_string());
        let verb = format!("CNI_COMMAND={verb}");
        let program = program.to_string_lossy();
        let command = [
            "env",
            &verb,
            "bash",
            "-euo",
            "pipefail",
            "-c",
            OTHERS_PODS,
            "others",
            &program,
            &config,
            &number,
        ];
        let output = self.env.node.run_as_runtime(command, "")?;
        ensure!(output.success(), "{verb} of {FULL} other pods: {}", output.text().trim());
        Ok(())
    }

    /// A chunk of each subject, until all have as many calls as they need.
    fn alternate(&self, subjects: &mut [Subject<'_>], work: Work) -> Result<()> {
        let most = if work == Work::AtOnce { CROWD } else { PODS };
        while subjects.iter().any(|subject| subject.missing() > 0) {
            for subject in subjects.iter_mut().filter(|subject| subject.missing() > 0) {
                let chunk = self.run(subject.program, subject.config, subject.missing().min(most), work)?;
                subject.chunks.push(chunk);
            }
            let missing: usize = subjects.iter().map(Subject::missing).sum();
            eprintln!("bench: {work:?}: {missing} calls to do, {} chunks discarded", self.discarded.get());
        }
        Ok(())
    }

    /// A chunk during which other processes used little of the machine.
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
        let driver = std::env::current_exe()?;
        loop {
            let command = [driver.as_os_str(), "egress-router-driver".as_ref()];
            let output = self.env.node.run_as_runtime(command, &job)?;
            ensure!(output.success(), "{}: {}", program.display(), output.text().trim());
            let chunk: Chunk = serde_json::from_str(&output.stdout).context("the driver's output")?;
            if chunk.others <= OTHERS {
                self.kept.set(self.kept.get() + 1);
                return Ok(chunk);
            }
            self.discarded.set(self.discarded.get() + 1);
            ensure!(
                self.discarded.get() <= DISCARDS * (self.kept.get() + DISCARDS),
                "this machine is never idle: {} chunks were discarded",
                self.discarded.get()
            );
        }
    }

    /// All ADDs and DELs together have changed nothing.
    fn ensure_unchanged(&self) -> Result<()> {
        for (pod, before) in self.pods.iter().zip(&self.before) {
            let changes = before.changes(&pod.inside.network_state()?);
            ensure!(changes.is_empty(), "the network of {} has changed: {changes:?}", pod.name());
        }
        Ok(())
    }
}
