//! The driver vxlan in a network namespace of its own, on a candidate with any number of VIPs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use cgw_controller::agent::datapath::{
    BoundPod, Datapath, Networks, Node, Peer, Protocol, ServicePort, VipPath, VipRoute,
};
use cgw_controller::agent::driver::Driver as _;
use cgw_controller::agent::vxlan::plan::mac_of;
use cgw_controller::agent::vxlan::{Config, Vxlan};
use cgw_controller::api::{TunId, TunMac};
use nix::sched::{CloneFlags, unshare};

const OWN: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 21);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 22);
/// Flips back and forth.
const FLIPS: usize = 21;
/// Pods behind each VIP.
const PODS: u32 = 2;

/// How long each flip of all VIPs took.
pub(super) fn measure(vips: u32) -> Result<Vec<Duration>> {
    // The namespace is deleted with the thread.
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace; run the bench as root")?;
        measure_here(vips)
    });
    thread.join().map_err(|_| anyhow!("a panic"))?
}

fn measure_here(vips: u32) -> Result<Vec<Duration>> {
    for line in [
        "link set lo up".to_owned(),
        "link add eth0 type bridge".to_owned(),
        format!("addr add {OWN}/24 dev eth0"),
        "link set eth0 up".to_owned(),
    ] {
        let output = Command::new("ip").args(line.split_whitespace()).output().context("ip")?;
        ensure!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut datapath = datapath(vips)?;
    let mut driver = Vxlan::new(Config::default())?;
    driver.apply(&datapath)?;
    let remote = VipRoute::Remote { node_ip: OTHER, tun_mac: TunMac::new(mac_of(OTHER))? };
    let mut flips = Vec::new();
    for number in 0..FLIPS {
        let route = if number % 2 == 0 { remote } else { VipRoute::Local };
        datapath.vips.values_mut().for_each(|path| path.route = route);
        let begun = Instant::now();
        let changes = driver.apply(&datapath)?;
        flips.push(begun.elapsed());
        ensure!(changes.len() >= vips as usize, "{} changes of {vips} VIPs", changes.len());
    }
    driver.uninstall()?;
    Ok(flips)
}

fn datapath(vips: u32) -> Result<Datapath> {
    let path = |number: u32| {
        let pods = (0..PODS).map(|pod| Ipv4Addr::from(0x0af4_8000 + number * PODS + pod));
        let pods: Vec<_> = pods.collect();
        let bound = |pod: &Ipv4Addr| (*pod, BoundPod { name: "default/pod".to_owned(), node_ip: OTHER });
        let port = ServicePort {
            service: format!("default/service-{number}"),
            name: String::new(),
            protocol: Protocol::Tcp,
            port: 80,
            backends: pods.iter().map(|pod| (*pod, 8080)).collect(),
            affinity: None,
            sources: None,
        };
        let path = VipPath {
            tun_id: TunId::new(number + 1)?,
            route: VipRoute::Local,
            pods: pods.iter().map(bound).collect(),
            ports: vec![port],
        };
        anyhow::Ok((Ipv4Addr::from(0xac10_0000 + number), path))
    };
    Ok(Datapath {
        node: Node {
            name: "g1".to_owned(),
            ip: OWN,
            pod_cidrs: vec!["10.244.3.0/24".parse()?],
            candidate: true,
        },
        peers: BTreeMap::from([(OTHER, Peer { name: "g2".to_owned(), candidate: true })]),
        networks: Networks {
            pods: vec!["10.244.0.0/16".parse()?],
            services: vec!["10.96.0.0/12".parse()?],
            excluded: vec![OWN.into(), OTHER.into()],
        },
        vips: (0..vips).map(path).collect::<Result<_>>()?,
        unbound_pods: BTreeSet::new(),
    })
}
