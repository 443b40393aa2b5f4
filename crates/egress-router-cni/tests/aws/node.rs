//! An environment of two nodes, and its snapshots.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egress_router_cni::aws::acquire::acquire;
use egress_router_cni::aws::cloud::Cloud;
use egress_router_cni::aws::release::release;
use egress_router_cni::aws::{Journal, Request, State};
use egress_router_cni::cni;
use egress_router_cni::config::settings;
use egress_router_cni::http;
use egress_router_cni::http::{Network, NoResponse, Response, Transport};
use ipnet::IpNet;

use super::ec2::{Ec2, Elastic, Interface};
use super::gate::{Backend, Form, Gate};
use super::metadata::Metadata;
use super::xml::Element;

/// Time limit of a call that succeeds, far longer than it takes on a busy machine.
pub const LONGEST: Duration = Duration::from_secs(300);
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// An EC2 with two nodes in one subnet, and one Elastic IP.
pub struct TestEnv {
    pub gate: Gate,
    pub backend: Arc<dyn Backend>,
    pub public: Ipv4Addr,
    pub a: Node,
    pub b: Node,
}

/// A snapshot of the associations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The association of the Elastic IP.
    pub at: Option<(String, Ipv4Addr)>,
    /// Secondary addresses of the nodes' interfaces; interfaces without any are omitted.
    pub secondary: BTreeMap<String, Vec<Ipv4Addr>>,
}

impl Snapshot {
    /// Nothing is left.
    pub fn clean() -> Self {
        Self { at: None, secondary: BTreeMap::new() }
    }

    /// The Elastic IP has the association of `acquired` on `node`, and there is no other secondary address.
    pub fn only(node: &Node, acquired: &State) -> Self {
        let private = acquired.private.addr();
        Self {
            at: Some((node.interface.clone(), private)),
            secondary: BTreeMap::from([(node.interface.clone(), vec![private])]),
        }
    }
}

impl Backend for Mutex<Ec2> {
    fn respond(&self, form: &Form) -> (u16, String) {
        self.lock().unwrap().respond(form)
    }
}

impl TestEnv {
    /// With the simulated EC2, which is returned for changes by others.
    pub fn new() -> (Self, Arc<Mutex<Ec2>>) {
        let mut ec2 = Ec2 { limit: 10, ..Ec2::default() };
        ec2.subnets.insert("subnet-1", "10.0.0.0/27".parse().unwrap());
        for (n, id) in ["eni-a", "eni-b", "eni-c"].into_iter().enumerate() {
            let first = Ipv4Addr::new(10, 0, 0, 5 + u8::try_from(n).unwrap());
            ec2.interfaces.insert(id.into(), Interface { subnet: "subnet-1", addresses: vec![first] });
        }
        ec2.elastics.insert(PUBLIC, Elastic { allocation: "eipalloc-1".into(), association: None });
        let ec2 = Arc::new(Mutex::new(ec2));
        let env =
            Self::of(ec2.clone(), PUBLIC, ["eni-a", "eni-b"].map(Into::into), "subnet-1", "10.0.0.0/27");
        (env, ec2)
    }

    /// With any EC2 that has these objects.
    pub fn of(
        backend: Arc<dyn Backend>,
        public: Ipv4Addr,
        interfaces: [String; 2],
        subnet: &str,
        block: &str,
    ) -> Self {
        let gate = Gate::start(backend.clone());
        let [a, b] = interfaces;
        let node = |name: &str, interface: String, last| {
            Node::new(&gate, public, name, interface, subnet, block, last)
        };
        let (a, b) = (node("i-a", a, 0xaa), node("i-b", b, 0xbb));
        Self { gate, backend, public, a, b }
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Snapshot {
        let text = self.public.to_string();
        let ask = |action: &str, which: &str| {
            let form = [("Action", action), ("Version", "2016-11-15"), ("PublicIp.1", which)];
            let form = &form[..if which.is_empty() { 2 } else { 3 }];
            let form = form.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let (status, document) = self.backend.respond(&form);
            assert_eq!(status, 200, "{document}");
            Element::parse(document.as_bytes()).unwrap()
        };
        let addresses = ask("DescribeAddresses", &text);
        let item =
            addresses.items("addressesSet").find(|item| item.text_of("publicIp") == Some(&text)).unwrap();
        assert!(item.text_of("allocationId").is_some(), "released!");
        let at = item.text_of("associationId").map(|_| {
            let private = item.text_of("privateIpAddress").unwrap().parse().unwrap();
            (item.text_of("networkInterfaceId").unwrap().to_owned(), private)
        });
        let mut secondary = BTreeMap::new();
        for interface in ask("DescribeNetworkInterfaces", "").items("networkInterfaceSet") {
            let addresses: Vec<Ipv4Addr> = interface
                .items("privateIpAddressesSet")
                .filter(|item| item.text_of("primary") != Some("true"))
                .map(|item| item.text_of("privateIpAddress").unwrap().parse().unwrap())
                .collect();
            let id = interface.text_of("networkInterfaceId").unwrap().to_owned();
            if !addresses.is_empty() && [&self.a, &self.b].iter().any(|node| node.interface == id) {
                secondary.insert(id, addresses);
            }
        }
        Snapshot { at, secondary }
    }
}

/// A node, with one attachment.
pub struct Node {
    pub metadata: Metadata,
    pub interface: String,
    pub mac: [u8; 6],
    pub settings: settings::Aws,
    pub public: Ipv4Addr,
    /// The state file's text.
    pub file: RefCell<Option<String>>,
    /// Time limit of a call.
    pub retry: Cell<Duration>,
}

/// The process was killed.
#[derive(Debug)]
pub struct Killed;

/// Kills the process at its n-th point. Points are before and after each request to EC2 and each write.
#[derive(Default)]
pub struct KillPoint {
    at: Option<u32>,
    passed: Cell<u32>,
}

impl KillPoint {
    pub fn at(point: u32) -> Self {
        Self { at: Some(point), passed: Cell::new(0) }
    }

