//! An Elastic IP moves with its pod, and everybody else keeps what is theirs.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use egress_router_cni::aws::acquire::acquire;
use egress_router_cni::aws::cloud::Cloud;
use egress_router_cni::aws::transport::Network;
use egress_router_cni::aws::{Acquired, Journal, Request, State, check_with, ready_with};
use egress_router_cni::cni::{self, Code};
use egress_router_cni::config::settings;

use super::node::{Memory, Node, Snapshot, World};

#[test]
fn an_attachment_gets_an_address_of_its_own_with_what_the_pod_needs() {
    let (world, _) = World::new();
    let acquired = world.a.add().unwrap();
    assert_eq!(acquired.mac, world.a.mac);
    assert_eq!(acquired.public, world.public);
    assert_eq!(acquired.address.prefix_len(), 27);
    assert_eq!(acquired.gateway.to_string(), "10.0.0.1");
    assert_eq!(world.snapshot(), Snapshot::only(&world.a, &acquired));
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::clean());
    world.a.del().unwrap();
}

#[test]
fn an_add_that_is_done_is_not_done_again() {
    let (world, _) = World::new();
    let first = world.a.add().unwrap();
    world.gate.calm();
    assert_eq!(world.a.add().unwrap(), first);
    assert_eq!(*world.gate.log.lock().unwrap(), ["DescribeAddresses"]);
}

#[test]
fn the_address_moves_and_the_old_nodes_late_del_takes_nothing() {
    let (world, _) = World::new();
    world.a.add().unwrap();
    let acquired = world.b.add().unwrap();
    assert_eq!(world.gate.count("DisassociateAddress"), 0, "it moves in one call, without a gap");
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::only(&world.b, &acquired));
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::only(&world.b, &acquired));
}

#[test]
fn there_and_back_the_first_association_is_dead() {
    let (world, _) = World::new();
    world.a.add().unwrap();
    let old = world.a.file.borrow().clone();
    world.b.add().unwrap();
    world.a.del().unwrap();
    let acquired = world.a.add().unwrap();
    let new = world.a.file.replace(old);
    // A state of long ago is replayed on the node that has the address again.
    world.a.del().unwrap();
    assert_eq!(world.snapshot().at, Some(("eni-a".into(), acquired.address.addr())));
    *world.a.file.borrow_mut() = new;
    world.b.del().unwrap();
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::clean());
}

#[test]
fn a_new_pod_on_the_same_node_comes_before_the_old_one_is_deleted() {
    let (world, _) = World::new();
    world.a.add().unwrap();
    let old = world.a.file.replace(None);
    let acquired = world.a.add().unwrap();
    let new = world.a.file.replace(old);
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::only(&world.a, &acquired));
    *world.a.file.borrow_mut() = new;
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::clean());
}

#[test]
fn an_add_whose_address_was_moved_away_is_a_new_one() {
    let (world, _) = World::new();
    let first = world.a.add().unwrap();
    world.b.add().unwrap();
    let again = world.a.add().unwrap();
    assert_eq!(again.address, first.address, "its private address is still there");
    world.b.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::only(&world.a, &again));
}

#[test]
fn nodes_that_add_at_once_agree_and_leave_nothing() {
    for _ in 0..10 {
        let (world, _) = World::new();
        let World { a, b, .. } = &world;
        let results = std::thread::scope(|scope| {
            let run = |node: &Node| {
                let (settings, public) = (node.settings.clone(), node.public);
                let add = move || add_alone(&settings, public);
                scope.spawn(add)
            };
            [run(a), run(b)].map(|thread| thread.join().unwrap())
        });
        for ((result, state), node) in results.into_iter().zip([a, b]) {
            if let Err(error) = result {
                assert_eq!(error.code, Code::TryAgain, "{error}");
            }
            *node.file.borrow_mut() = state;
        }
        let at = world.snapshot().at.expect("one of them has it");
        assert!([a, b].iter().any(|node| node.interface == at.0));
        a.del().unwrap();
        b.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::clean());
    }
}

