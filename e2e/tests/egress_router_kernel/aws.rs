//! An Elastic IP, from its association to the packet. The simulated EC2 and metadata service of the crate's tests (which are compared with moto)
//! run in the machine. The LAN's router does the translation of VPC's router.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::egress_router_kernel::ec2::{Ec2, Elastic, Interface};
use crate::egress_router_kernel::env::{FAR, OUTSIDE, TestEnv, config, run, with};
use crate::egress_router_kernel::gate::{Backend, Form, Gate};
use crate::egress_router_kernel::machine::inside;
use crate::egress_router_kernel::metadata::Metadata;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);
const NODE: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 2);
/// The folder of the plugin's records.
const RECORDS: &str = "/var/lib/cni/egress-router/elastic-ips";
/// The node's interface in its subnet.
const HARDWARE: &str = "02:00:00:00:00:aa";

struct Shared(Arc<Mutex<Ec2>>);

impl Backend for Shared {
    fn respond(&self, form: &Form) -> (u16, String) {
        self.0.lock().unwrap().respond(form)
    }
}

/// An environment on EC2.
struct Cloud {
    env: TestEnv,
    ec2: Arc<Mutex<Ec2>>,
    _gate: Gate,
    _metadata: Metadata,
}

impl Cloud {
    fn new() -> Self {
        let mut env = TestEnv::new();
        run(&format!("ip link set up0 address {HARDWARE}"));
        let mut ec2 = Ec2 { limit: 10, ..Ec2::default() };
        ec2.subnets.insert("subnet-1", "192.168.50.0/24".parse().unwrap());
        for (id, address) in [("eni-a", NODE), ("eni-b", Ipv4Addr::new(192, 168, 50, 3))] {
            ec2.interfaces.insert(id.into(), Interface { subnet: "subnet-1", addresses: vec![address] });
        }
        ec2.elastics.insert(PUBLIC, Elastic { allocation: "eipalloc-1".into(), association: None });
        let ec2 = Arc::new(Mutex::new(ec2));
        let gate = Gate::start(Arc::new(Shared(ec2.clone())));
        let of = |what: &str| format!("network/interfaces/macs/{HARDWARE}/{what}");
        let metadata = Metadata::start(BTreeMap::from([
            ("instance-id".into(), "i-a".into()),
            ("mac".into(), HARDWARE.into()),
            ("network/interfaces/macs/".into(), format!("{HARDWARE}/")),
            (of("interface-id"), "eni-a".into()),
            (of("device-number"), "0".into()),
            (of("subnet-id"), "subnet-1".into()),
            (of("subnet-ipv4-cidr-block"), "192.168.50.0/24".into()),
            (of("local-ipv4s"), NODE.to_string()),
        ]));
        let settings = json!({
            "platform": "aws", "aws": {"ec2Endpoint": gate.url(), "metadataEndpoint": metadata.url()},
        });
        std::fs::write("/run/settings.json", settings.to_string()).unwrap();
        env.environment.push(("EGRESS_ROUTER_SETTINGS", "/run/settings.json".to_owned()));
        Cloud { env, ec2, _gate: gate, _metadata: metadata }
    }

    /// The association of the Elastic IP: interface and private address.
    fn at(&self) -> Option<(String, Ipv4Addr)> {
        let ec2 = self.ec2.lock().unwrap();
        let (_, interface, private) = ec2.elastics[&PUBLIC].association.clone()?;
        Some((interface, private))
    }

    /// Secondary addresses of the node's interface.
    fn secondary(&self) -> Vec<Ipv4Addr> {
        self.ec2.lock().unwrap().interfaces["eni-a"].addresses[1..].to_vec()
    }
}