    fn point(&self) {
        if self.at == Some(self.passed.get()) {
            // A kill runs no further code. Unwinding is equivalent, because the crate has no clean-up on drop.
            resume_unwind(Box::new(Killed));
        }
        self.passed.set(self.passed.get() + 1);
    }
}

struct Wire<'a>(Network, &'a KillPoint, &'a str);

impl Transport for Wire<'_> {
    fn send(&self, request: &http::Request<'_>) -> Result<Response, NoResponse> {
        let acts = request.url.starts_with(self.2);
        if acts {
            self.1.point();
        }
        let respond = self.0.send(request);
        if acts {
            self.1.point();
        }
        respond
    }
}

struct File<'a>(&'a RefCell<Option<String>>, &'a KillPoint);

impl Journal for File<'_> {
    fn write(&mut self, state: &State) -> Result<(), cni::Error> {
        self.1.point();
        *self.0.borrow_mut() = Some(serde_json::to_string(state).unwrap());
        self.1.point();
        Ok(())
    }

    fn clear(&mut self) -> Result<(), cni::Error> {
        self.1.point();
        *self.0.borrow_mut() = None;
        self.1.point();
        Ok(())
    }
}

/// A state file in memory.
#[derive(Default)]
pub struct Memory(pub Option<State>);

impl Journal for Memory {
    fn write(&mut self, state: &State) -> Result<(), cni::Error> {
        self.0 = Some(state.clone());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), cni::Error> {
        self.0 = None;
        Ok(())
    }
}

impl Node {
    fn new(
        gate: &Gate,
        public: Ipv4Addr,
        name: &str,
        interface: String,
        subnet: &str,
        block: &str,
        last: u8,
    ) -> Self {
        let mac = [2, 0, 0, 0, 0, last];
        let text = egress_router_cni::config::interface::mac_text(mac);
        let of = |what: &str| format!("network/interfaces/macs/{text}/{what}");
        let metadata = Metadata::start(BTreeMap::from([
            ("instance-id".into(), name.into()),
            ("mac".into(), text.clone()),
            (of("interface-id"), interface.clone()),
            (of("subnet-id"), subnet.into()),
            (of("subnet-ipv4-cidr-block"), block.into()),
        ]));
        let settings = settings::Aws {
            ec2_endpoint: Some(gate.url()),
            metadata_endpoint: Some(metadata.url()),
            allow_reassociation: None,
        };
        let retry = Cell::new(LONGEST);
        Self { metadata, interface, mac, settings, public, file: RefCell::new(None), retry }
    }

    pub fn state(&self) -> Option<State> {
        self.file.borrow().as_ref().map(|text| serde_json::from_str(text).unwrap())
    }

    /// Calls a function of the crate other than ADD and DEL.
    pub fn with<T>(&self, action: impl FnOnce(&Cloud<'_>, Instant) -> T) -> T {
        let network = Network::new();
        let nothing = |_: &str| None;
        action(&Cloud::new(&network, &self.settings, &nothing), Instant::now() + self.retry.get())
    }

    pub fn add(&self) -> Result<State, cni::Error> {
        self.add_until(&KillPoint::default()).unwrap()
    }

    pub fn del(&self) -> Result<(), cni::Error> {
        self.del_until(&KillPoint::default()).unwrap()
    }

    /// ADD, with the record of an earlier call.
    pub fn add_until(&self, kill_point: &KillPoint) -> Result<Result<State, cni::Error>, Killed> {
        let addresses = [IpNet::new(self.public.into(), 32).unwrap()];
        let before = self.state();
        let request = Request { addresses: &addresses, master: None, before: before.as_ref() };
        self.alive(kill_point, |cloud, deadline| {
            acquire(cloud, request, &mut File(&self.file, kill_point), deadline)
        })
    }

    /// DEL or GC: the same to a state.
    pub fn del_until(&self, kill_point: &KillPoint) -> Result<Result<(), cni::Error>, Killed> {
        let Some(state) = self.state() else { return Ok(Ok(())) };
        self.alive(kill_point, |cloud, deadline| {
            release(cloud, &state, deadline)?;
            File(&self.file, kill_point).clear()
        })
    }

    fn alive<T>(
        &self,
        kill_point: &KillPoint,
        action: impl FnOnce(&Cloud<'_>, Instant) -> T,
    ) -> Result<T, Killed> {
        let wire = Wire(Network::new(), kill_point, self.settings.ec2_endpoint.as_deref().unwrap());
        let nothing = |_: &str| None;
        let cloud = Cloud::new(&wire, &self.settings, &nothing);
        let deadline = Instant::now() + self.retry.get();
        catch_unwind(AssertUnwindSafe(|| action(&cloud, deadline))).map_err(|payload| {
            match payload.downcast::<Killed>() {
                Ok(_) => Killed,
                Err(other) => resume_unwind(other),
            }
        })
    }
}
