use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use common::netlink::isolated::{ip, isolated, nft, read_only_sysctls, run};

use super::*;
use crate::agent::datapath::{BoundPod, VipRoute};
use crate::api::TunId;

mod sweep;

/// A node with an underlay link, in a namespace of the test's own.
fn node(datapath: &Datapath) -> Vxlan {
    // The kernel adds routes of IPv6 seconds after a link is up: states could not be compared.
    run("sysctl", ["-qw", "net.ipv6.conf.default.disable_ipv6=1"]);
    ip("link set lo up");
    ip("link add eth0 mtu 1500 type veth peer name eth1");
    ip("link set eth1 up");
    ip(&format!("address add {}/24 dev eth0", datapath.node.ip));
    ip("link set eth0 up");
    ip("route add default via 192.168.50.1");
    Vxlan::new(Config::default()).unwrap()
}

/// Everything that a driver could leave behind.
fn state() -> String {
    let links = run("ip", ["-details", "link", "show"]);
    let all = [
        links.as_str(),
        &ip("address show"),
        &ip("rule show"),
        &ip("route show table all"),
        &ip("neighbour show"),
        &nft("list ruleset"),
        &run("sysctl", ["-a", "--pattern", r"^net\.ipv4\.(conf|ip_forward)"]),
    ];
    // Lifetimes of IPv6 addresses and of the loopback's routes are not the driver's.
    all.join("\n")
}

fn objects(changes: &[Change]) -> Vec<&'static str> {
    let mut objects: Vec<_> = changes.iter().map(|change| change.object).collect();
    objects.dedup();
    objects
}

#[test]
fn a_second_apply_and_a_restarted_driver_write_nothing() {
    isolated(|| {
        for datapath in [sample::worker(), sample::gateway(), sample::standby()] {
            let mut driver = node(&datapath);
            let preview = driver.preview(&datapath).unwrap();
            let changes = driver.apply(&datapath).unwrap();
            assert_eq!(objects(&changes), ["link", "sysctl", "link", "route", "nftables"]);
            assert_eq!(preview, changes);
            let (table, guard) = crate::names::GUARDS[0];
            nft(&format!("list chain ip {table} {guard}"));
            let before = state();
            assert_eq!(driver.apply(&datapath), Ok(vec![]));
            let mut restarted = Vxlan::new(Config::default()).unwrap();
            assert_eq!(restarted.preview(&datapath), Ok(vec![]));
            assert_eq!(restarted.apply(&datapath), Ok(vec![]));
            // Another program's table raises the generation of the ruleset.
            nft("add table ip other");
            assert_eq!(driver.apply(&datapath), Ok(vec![]));
            nft("delete table ip other");
            assert_eq!(state(), before);
            driver.uninstall().unwrap();
            ip("link delete eth0");
        }
    });
}

#[test]
fn a_container_without_privileges_is_enough() {
    isolated(|| {
        let datapath = sample::gateway();
        let mut driver = node(&datapath);
        read_only_sysctls();
        driver.apply(&datapath).unwrap();
        assert_eq!(driver.apply(&datapath), Ok(vec![]));
        driver.uninstall().unwrap();
    });
}

#[test]
fn an_uninstalled_driver_leaves_nothing() {
    isolated(|| {
        let datapath = sample::gateway();
        let mut driver = node(&datapath);
        // Objects of other programs.
        nft("table ip cgw-other { chain c { type filter hook prerouting priority -150; }; }");
        ip("rule add pref 9900 fwmark 0x4000/0x4000 lookup 100");
        ip("route add blackhole default table 100");
        let before = state();
        driver.apply(&datapath).unwrap();
        assert_ne!(state(), before);
        // Without knowledge of the desired state.
        Vxlan::new(Config::default()).unwrap().uninstall().unwrap();
        assert_eq!(state(), before);
        assert_eq!(driver.uninstall(), Ok(vec![]));
    });
}

