//! Killed, failed and repeated calls leave nothing.
//!
//! `make test` kills and fails each call at a slice of its system calls, `make test-full` at all of them, `SWEEP=k/n` at a part.

use std::cell::Cell;

use e2e::egress_router::{CallOutput, UPLINK};
use e2e::netns::wait_until;
use e2e::sweep::Slice;

use super::*;

/// System calls that change state outside of the process, prepare a change, or read its result. Those with `?` do not exist on all CPUs.
const CALLS: [&str; 21] = [
    "sendto",
    "sendmsg",
    "?sendmmsg",
    "recvfrom",
    "recvmsg",
    "write",
    "writev",
    "?pwrite64",
    "setns",
    "socket",
    "bind",
    "openat",
    "flock",
    "fsync",
    "fdatasync",
    "?rename",
    "?renameat",
    "renameat2",
    "?unlink",
    "unlinkat",
    "?mkdir",
];
/// Those that only read, wait or prepare. A kill before one of them leaves the same state as a kill before the next other one, so it is not
/// tested.
const WITHOUT_TRACE: [&str; 6] = ["recvfrom", "recvmsg", "setns", "socket", "bind", "flock"];
/// A file is written under another name, and renamed. ADD writes its journal before the first step and after the last one.
pub(super) const RENAME: &str = "?rename,?renameat,renameat2";
/// The folder of the journals.
pub(super) const JOURNALS: &str = "/run/egress-router/attachments";
/// More than the number of any of them in the longest call.
const ENOUGH: usize = 200;
/// More than the calls in a row at which an error is tolerated.
const TOLERATED: usize = 10;
/// `make test` takes one system call of each kind in so many.
const SLICES: usize = 3;

/// The part of the system calls of this test.
fn slice(verb: &str, what: &str) -> Slice {
    Slice::chosen(&format!("egress-router, {verb} {what}"), SLICES as u64).unwrap()
}

/// Whether the slice has the `at`th system call of this kind. Each kind begins elsewhere, because some have one or two calls only.
fn has(slice: Slice, kind: usize, at: usize) -> bool {
    slice.has((kind + at) as u64)
}

/// A configuration with everything: both families, redirects, a list, strict rp_filter.
fn everything() -> Value {
    json!({
        "addresses": ["192.168.50.99/24", "192.168.50.98/24", "2001:db8:50::99/64"],
        "destinations": ["203.0.113.9/32", "2001:db8:9::/64", "80 TCP 203.0.113.9", "80 TCP 2001:db8:9::9", "203.0.113.10"],
    })
}

pub(super) fn strict_scene() -> Scene {
    let mut scene = Scene::new();
    scene.pod.inside.sh("for i in all eth0; do echo 1 >/proc/sys/net/ipv4/conf/$i/rp_filter; done").unwrap();
    scene.pod_before = scene.pod.inside.network_state().unwrap();
    scene
}

/// A fixed MAC, so that two ADDs have the same state.
pub(super) fn plugin(scene: &Scene) -> Plugin {
    let mut config = config(everything());
    config["runtimeConfig"] = json!({"mac": "02:00:5e:00:53:01"});
    scene.env.plugin(&scene.pod, "net1", config).unwrap()
}

/// The plugin with a fault at the `at`th of those system calls.
pub(super) fn injected(plugin: &Plugin, call: &str, what: &str, at: usize) -> Plugin {
    let inject = format!("inject={call}:{what}:when={at}");
    let words = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject];
    plugin.clone().wrapped(words.map(str::to_owned))
}

/// Calls `verb` repeatedly, killed before its first, second … last system call of each kind that changes state, if the slice has it, and
/// after the last. Then runs `then` with the position.
fn killed_everywhere(plugin: &Plugin, verb: &str, before: impl Fn(), then: impl Fn(&str)) -> usize {
    let mut killed = 0;
    let slice = slice(verb, "killed");
    let calls = CALLS.into_iter().filter(|call| !WITHOUT_TRACE.contains(call));
    for (kind, call) in calls.enumerate() {
        for at in (1..).filter(|at| has(slice, kind, *at)) {
            before();
            let output =
                injected(plugin, call, "signal=KILL", at).call(verb, &plugin.config.to_string()).unwrap();
            let place = format!("{verb} killed at {call} {at}");
            let over = output.code == Some(0);
            assert!(at < ENOUGH && (over || matches!(output.code, None | Some(137))), "{place}: {output:#?}");
            then(&place);
            if over {
                break;
            }
            killed += 1;
        }
    }
    println!("{verb} was killed at {killed} of its calls to the system: {slice}");
    killed
}

