//! Every step and its rollback with the real kernel, in temporary namespaces.

mod pod;

use std::net::IpAddr;

use common::netlink::link::NewLink;
use common::netlink::route::{Device, Route};
use ipnet::IpNet;

use super::{Failure, Kernel, Linux, rollback, run, run_all};
use crate::cni::{Code, Error};
use crate::config::destinations::Destinations;
use crate::config::interface::{Kind, MacvlanMode};
use crate::config::ip::Gateways;
use crate::log::Log;
use crate::names;
use crate::plan::{Desired, Step, add, del};
use crate::sys::isolated::{isolated, new_namespace};
use pod::{Place, ip_in};

fn log() -> Log {
    Log::open(None, Some("panic"))
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An attachment with all options.
fn desired(master: u32, number: u8, addresses: &[&str]) -> Desired {
    let has = |ipv6: bool| addresses.iter().any(|address| net(address).addr().is_ipv6() == ipv6);
    Desired {
        interface: format!("net{number}"),
        kind: Kind::Macvlan(MacvlanMode::Bridge),
        master,
        node_addresses: vec![address("192.168.50.2"), address("fd50::2")],
        mtu: Some(1400),
        mac: Some([2, 0, 0, 0, 1, number]),
        addresses: addresses.iter().map(|address| net(address)).collect(),
        gateways: Gateways {
            v4: has(false).then(|| "192.168.50.1".parse().unwrap()),
            v6: has(true).then(|| "fd50::1".parse().unwrap()),
        },
        destinations: Destinations {
            allowed: Some(vec![net("203.0.113.0/24"), net("2001:db8::/32")]),
            fallback_v4: Some("203.0.113.9".parse().unwrap()),
            fallback_v6: Some("2001:db8::9".parse().unwrap()),
            ..Destinations::default()
        },
        cluster_networks: vec![net("10.244.0.0/16"), net("172.30.0.0/16"), net("fd44::/48")],
        previous: None,
    }
}

/// Fails at one step without executing it.
struct Failing<'a> {
    kernel: Linux<'a>,
    left: usize,
}

impl Kernel for Failing<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), Error> {
        if self.left == 0 {
            return Err(Error::new(Code::Kernel, "not this one"));
        }
        self.left -= 1;
        self.kernel.apply(step)
    }

    fn rollback(&mut self, step: &Step) -> Result<(), Error> {
        self.kernel.rollback(step)
    }
}

/// Fails at each step in turn, and after the last. The state of pod and node must be the initial one.
fn leaves_nothing(place: &mut Place, steps: &[Step]) {
    let before = place.seen();
    for left in 0..steps.len() {
        let (sockets, host, namespace) = place.parts();
        let mut kernel = Failing { kernel: Linux::new(sockets).making_links(host, namespace), left };
        let error = run(steps, &mut kernel).unwrap_err();
        let expected = Failure { error: Error::new(Code::Kernel, "not this one"), left: Vec::new() };
        assert_eq!(error, expected, "{:?}", steps[left]);
        place.assert_seen(&before, &format!("failed at {:?}", steps[left]));
    }
    let (sockets, host, namespace) = place.parts();
    let mut kernel = Linux::new(sockets).making_links(host, namespace);
    run(steps, &mut kernel).unwrap_or_else(|failure| panic!("{failure:?}"));
    rollback(steps, &mut kernel).unwrap();
    place.assert_seen(&before, "done and undone");
}

fn plan_of(place: &mut Place, number: u8, addresses: &[&str]) -> Vec<Step> {
    let desired = desired(place.master(), number, addresses);
    place.attachments.remove(&desired.interface);
    let plan = add::add(&desired, &place.observed()).unwrap();
    place.attachments.insert(desired.interface, plan.undo);
    plan.steps
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    isolated(|| {
        for addresses in [
            &["192.168.50.9/24", "fd50::9/64"][..],
            &["fd50::9/64"],
            &["192.168.50.9/24", "192.168.50.10/24"],
            &["198.51.100.7/32"],
        ] {
            new_namespace().enter().unwrap();
            let mut place = Place::new();
            let steps = plan_of(&mut place, 1, addresses);
            assert!(steps.len() >= 12, "{steps:?}");
            leaves_nothing(&mut place, &steps);
        }
    });
}