/// A configuration without a type, which is optional on AWS.
fn network() -> Value {
    config(json!({"podIP": {"web-*": {"addresses": [PUBLIC.to_string()]}}}))
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn the_pod_leaves_with_its_elastic_ip() {
    inside(|| {
        let cloud = Cloud::new();
        let before = cloud.env.state();
        let result = cloud.env.succeed("ADD", &network());
        let (interface, private) = cloud.at().expect("associated");
        assert_eq!((interface.as_str(), cloud.secondary()), ("eni-a", vec![private]));
        assert_ne!(private, NODE, "the node's own address keeps its own Elastic IP");
        assert_eq!(result["ips"][0]["address"], format!("{private}/24"));
        assert_eq!(result["ips"][0]["gateway"], "192.168.50.1");
        assert_eq!(cloud.env.seen_by(OUTSIDE).as_deref(), Some(&*private.to_string()));
        assert_eq!(cloud.env.seen_by(FAR).as_deref(), Some("10.244.1.10"));
        assert!(run("ip -n pod -d link show net1").contains("ipvlan  mode l2 "));
        cloud.env.check(&network(), &result);
        cloud.env.succeed("DEL", &network());
        cloud.env.until_state(&before);
        assert_eq!((cloud.at(), cloud.secondary()), (None, vec![]));
        cloud.env.succeed("DEL", &network());
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn a_moved_pod_keeps_its_elastic_ip_after_the_del_of_its_former_node() {
    inside(|| {
        let cloud = Cloud::new();
        cloud.env.succeed("ADD", &network());
        let elsewhere = ("eni-b".to_owned(), Ipv4Addr::new(192, 168, 50, 9));
        let association = ("eipassoc-other".to_owned(), elsewhere.0.clone(), elsewhere.1);
        cloud.ec2.lock().unwrap().elastics.get_mut(&PUBLIC).unwrap().association = Some(association);
        cloud.env.succeed("DEL", &network());
        assert_eq!(cloud.at(), Some(elsewhere));
        assert_eq!(cloud.secondary(), [] as [Ipv4Addr; 0]);
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn an_elastic_ip_that_is_not_allocated_is_refused() {
    inside(|| {
        let cloud = Cloud::new();
        let before = cloud.env.state();
        let config = config(json!({"ip": {"addresses": ["198.51.100.99"]}}));
        let (succeeded, output) = cloud.env.call("ADD", &config);
        assert!(!succeeded && output["code"] == 102, "{output}");
        assert!(output.to_string().contains("198.51.100.99"), "{output}");
        assert_eq!(cloud.env.state(), before);
        assert_eq!((cloud.at(), cloud.secondary()), (None, vec![]));
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn an_invalid_configuration_is_refused_before_the_elastic_ip_is_moved() {
    inside(|| {
        let mut cloud = Cloud::new();
        let elsewhere = ("eni-b".to_owned(), Ipv4Addr::new(192, 168, 50, 9));
        let association = ("eipassoc-other".to_owned(), elsewhere.0.clone(), elsewhere.1);
        cloud.ec2.lock().unwrap().elastics.get_mut(&PUBLIC).unwrap().association = Some(association);
        let standing = config(json!({
            "interfaceType": "ipvlan", "interfaceArgs": {"mode": "l3", "master": "up0"},
            "ip": {"addresses": ["10.99.7.7/32"]},
        }));
        cloud.env.environment.push(("CNI_IFNAME", "net2".to_owned()));
        cloud.env.succeed("ADD", &standing);
        cloud.env.environment.pop();
        let before = cloud.env.state();
        let hardware = with(&network(), "runtimeConfig", json!({"mac": "02:00:5e:10:00:01"}));
        let long = with(&network(), "interfaceArgs", json!({"mtu": 9000}));
        let refused =
            [(network(), "of mode l3"), (hardware, "MAC address"), (long, "its master up0 has 1500")];
        for (config, word) in refused {
            let (succeeded, output) = cloud.env.call("ADD", &config);
            assert!(!succeeded && output["code"] == 7, "{output}");
            assert!(output["msg"].as_str().unwrap().contains(word), "{output}");
            assert_eq!((cloud.at(), cloud.secondary()), (Some(elsewhere.clone()), vec![]));
            assert_eq!(cloud.env.state(), before);
        }
        cloud.env.environment.push(("CNI_IFNAME", "net2".to_owned()));
        cloud.env.succeed("DEL", &standing);
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn orphaned_elastic_ips_are_released_by_one_call_and_do_not_delay_other_adds() {
    inside(|| {
        let cloud = Cloud::new();
        cloud.env.succeed("ADD", &network());
        let (_, private) = cloud.at().expect("associated");
        let text = fs::read_to_string(Path::new(RECORDS).join("c0ffee@net1.json")).unwrap();
        let mut record: Value = serde_json::from_str(&text).unwrap();
        cloud.env.succeed("DEL", &network());
        // The record of a pod that was killed before its DEL.
        record["containerId"] = json!("orphaned");
        record["netns"]["path"] = json!("/run/netns/orphaned");
        let orphaned = Path::new(RECORDS).join("orphaned@net1.json");
        fs::write(&orphaned, record.to_string()).unwrap();
        cloud.ec2.lock().unwrap().interfaces.get_mut("eni-a").unwrap().addresses.push(private);

        let other_call = File::open(&orphaned).unwrap();
        other_call.lock().unwrap();
        cloud.env.succeed("ADD", &network());
        assert!(orphaned.exists() && cloud.secondary().contains(&private), "that is the other call's to do");
        drop(other_call);
        cloud.env.succeed("DEL", &network());

        cloud.env.succeed("ADD", &network());
        let (_, own) = cloud.at().expect("associated");
        assert_eq!((orphaned.exists(), cloud.secondary()), (false, vec![own]));
        cloud.env.succeed("DEL", &network());
        assert_eq!((cloud.at(), cloud.secondary()), (None, vec![]));
        assert_eq!(fs::read_dir(RECORDS).unwrap().count(), 0);
    });
}