#[test]
fn changes_of_other_programs_are_repaired() {
    isolated(|| {
        let datapath = sample::gateway();
        let mut driver = node(&datapath);
        driver.apply(&datapath).unwrap();
        let table = 0x6300_0001;
        for command in [
            format!("route delete table {table} default"),
            format!("route replace unreachable default table {table}"),
            "route add 10.9.9.9/32 via 192.168.50.11 dev cgw0 onlink table 1660944384 proto 103".to_owned(),
            format!("rule delete pref 9901 fwmark 1/0x3fff lookup {table}"),
            format!("rule add pref 9901 fwmark 7/0x3fff lookup {table}"),
            "neighbour delete 192.168.50.11 dev cgw0".to_owned(),
            "neighbour replace 192.168.50.11 lladdr 02:00:00:00:00:01 dev cgw0".to_owned(),
            "neighbour replace 192.168.50.99 lladdr 02:00:00:00:00:01 dev cgw0 nud permanent".to_owned(),
            "link set cgw0 down".to_owned(),
            "link set cgw0 mtu 1400".to_owned(),
            "link set cgw0 address 02:00:00:00:00:02".to_owned(),
            "address flush dev cgw0".to_owned(),
            "link delete cgw0".to_owned(),
        ] {
            ip(&command);
            let changes = driver.apply(&datapath).unwrap();
            assert!(
                !changes.is_empty() && changes.iter().any(|change| change.is_repair),
                "{command}: {changes:?}"
            );
            assert_eq!(driver.apply(&datapath), Ok(vec![]), "{command}");
        }
        run(
            "bridge",
            [
                "fdb",
                "replace",
                "02:63:c0:a8:32:0b",
                "dev",
                "cgw0",
                "dst",
                "192.168.50.66",
                "self",
                "permanent",
            ],
        );
        assert_eq!(driver.apply(&datapath).unwrap().len(), 1);
        run("sysctl", ["-w", "net.ipv4.conf.cgw0.rp_filter=1"]);
        assert_eq!(objects(&driver.apply(&datapath).unwrap()), ["sysctl"]);
        for command in [
            "flush chain ip cgw guard-pair",
            "delete table ip cgw",
            "add element ip cgw unbound { 10.244.1.99 }",
            "delete element ip cgw vip-of { 10.244.1.10 }",
            "insert rule ip cgw postrouting-filter accept",
            "add rule ip cgw guard-pair accept",
            "add chain ip cgw other",
            "add table ip cgw { flags dormant; }",
        ] {
            nft(command);
            let changes = driver.apply(&datapath).unwrap();
            assert_eq!(objects(&changes), ["nftables"], "{command}");
            assert!(changes[0].is_repair);
            // Also by a driver without memory.
            assert_eq!(Vxlan::new(Config::default()).unwrap().apply(&datapath), Ok(vec![]), "{command}");
        }
    });
}

#[test]
fn a_foreign_link_of_the_same_name_is_refused() {
    isolated(|| {
        let datapath = sample::worker();
        let mut driver = node(&datapath);
        ip("link add cgw0 type bridge");
        assert!(driver.apply(&datapath).unwrap_err().is_permanent);
        assert!(!ip("link show cgw0").is_empty());
        driver.uninstall().unwrap();
        assert!(!ip("link show cgw0").is_empty());
        ip("link delete cgw0");
        ip("address flush dev eth0");
        let error = driver.apply(&datapath).unwrap_err();
        assert_eq!(
            error.to_string(),
            "reading the link with the address 192.168.50.11 failed: no link has it"
        );
        assert!(!error.is_permanent);
    });
}

#[test]
fn a_changed_gateway_is_one_route() {
    isolated(|| {
        let mut datapath = sample::worker();
        let mut driver = node(&datapath);
        driver.apply(&datapath).unwrap();
        for (route, text) in [
            (sample::via(sample::G2), "table 0x63000001: 0.0.0.0/0 via 192.168.50.22"),
            (VipRoute::Drop, "table 0x63000001: 0.0.0.0/0 blackhole"),
            (sample::via(sample::G1), "table 0x63000001: 0.0.0.0/0 via 192.168.50.21"),
        ] {
            datapath.vips.get_mut(&sample::A).unwrap().route = route;
            let start = Instant::now();
            let changes = driver.apply(&datapath).unwrap();
            println!("a change of one gateway: {:?}", start.elapsed());
            assert_eq!(changes.iter().map(|change| change.description.as_str()).collect::<Vec<_>>(), [text]);
            assert!(!changes[0].is_repair);
        }
        // A worker is no gateway, and an address that is no node's is none.
        datapath.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::W2);
        let error = driver.apply(&datapath).unwrap_err();
        assert!(error.cause.contains("is no candidate's"), "{error}");
        assert!(ip("route show table 1660944385").contains("blackhole default"));
    });
}