#[test]
fn a_refusal_anywhere_in_a_batch_leaves_nothing() {
    isolated(|| {
        let mut place = Place::new();
        let before = place.seen();
        let steps = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
        let made = steps.iter().position(|step| matches!(step, Step::CreateLink(_))).unwrap();
        let nowhere = Route::unicast(
            names::PROTOCOL,
            254,
            net("10.99.0.0/16"),
            Some(address("192.0.2.1")),
            Device::New,
        );
        for at in made + 1..=steps.len() {
            let mut steps = steps.clone();
            steps.insert(at, Step::AddRoute(nowhere.clone()));
            let (sockets, host, namespace) = place.parts();
            let mut kernel = Linux::new(sockets).making_links(host, namespace);
            let failure = run(&steps, &mut kernel).unwrap_err();
            let message = &failure.error.message;
            assert!(message.starts_with("cannot add the route 10.99.0.0/16 via"), "{failure:?}");
            assert_eq!(failure.left, []);
            place.assert_seen(&before, &format!("refused before {:?}", steps.get(at + 1)));
        }
    });
}

#[test]
fn a_batch_has_the_same_result_as_single_requests() {
    isolated(|| {
        let mut place = Place::new();
        let steps = plan_of(&mut place, 1, &["192.168.50.9/24", "192.168.50.10/24", "fd50::9/64"]);
        let mut made = [true, false].map(|together| {
            let (sockets, host, namespace) = place.parts();
            let mut kernel = Linux::new(sockets).making_links(host, namespace);
            if together {
                // All but the default routes, in fewer sends than steps.
                let first = steps.iter().position(|step| matches!(step, Step::AddAddress(_))).unwrap();
                run(&steps[..first], &mut kernel).unwrap();
                let replies = kernel.apply_first(&steps[first..]);
                assert!(replies.len() > 10 && replies.iter().all(Result::is_ok), "{replies:?}");
                run(&steps[first + replies.len()..], &mut kernel).unwrap();
                assert!(steps[first + replies.len()..].len() >= 2);
            } else {
                steps.iter().for_each(|step| kernel.apply(step).unwrap());
            }
            let mut seen = place.seen();
            let steps = del_steps(&mut place);
            let (sockets, host, namespace) = place.parts();
            run_all(&steps, &mut Linux::new(sockets).making_links(host, namespace), &log()).unwrap();
            // The second link has another index.
            seen.retain(|name, _| !name.contains("-d link") && !name.contains("-d addr"));
            seen
        });
        let [together, alone] = &mut made;
        let sysctl = "/proc/sys/net/ipv4/conf/net1/arp_announce";
        assert_eq!(together.get(sysctl).map(|value| value.trim()), Some("2"));
        for (name, seen) in together {
            assert_eq!(Some(&*seen), alone.get(name), "{name}");
        }
    });
}

#[test]
fn a_second_add_that_fails_at_any_step_leaves_the_first() {
    isolated(|| {
        let mut place = Place::new();
        let first = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
        let (sockets, host, namespace) = place.parts();
        run(&first, &mut Linux::new(sockets).making_links(host, namespace)).unwrap();
        let second = plan_of(&mut place, 2, &["192.168.50.10/24", "fd50::10/64"]);
        leaves_nothing(&mut place, &second);
    });
}

#[test]
fn a_repeated_router_advertisement_does_not_bypass_the_attachment() {
    isolated(|| {
        let mut place = Place::new();
        place.meets_a_router();
        ip_in(&place, "-6 route del default");
        place.advertise();
        let defaults = |place: &Place| ip_in(place, "-6 route show default");
        assert!(defaults(&place).contains("via fe80::1 dev eth0 proto ra"), "{}", defaults(&place));
        let before = place.seen();
        let steps = plan_of(&mut place, 1, &["fd50::9/64"]);
        leaves_nothing(&mut place, &steps);
        let (sockets, host, namespace) = place.parts();
        run(&steps, &mut Linux::new(sockets).making_links(host, namespace)).unwrap();
        place.advertise();
        let found = defaults(&place);
        assert!(found.lines().count() == 1 && found.contains("dev net1"), "{found}");
        assert!(ip_in(&place, "-6 route get 2001:db8::7").contains("dev net1"));
        // The control: an accepted advertisement adds a route after the attachment's.
        let heard = "/proc/sys/net/ipv6/conf/eth0/accept_ra_defrtr";
        std::fs::write(heard, "1").unwrap();
        place.advertise();
        assert!(defaults(&place).contains("via fe80::1 dev eth0 proto ra"), "{}", defaults(&place));
        assert!(ip_in(&place, "-6 route get 2001:db8::7").contains("dev net1"));
        std::fs::write(heard, "0").unwrap();
        ip_in(&place, "-6 route del default via fe80::1 dev eth0");
        let steps = del_steps(&mut place);
        run_all(&steps, &mut Linux::new(place.parts().0), &log()).unwrap();
        place.assert_seen(&before, "added and deleted");
    });
}