type Added = (Result<Acquired, cni::Error>, Option<String>);

fn add_alone(settings: &settings::Aws, public: Ipv4Addr) -> Added {
    let (network, nothing) = (Network::new(), |_: &str| None);
    let addresses = [ipnet::IpNet::new(public.into(), 32).unwrap()];
    let request = Request { addresses: &addresses, master: None, before: None };
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut memory = Memory::default();
    let result = acquire(&Cloud::new(&network, settings, &nothing), request, &mut memory, deadline);
    (result, memory.0.map(|state| serde_json::to_string(&state).unwrap()))
}

/// With what other attachments of the node have written down.
struct Beside(Memory, Vec<Ipv4Addr>);

impl Journal for Beside {
    fn write(&mut self, state: &State) -> Result<(), cni::Error> {
        self.0.write(state)
    }

    fn clear(&mut self) -> Result<(), cni::Error> {
        self.0.clear()
    }

    fn recorded(&self) -> Vec<Ipv4Addr> {
        self.1.clone()
    }
}

#[test]
fn an_address_that_somebody_may_still_give_back_is_no_new_pods() {
    let (world, _) = World::new();
    let free = Ipv4Addr::new(10, 0, 0, 20);
    let others = (4..31).map(|last| Ipv4Addr::new(10, 0, 0, last)).filter(|address| *address != free);
    let mut journal = Beside(Memory::default(), others.collect());
    let addresses = [ipnet::IpNet::new(world.public.into(), 32).unwrap()];
    let request = Request { addresses: &addresses, master: None, before: None };
    let acquired = world.a.with(|cloud, deadline| acquire(cloud, request, &mut journal, deadline)).unwrap();
    assert_eq!(acquired.address.addr(), free);
}

#[test]
fn a_disk_that_was_copied_into_another_instance_does_nothing_there() {
    let (world, _) = World::new();
    let acquired = world.a.add().unwrap();
    *world.b.file.borrow_mut() = world.a.file.borrow().clone();
    world.b.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::only(&world.a, &acquired));
}

#[test]
fn what_the_administrator_removed_is_no_obstacle() {
    let (world, ec2) = World::new();
    world.a.add().unwrap();
    ec2.lock().unwrap().elastics.get_mut(&world.public).unwrap().association = None;
    world.a.del().unwrap();
    assert_eq!(world.snapshot(), Snapshot::clean());

    let private = world.a.add().unwrap().address.addr();
    ec2.lock().unwrap().interfaces.get_mut("eni-a").unwrap().addresses.retain(|address| *address != private);
    world.a.del().unwrap();

    world.a.add().unwrap();
    ec2.lock().unwrap().interfaces.remove("eni-a");
    world.a.del().unwrap();
    assert_eq!(world.a.state(), None);
}

#[test]
fn check_says_where_the_address_went() {
    let (world, _) = World::new();
    world.a.add().unwrap();
    let state = world.a.state().unwrap();
    world.a.with(|cloud, deadline| check_with(cloud, &state, deadline)).unwrap();
    world.b.add().unwrap();
    let error = world.a.with(|cloud, deadline| check_with(cloud, &state, deadline)).unwrap_err();
    assert_eq!(error.code, Code::CheckFailed);
    assert!(error.message.contains("eni-b"), "{error}");
    world.b.del().unwrap();
    let error = world.a.with(|cloud, deadline| check_with(cloud, &state, deadline)).unwrap_err();
    assert!(error.message.contains("nothing"), "{error}");
}

#[test]
fn status_asks_the_metadata_service_alone() {
    let (world, _) = World::new();
    world.a.with(ready_with).unwrap();
    assert!(world.gate.log.lock().unwrap().is_empty());
    world.a.metadata.mood.lock().unwrap().no_role = true;
    let error = world.a.with(ready_with).unwrap_err();
    assert_eq!(error.code, Code::NotAvailable);
    assert!(error.message.contains("instance profile"), "{error}");
}