/// Calls `verb` repeatedly, with an error at its first, second … last system call of each kind, if the slice has it. Then runs `then` with
/// the position and the output. Returns how many calls failed.
fn failed_everywhere(
    plugin: &Plugin,
    verb: &str,
    before: impl Fn(),
    mut then: impl FnMut(&str, &CallOutput),
) -> usize {
    let mut failed = 0;
    let slice = slice(verb, "failed");
    let tolerated = if slice.is_whole() { TOLERATED } else { TOLERATED.div_ceil(SLICES) };
    for (kind, call) in CALLS.into_iter().enumerate() {
        let mut succeeded = 0;
        for at in (1..ENOUGH).filter(|at| has(slice, kind, *at)) {
            before();
            let output =
                injected(plugin, call, "error=ENOMEM", at).call(verb, &plugin.config.to_string()).unwrap();
            then(&format!("{verb} with an error at {call} {at}"), &output);
            (failed, succeeded) =
                if output.code == Some(0) { (failed, succeeded + 1) } else { (failed + 1, 0) };
            // Beyond the last call there is no error. Before it, errors are tolerated at several calls in a row: files that need not exist.
            if succeeded > tolerated {
                break;
            }
        }
    }
    println!("{verb} failed at {failed} of its calls to the system: {slice}");
    failed
}

/// Asserts that an interface that is up has its allow-list: the gateway is not in it, and would respond. Counts the interfaces that are up.
fn obeys_the_list(scene: &Scene, place: &str, up: &Cell<u32>) {
    let link = scene.pod.inside.sh("ip -o link show net1 up 2>/dev/null || true").unwrap();
    up.set(up.get() + u32::from(!link.is_empty()));
    for gateway in GATEWAY.into_iter().filter(|_| !link.is_empty()) {
        let host = if gateway.contains(':') { format!("[{gateway}]") } else { gateway.to_owned() };
        let to = format!("TCP:{host}:{PORT},so-bindtodevice=net1,connect-timeout=1");
        let output = scene.pod.inside.run(["socat", "-T1", "-u", &to, "-"]).unwrap();
        assert_eq!(output.stdout, "", "{place}: net1 is up without its list");
    }
}

/// Asserts that the journal exists as long as anything of the attachment.
fn is_recorded(scene: &Scene, place: &str) {
    let link = "ip -o link show net1 2>/dev/null || true";
    // An older `ip rule show protocol 153` shows all rules.
    let rules = "(ip rule; ip -6 rule) | grep 'proto 153' || true";
    let objects = scene.pod.inside.sh(&format!("{link}; nft list tables; {rules}")).unwrap();
    let journal = scene.env.node.sh(&format!("ls {JOURNALS}/pod@net1.json 2>/dev/null || true")).unwrap();
    assert!(objects.is_empty() || !journal.is_empty(), "{place}: no journal, but {objects}");
}

/// An ADD that is killed before it completes its journal.
fn killed_before_its_end(plugin: &Plugin) {
    let output = injected(plugin, RENAME, "signal=KILL", 2).call("ADD", &plugin.config.to_string()).unwrap();
    assert!(matches!(output.code, None | Some(137)), "{output:#?}");
}

#[test]
fn hot_unplug_restores_the_pod() {
    let scene = strict_scene();
    for ip in [v4(), v6(), dual(), everything()] {
        let plugin = scene.plugin(ip);
        let result = plugin.add().unwrap();
        assert_ne!(scene.changes(), Vec::<String>::new());
        plugin.del(Some(&result)).unwrap();
        scene.restored();
        // DEL is idempotent, and needs neither the result nor the interface.
        plugin.del(None).unwrap();
        plugin.add().unwrap();
        plugin.del(None).unwrap();
        scene.restored();
        for change in ["del net1", "set net1 down name renamed"] {
            plugin.add().unwrap();
            scene.pod.inside.sh(&format!("ip link {change}")).unwrap();
            plugin.del(None).unwrap();
            scene.restored();
        }
    }
}