#[test]
fn del_removes_everything_that_add_created() {
    isolated(|| {
        let mut place = Place::new();
        let before = place.seen();
        for _ in 0..2 {
            let steps = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
            let (sockets, host, namespace) = place.parts();
            let mut kernel = Linux::new(sockets).making_links(host, namespace);
            run(&steps, &mut kernel).unwrap();
            let link = kernel.link().unwrap();
            assert_eq!((link.name.as_str(), link.mtu, link.mac), ("net1", 1400, Some([2, 0, 0, 0, 1, 1])));
            let steps = del_steps(&mut place);
            run_all(&steps, &mut Linux::new(place.parts().0), &log()).unwrap();
            // A second DEL has nothing to do and succeeds.
            run_all(&steps[steps.len() - 2..], &mut Linux::new(place.parts().0), &log()).unwrap();
            place.assert_seen(&before, "added and deleted");
        }
    });
}

/// Whether `net1` exists, whether it is up, and whether its table exists.
fn link_and_table(place: &mut Place) -> (Option<bool>, bool) {
    let pod = place.observed();
    let link = pod.links.iter().find(|link| link.name == "net1");
    (link.map(|link| link.up), pod.tables.contains("net1"))
}

fn del_steps(place: &mut Place) -> Vec<Step> {
    let pod = place.observed();
    del::del(&pod, "net1", &pod.attachments["net1"])
}

#[test]
fn a_del_that_is_stopped_after_any_step_never_leaves_the_link_up_without_its_table() {
    isolated(|| {
        let mut place = Place::new();
        let before = place.seen();
        let mut steps = usize::MAX;
        for stopped in 0.. {
            if stopped > steps {
                break;
            }
            let add = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
            let (sockets, host, namespace) = place.parts();
            run(&add, &mut Linux::new(sockets).making_links(host, namespace)).unwrap();
            let del = del_steps(&mut place);
            steps = del.len();
            run_all(&del[..stopped], &mut Linux::new(place.parts().0), &log()).unwrap();
            let (up, table) = link_and_table(&mut place);
            assert!(up != Some(true) || table, "up without its table after {:?}", del.get(..stopped));
            if stopped < steps {
                let rest = del_steps(&mut place);
                run_all(&rest, &mut Linux::new(place.parts().0), &log()).unwrap();
            }
            place.assert_seen(&before, &format!("stopped after {stopped} of {steps} steps, then deleted"));
        }
    });
}

/// Refuses to delete links.
struct KeepsLinks<'a>(Linux<'a>);

impl Kernel for KeepsLinks<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::DeleteLink { .. } => Err(Error::new(Code::Kernel, "busy")),
            step => self.0.apply(step),
        }
    }

    fn rollback(&mut self, step: &Step) -> Result<(), Error> {
        self.0.rollback(step)
    }
}

#[test]
fn a_link_that_cannot_be_deleted_is_down_and_keeps_its_table() {
    isolated(|| {
        let mut place = Place::new();
        let before = place.seen();
        let add = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
        let (sockets, host, namespace) = place.parts();
        run(&add, &mut Linux::new(sockets).making_links(host, namespace)).unwrap();
        let del = del_steps(&mut place);
        let error = run_all(&del, &mut KeepsLinks(Linux::new(place.parts().0)), &log()).unwrap_err();
        assert_eq!(error.message, "busy");
        assert_eq!(link_and_table(&mut place), (Some(false), true));
        let del = del_steps(&mut place);
        run_all(&del, &mut Linux::new(place.parts().0), &log()).unwrap();
        place.assert_seen(&before, "deleted by the next DEL");
    });
}

/// Rolls back neither a new link nor that it is up.
struct KeepsNewLink<'a>(Linux<'a>);

impl Kernel for KeepsNewLink<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), Error> {
        self.0.apply(step)
    }

    fn rollback(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::CreateLink(_) | Step::SetUp => Err(Error::new(Code::Kernel, "busy")),
            step => self.0.rollback(step),
        }
    }
}