#[test]
fn a_changed_list_of_sources_is_written_without_another_change() {
    isolated(|| {
        let mut datapath = sample::gateway();
        let mut driver = node(&datapath);
        driver.apply(&datapath).unwrap();
        let others = || {
            let listed = run("nft", ["-a", "list", "table", "ip", "cgw"]);
            let is_list =
                |line: &&str| line.starts_with("elements") || line.contains(" . ") && !line.contains("ip");
            let lines = listed.lines().map(str::trim).filter(|line| !is_list(line));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let before = others();
        for list in [
            Some(vec!["10.0.0.0/8", "192.0.2.0/24"]),
            // Other ranges with the same addresses.
            Some(vec!["10.1.0.0/16", "192.0.2.128/25", "198.51.100.7/32"]),
            Some(vec!["10.0.0.0/8"]),
            Some(vec![]),
            None,
        ] {
            let networks = |list: &Vec<&str>| list.iter().map(|network| network.parse().unwrap()).collect();
            datapath.vips.get_mut(&sample::A).unwrap().ports[0].sources = list.as_ref().map(networks);
            let changes = driver.apply(&datapath).unwrap();
            let descriptions: Vec<_> = changes.iter().map(|change| change.description.as_str()).collect();
            assert_eq!(descriptions, ["change elements of the table cgw"], "{list:?}");
            assert_eq!(Vxlan::new(Config::default()).unwrap().apply(&datapath), Ok(vec![]), "{list:?}");
            assert_eq!(others(), before);
            let listed = nft("list set ip cgw admitted");
            let element = |network: &str| {
                let network = network.strip_suffix("/32").unwrap_or(network);
                format!("{network} . {} . tcp . 80", sample::A)
            };
            assert!(list.iter().flatten().all(|network| listed.contains(&element(network))), "{listed}");
            assert_eq!(listed.matches(" . tcp . 80").count(), list.map_or(0, |list| list.len()), "{listed}");
        }
        // Another program's change of the list is repaired.
        nft(&format!("add element ip cgw restricted {{ {} . tcp . 80 }}", sample::A));
        let changes = driver.apply(&datapath).unwrap();
        assert!(changes.len() == 1 && changes[0].is_repair, "{changes:?}");
    });
}

/// A gateway with 5,000 pods on 50 nodes, and 1,000 VIPs.
fn large() -> Datapath {
    let mut datapath = sample::gateway();
    let template = datapath.vips[&sample::A].clone();
    datapath.vips.clear();
    let nodes: Vec<_> = (0..50).map(|number| Ipv4Addr::new(192, 168, 51, number)).collect();
    for node in &nodes {
        let peer = datapath.peers[&sample::W1].clone();
        datapath.peers.insert(*node, peer);
    }
    for number in 0..1000_u32 {
        let vip = Ipv4Addr::from(0xac10_0000 + number);
        let mut path = template.clone();
        path.tun_id = TunId::new(number + 1).unwrap();
        let pods = (0..5).map(|pod| Ipv4Addr::from(0x0af4_8000 + number * 5 + pod));
        let node = |pod: Ipv4Addr| nodes[usize::from(pod.octets()[3]) % nodes.len()];
        path.pods = pods
            .map(|pod| (pod, BoundPod { name: "default/pod".to_owned(), node_ip: node(pod) }))
            .collect::<BTreeMap<_, _>>();
        path.ports[0].backends = path.pods.keys().map(|pod| (*pod, 8080)).collect();
        datapath.vips.insert(vip, path);
    }
    datapath
}

#[test]
fn five_thousand_pods_are_programmed_and_changed_one_by_one() {
    isolated(|| {
        let mut datapath = large();
        let mut driver = node(&datapath);
        let timed = |what: &str, driver: &mut Vxlan, datapath: &Datapath| {
            let start = Instant::now();
            let changes = driver.apply(datapath).unwrap();
            println!("{what}: {:?}, {} changes", start.elapsed(), changes.len());
            changes
        };
        timed("5,000 pods and 1,000 VIPs", &mut driver, &datapath);
        assert_eq!(timed("nothing changed", &mut driver, &datapath), []);
        nft("add table ip other");
        assert_eq!(timed("another program changed the ruleset", &mut driver, &datapath), []);
        let first = *datapath.vips.keys().next().unwrap();
        let path = datapath.vips.get_mut(&first).unwrap();
        path.pods.insert(
            Ipv4Addr::new(10, 244, 9, 9),
            BoundPod { name: "default/new".to_owned(), node_ip: sample::W1 },
        );
        assert_eq!(timed("one pod more", &mut driver, &datapath).len(), 2);
        let mut restarted = Vxlan::new(Config::default()).unwrap();
        assert_eq!(timed("restart", &mut restarted, &datapath), []);
        for path in datapath.vips.values_mut() {
            path.route = sample::via(sample::G2);
        }
        let start = Instant::now();
        assert_eq!(driver.move_vips(&datapath).len(), 1000);
        println!("another gateway for 1,000 VIPs: {:?} until packets take it", start.elapsed());
        assert_eq!(driver.plan(&datapath).unwrap().changes, Changes::default());
        assert_eq!(timed("its other objects", &mut driver, &datapath).len(), 1000);
        let start = Instant::now();
        driver.uninstall().unwrap();
        println!("uninstall: {:?}", start.elapsed());
    });
}