#[test]
fn connections_of_the_primary_interface_survive_add_and_del() {
    let scene = strict_scene();
    // A connection with another node, used before and after each call.
    let _server = scene.pod.inside.start_process(["socat", "TCP4-LISTEN:7000,fork", "EXEC:cat"]).unwrap();
    let command = format!(
        "mkfifo /run/questions; exec 3<>/run/questions; socat - TCP4:{}:7000,retry=50,interval=0.1 <&3",
        scene.pod.addresses[0]
    );
    let client = scene.env.node2.start_process(["bash", "-c", &command]).unwrap();
    let ask = |question: &str| {
        scene
            .env
            .node2
            .sh(&format!("until [ -p /run/questions ]; do sleep 0.01; done; echo {question} >/run/questions"))
            .unwrap();
        client.wait_for(question).unwrap();
    };
    ask("before");
    // Redirects would apply to connections to their ports, so there are none.
    let plugin = scene.plugin(json!({
        "addresses": ["192.168.50.99/24", "2001:db8:50::99/64"], "destinations": ["203.0.113.9/32", "2001:db8:9::/64"],
    }));
    let result = plugin.add().unwrap();
    ask("meanwhile");
    plugin.del(Some(&result)).unwrap();
    ask("afterwards");
}

#[test]
fn an_add_that_is_killed_at_any_system_call_is_undone_by_del_or_completed_by_the_next_add() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    let (second_call, up) = (Cell::new(false), Cell::new(0));
    let killed = killed_everywhere(
        &plugin,
        "ADD",
        || (),
        |place| {
            // Every second one is followed by another ADD, as by a runtime that has lost the first.
            second_call.set(!second_call.get());
            obeys_the_list(&scene, place, &up);
            is_recorded(&scene, place);
            let has_completed = format!(r#"grep '"made":{{' {JOURNALS}/pod@net1.json"#);
            if second_call.get() && scene.env.node.sh(&has_completed).is_ok() {
                let refusal = plugin.refused().unwrap();
                assert!(refusal.words().contains("net1 already"), "{place}: {refusal:#?}");
            } else if second_call.get() {
                plugin.add().unwrap_or_else(|error| panic!("ADD after {place}: {error:#}"));
                scene.outside_sees(OWN[0]);
            }
            plugin.del(None).unwrap_or_else(|error| panic!("DEL after {place}: {error:#}"));
            assert_eq!(scene.changes(), Vec::<String>::new(), "{place}");
        },
    );
    assert!(killed > 20 / SLICES && up.get() > 0, "only {killed}, and {} after net1 was up", up.get());
    scene.restored();
}

#[test]
fn a_del_that_is_killed_at_any_system_call_is_completed_by_the_next_one() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    let up = Cell::new(0);
    let killed = killed_everywhere(
        &plugin,
        "DEL",
        || drop(plugin.add().unwrap()),
        |place| {
            obeys_the_list(&scene, place, &up);
            is_recorded(&scene, place);
            plugin.del(None).unwrap_or_else(|error| panic!("DEL after {place}: {error:#}"));
            assert_eq!(scene.changes(), Vec::<String>::new(), "{place}");
        },
    );
    assert!(killed > 15 / SLICES && up.get() > 0, "only {killed}, and {} before net1 was down", up.get());
    scene.restored();
}

/// The pod's state after an ADD. The kernel processes the link-up event asynchronously and adds IPv6's routes then.
fn settled(scene: &Scene) -> Snapshot {
    let has_addresses = || {
        let link_is_up = scene.pod.inside.sh("ip -o link show net1")?.contains("state UP");
        let addresses = scene.pod.inside.sh("ip -6 -o addr show dev net1")?;
        Ok(link_is_up && addresses.contains("scope link") && !addresses.contains("tentative"))
    };
    wait_until("net1 is up with its addresses", has_addresses).unwrap();
    scene.pod.inside.network_state().unwrap()
}

#[test]
fn an_add_that_fails_at_any_system_call_restores_the_pod() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    plugin.add().unwrap();
    let whole = settled(&scene);
    plugin.del(None).unwrap();
    let mut wrong = Vec::new();
    let failed = failed_everywhere(
        &plugin,
        "ADD",
        || (),
        |place, output| {
            let is_made = output.code == Some(0);
            let changes = if is_made { whole.changes(&settled(&scene)) } else { scene.changes() };
            if !changes.is_empty() {
                let (code, words) = (output.code, output.words());
                wrong.push(format!("{place}: {code:?} {words}: changes are left: {changes:?}"));
            }
            plugin.del(None).unwrap();
            if !scene.changes().is_empty() {
                wrong.push(format!("{place}: and DEL does not help: {:?}", scene.changes()));
                scene.pod.inside.sh("ip link del net1 2>/dev/null || true").unwrap();
            }
        },
    );
    assert_eq!(wrong, Vec::<String>::new());
    assert!(failed > 10 / SLICES, "only {failed}");
    scene.restored();
}