#[test]
fn a_new_link_that_cannot_be_deleted_keeps_both_tables() {
    isolated(|| {
        let mut place = Place::new();
        let add = plan_of(&mut place, 1, &["192.168.50.9/24", "fd50::9/64"]);
        let (sockets, host, namespace) = place.parts();
        let mut kernel = KeepsNewLink(Linux::new(sockets).making_links(host, namespace));
        run(&add, &mut kernel).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(rollback(&add, &mut kernel).unwrap_err().message, "busy");
        assert_eq!(link_and_table(&mut place), (Some(true), true));
        assert!(place.observed().frame_filters.contains("net1"));
    });
}

#[test]
fn existing_routes_and_rules_are_restored_in_order() {
    isolated(|| {
        let mut place = Place::new();
        for line in [
            "route append default via 10.244.1.3",
            "route append default via 10.244.1.4",
            "route add 10.12.0.0/16 nexthop via 10.244.1.1 weight 3 nexthop via 10.244.1.5 weight 1",
            "route add 10.13.0.0/16 via 10.244.1.1 mtu 1300 tos 0x10",
            "route add unreachable 10.14.0.0/16 metric 7",
            "-6 route append default via fd44::3 metric 1024 proto 99",
            "-6 route append fd00:12::/64 dev eth0 metric 7",
            "-6 route add unreachable fd00:14::/64",
            "rule add from 10.9.0.0/16 table 9 priority 77",
            "-6 rule add fwmark 0x7/0xf table 9 priority 77",
        ] {
            ip_in(&place, line);
        }
        let pod = place.observed();
        let ours = |table: u32| table != 254;
        let (defaults, others): (Vec<Route>, Vec<Route>) = pod
            .routes
            .iter()
            .filter(|route| route.protocol != 2)
            .cloned()
            .partition(|route| route.destination.prefix_len() == 0);
        let mut steps: Vec<Step> = Vec::new();
        // The first of each family is replaced, the others are deleted, as ADD does.
        for ipv6 in [false, true] {
            let mut defaults = defaults.iter().filter(|route| route.destination.addr().is_ipv6() == ipv6);
            let before = defaults.next().unwrap().clone();
            let gateway = address(if ipv6 { "fd44::7" } else { "10.244.1.7" });
            let after = Route {
                metric: before.metric,
                device: before.device,
                ..Route::unicast(names::PROTOCOL, 254, before.destination, Some(gateway), Device::New)
            };
            let device = before
                .device
                .or(Some(Device::Index(pod.links.iter().find(|l| l.name == "eth0").unwrap().index)));
            steps.push(Step::ReplaceRoute { before, after: Route { device, ..after } });
            steps.extend(defaults.cloned().map(Step::DeleteRoute));
        }
        steps.extend(others.into_iter().map(Step::DeleteRoute));
        steps.extend(
            pod.rules
                .iter()
                .filter(|rule| ours(rule.table) && rule.priority == 77)
                .cloned()
                .map(Step::DeleteRule),
        );
        // Deleting a missing one is not an error, and the rollback does not add it.
        steps.push(Step::DeleteRoute(Route::unicast(
            names::PROTOCOL,
            9,
            net("10.99.0.0/16"),
            None,
            Device::Index(1),
        )));
        leaves_nothing(&mut place, &steps);

        // All in one batch, without a replaced route before them.
        let deleted: Vec<Step> = defaults.into_iter().map(Step::DeleteRoute).collect();
        assert!(deleted.len() >= 4, "{deleted:?}");
        leaves_nothing(&mut place, &deleted);
    });
}