#[test]
fn a_del_that_fails_at_any_system_call_is_completed_by_the_next_one() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    let failed = failed_everywhere(
        &plugin,
        "DEL",
        || drop(plugin.add().unwrap()),
        |place, output| {
            if output.code != Some(0) {
                plugin.del(None).unwrap();
            }
            let changes = scene.changes();
            assert!(changes.is_empty(), "{place}: {output:#?}: changes are left: {changes:?}");
        },
    );
    assert!(failed > 10 / SLICES, "only {failed}");
    scene.restored();
}

#[test]
fn an_add_that_was_killed_is_cleaned_up_by_each_operation() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    // On older kernels, the new link has another name at first.
    let temporary = || {
        let netns = &scene.pod.netns;
        scene.env.node.sh(&format!("ip link add egr2a link {UPLINK} netns {netns} type macvlan")).unwrap();
    };
    let mut gc = plugin.config.clone();
    gc["cni.dev/valid-attachments"] = json!([]);
    for verb in ["DEL", "GC", "ADD"] {
        killed_before_its_end(&plugin);
        scene.pod.inside.sh("ip link show net1 up").unwrap();
        temporary();
        let config = if verb == "GC" { &gc } else { &plugin.config };
        let output = plugin.call(verb, &config.to_string()).unwrap();
        assert_eq!(output.code, Some(0), "{verb}: {output:#?}");
        assert!(scene.pod.inside.sh("ip link show egr2a").is_err(), "{verb}");
        if verb == "ADD" {
            scene.outside_sees(OWN[0]);
            plugin.del(None).unwrap();
        }
        scene.restored();
    }
    // Without the journal of a killed ADD, such a link belongs to another program.
    temporary();
    plugin.del(None).unwrap();
    scene.pod.inside.sh("ip link show egr2a && ip link del egr2a").unwrap();
    scene.restored();
}

#[test]
fn a_flushed_ruleset_does_not_change_what_del_restores() {
    let scene = strict_scene();
    let attachments = [
        plugin(&scene),
        scene.attachment("net2", json!({"addresses": ["192.168.50.97/24", "2001:db8:50::97/64"]})),
    ];
    for order in [[0, 1], [1, 0]] {
        for flushed in [0, 1] {
            for plugin in &attachments {
                plugin.add().unwrap();
            }
            for (at, which) in order.into_iter().enumerate() {
                if at == flushed {
                    scene.pod.inside.sh("nft flush ruleset").unwrap();
                }
                attachments[which].del(None).unwrap();
            }
            scene.restored();
        }
    }
}

/// A program in the pod with NET_ADMIN must not be able to prevent its deletion.
#[test]
fn del_succeeds_if_the_default_route_cannot_be_restored() {
    for damage in [
        "ip link set eth0 down",
        "ip addr flush dev eth0",
        "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
    ] {
        let scene = Scene::new();
        let plugin = plugin(&scene);
        let result = plugin.add().unwrap();
        scene.pod.inside.sh(damage).unwrap();
        plugin.del(Some(&result)).unwrap();
        let left = "ip -o link show net1 2>/dev/null || true; nft list tables; ip rule show | grep 'proto 153' || true";
        assert_eq!(scene.pod.inside.sh(left).unwrap(), "", "{damage}");
        assert_eq!(scene.env.node.sh(&format!("find {JOURNALS} -type f")).unwrap(), "", "{damage}");
    }
}

#[test]
fn del_and_gc_succeed_without_the_namespace() {
    let scene = Scene::new();
    let plugin = plugin(&scene);
    let mut gc = plugin.config.clone();
    gc["cni.dev/valid-attachments"] = json!([]);
    let result = plugin.add().unwrap();
    let (node, netns) = (&scene.env.node, &scene.pod.netns);
    let without = plugin.clone().env("CNI_NETNS", "");
    node.sh(&format!("cp -r {JOURNALS} /run/copy; umount {netns}")).unwrap();
    // The path is a plain file, then does not exist, then is not given.
    for (prepare, plugin) in [("true", &plugin), (&format!("rm {netns}"), &plugin), ("true", &without)] {
        node.sh(&format!("{prepare}; cp /run/copy/* {JOURNALS}/")).unwrap();
        let left = format!("find {JOURNALS} /var/lib/cni -type f 2>/dev/null || true");
        plugin.del(Some(&result)).unwrap();
        assert_eq!(node.sh(&left).unwrap(), "");
        node.sh(&format!("cp /run/copy/* {JOURNALS}/")).unwrap();
        let output = plugin.call("GC", &gc.to_string()).unwrap();
        assert_eq!((output.code, node.sh(&left).unwrap()), (Some(0), String::new()), "{output:#?}");
    }
}