#[test]
fn a_refusal_names_the_step_and_has_the_kernels_message() {
    isolated(|| {
        let mut place = Place::new();
        let before = place.seen();
        let unreachable = Route::unicast(
            names::PROTOCOL,
            254,
            net("10.99.0.0/16"),
            Some(address("192.0.2.1")),
            Device::New,
        );
        let link = NewLink {
            name: "net1".into(),
            master: place.master(),
            kind: Kind::Macvlan(MacvlanMode::Private),
            mtu: None,
            mac: None,
        };
        let create = Step::CreateLink(link.clone());
        let cases = [
            (
                Step::AddRoute(unreachable),
                "cannot add the route 10.99.0.0/16 via 192.0.2.1 dev (the new link) table 254",
                "Nexthop has invalid gateway",
            ),
            (create.clone(), "cannot create the macvlan net1 on link", "File exists"),
            (
                Step::Sysctl {
                    name: ["net", "ipv4", "conf", "gone", "forwarding"].map(str::to_owned).to_vec(),
                    value: "1".into(),
                    before: None,
                },
                "cannot set net.ipv4.conf.gone.forwarding to 1",
                "No such file",
            ),
            (Step::AddAddress(net("10.244.1.2/24")), "", ""),
        ];
        for (step, message, details) in cases {
            let (sockets, host, namespace) = place.parts();
            let mut kernel = Linux::new(sockets).making_links(host, namespace);
            let reply = run(&[create.clone(), Step::SetUp, step], &mut kernel);
            if message.is_empty() {
                reply.unwrap();
                rollback(std::slice::from_ref(&create), &mut kernel).unwrap();
            } else {
                let error = reply.unwrap_err().error;
                assert_eq!(error.code, Code::Kernel);
                assert!(error.message.starts_with(message), "{error:?}");
                assert!(error.details.contains(details), "{error:?}");
            }
            place.assert_seen(&before, message);
        }
        // A missing master, and an invalid mode.
        for master in [0, 9999] {
            let (sockets, host, namespace) = place.parts();
            let step = Step::CreateLink(NewLink { master, ..link.clone() });
            let error =
                run(&[step], &mut Linux::new(sockets).making_links(host, namespace)).unwrap_err().error;
            assert!(!error.details.is_empty(), "{error:?}");
            place.assert_seen(&before, "no such master");
        }
    });
}

#[test]
fn a_name_that_the_node_uses_can_be_used_in_the_pod() {
    isolated(|| {
        let mut place = Place::new();
        let new = NewLink {
            name: "u0".into(),
            master: place.master(),
            kind: Kind::Macvlan(MacvlanMode::Bridge),
            mtu: None,
            mac: None,
        };
        let (sockets, host, namespace) = place.parts();
        let link = super::link::create(host, &mut sockets.route, namespace.descriptor(), &new).unwrap();
        assert_eq!(link.name, "u0");
        let other = NewLink { name: "net2".into(), ..new };
        // As on kernels that compare with the node's names.
        let renamed =
            super::link::create_and_rename(host, &mut sockets.route, namespace.descriptor(), &other).unwrap();
        assert_eq!(sockets.route.link_by_name("net2").unwrap(), Some(renamed));
        let taken = super::link::create_and_rename(host, &mut sockets.route, namespace.descriptor(), &other)
            .unwrap_err();
        assert!(taken.is(&[libc::EEXIST]), "{taken}");
        let names: Vec<_> = sockets.route.links().unwrap().into_iter().map(|link| link.name).collect();
        assert!(!names.iter().any(|name| name.starts_with("egr")), "{names:?}");
    });
}

#[test]
fn a_failed_rollback_is_reported() {
    struct Stubborn;
    impl Kernel for Stubborn {
        fn apply(&mut self, step: &Step) -> Result<(), Error> {
            match step {
                Step::SetUp => Err(Error::new(Code::Kernel, "cannot set it up").details("no")),
                _ => Ok(()),
            }
        }

        fn rollback(&mut self, step: &Step) -> Result<(), Error> {
            match step {
                Step::AddAddress(net) => {
                    Err(Error::new(Code::Kernel, format!("cannot take {net}")).details("busy"))
                }
                _ => Ok(()),
            }
        }
    }
    let steps = ["10.0.0.1/8", "10.0.0.2/8"].map(|text| Step::AddAddress(net(text)));
    let all = [steps.to_vec(), vec![Step::SetUp, Step::SetUp]].concat();
    let error = Error::from(run(&all, &mut Stubborn).unwrap_err());
    assert_eq!(
        (error.message.as_str(), error.details.as_str()),
        (
            "cannot set it up",
            "no; not rolled back: cannot take 10.0.0.2/8: busy; not rolled back: cannot take 10.0.0.1/8: busy"
        )
    );
    assert_eq!(
        rollback(&steps, &mut Stubborn).unwrap_err().details,
        "busy; also: cannot take 10.0.0.1/8: busy"
    );
    assert_eq!(run_all(&all, &mut Stubborn, &log()).unwrap_err().details, "no; also: cannot set it up: no");
}
