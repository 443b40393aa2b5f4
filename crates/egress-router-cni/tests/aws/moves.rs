//! An Elastic IP moves with its pod, and no other address changes.

use std::net::Ipv4Addr;
use std::time::Instant;

use egress_router_cni::aws::acquire::acquire;
use egress_router_cni::aws::cloud::Cloud;
use egress_router_cni::aws::{Journal, Request, State, ready};
use egress_router_cni::cni::{self, Code};
use egress_router_cni::config::settings;
use egress_router_cni::http::Network;

use super::node::{LONGEST, Memory, Node, Snapshot, TestEnv};

#[test]
fn an_attachment_gets_its_own_private_address() {
    let (env, _) = TestEnv::new();
    let acquired = env.a.add().unwrap();
    assert_eq!(acquired.mac, env.a.mac);
    assert_eq!(acquired.public, env.public);
    assert_eq!(acquired.private.prefix_len(), 27);
    assert_eq!(acquired.gateway.to_string(), "10.0.0.1");
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
    env.a.del().unwrap();
}

#[test]
fn a_completed_add_is_not_repeated() {
    let (env, _) = TestEnv::new();
    let first = env.a.add().unwrap();
    env.gate.calm();
    assert_eq!(env.a.add().unwrap(), first);
    assert_eq!(*env.gate.log.lock().unwrap(), ["DescribeAddresses"]);
}

#[test]
fn the_address_moves_and_a_late_del_of_the_old_node_changes_nothing() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    let acquired = env.b.add().unwrap();
    assert_eq!(env.gate.count("DisassociateAddress"), 0, "it moves in one call, without a gap");
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.b, &acquired));
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.b, &acquired));
}

#[test]
fn after_a_move_there_and_back_the_first_association_is_stale() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    let old = env.a.file.borrow().clone();
    env.b.add().unwrap();
    env.a.del().unwrap();
    let acquired = env.a.add().unwrap();
    let new = env.a.file.replace(old);
    // An old record is replayed on the node that has the address again.
    env.a.del().unwrap();
    assert_eq!(env.snapshot().at, Some(("eni-a".into(), acquired.private.addr())));
    *env.a.file.borrow_mut() = new;
    env.b.del().unwrap();
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}

#[test]
fn a_new_pod_on_the_same_node_comes_before_the_old_one_is_deleted() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    let old = env.a.file.replace(None);
    let acquired = env.a.add().unwrap();
    let new = env.a.file.replace(old);
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
    *env.a.file.borrow_mut() = new;
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}

#[test]
fn an_add_whose_address_was_moved_away_is_a_new_one() {
    let (env, _) = TestEnv::new();
    let first = env.a.add().unwrap();
    env.b.add().unwrap();
    let second = env.a.add().unwrap();
    assert_eq!(second.private, first.private, "its private address is still there");
    env.b.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &second));
}

#[test]
fn nodes_that_add_at_once_agree_and_leave_nothing() {
    for _ in 0..10 {
        let (env, _) = TestEnv::new();
        let TestEnv { a, b, .. } = &env;
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
        let at = env.snapshot().at.expect("one of them has it");
        assert!([a, b].iter().any(|node| node.interface == at.0));
        a.del().unwrap();
        b.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean());
    }
}

type Added = (Result<State, cni::Error>, Option<String>);

fn add_alone(settings: &settings::Aws, public: Ipv4Addr) -> Added {
    let (network, nothing) = (Network::new(), |_: &str| None);
    let addresses = [ipnet::IpNet::new(public.into(), 32).unwrap()];
    let request = Request { addresses: &addresses, master: None, before: None };
    let deadline = Instant::now() + LONGEST;
    let mut memory = Memory::default();
    let result = acquire(&Cloud::new(&network, settings, &nothing), request, &mut memory, deadline);
    (result, memory.0.map(|state| serde_json::to_string(&state).unwrap()))
}

/// With the records of other attachments of the node.
struct WithRecorded(Memory, Vec<Ipv4Addr>);

impl Journal for WithRecorded {
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
fn an_address_that_another_call_may_release_is_not_chosen() {
    let (env, _) = TestEnv::new();
    let free = Ipv4Addr::new(10, 0, 0, 20);
    let others = (4..31).map(|last| Ipv4Addr::new(10, 0, 0, last)).filter(|address| *address != free);
    let mut journal = WithRecorded(Memory::default(), others.collect());
    let addresses = [ipnet::IpNet::new(env.public.into(), 32).unwrap()];
    let request = Request { addresses: &addresses, master: None, before: None };
    let acquired = env.a.with(|cloud, deadline| acquire(cloud, request, &mut journal, deadline)).unwrap();
    assert_eq!(acquired.private.addr(), free);
}

#[test]
fn records_on_a_copied_disk_are_ignored() {
    let (env, _) = TestEnv::new();
    let acquired = env.a.add().unwrap();
    *env.b.file.borrow_mut() = env.a.file.borrow().clone();
    env.b.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
}

#[test]
fn del_succeeds_after_a_removal_by_the_administrator() {
    let (env, ec2) = TestEnv::new();
    env.a.add().unwrap();
    ec2.lock().unwrap().elastics.get_mut(&env.public).unwrap().association = None;
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());

    let private = env.a.add().unwrap().private.addr();
    ec2.lock().unwrap().interfaces.get_mut("eni-a").unwrap().addresses.retain(|address| *address != private);
    env.a.del().unwrap();

    env.a.add().unwrap();
    ec2.lock().unwrap().interfaces.remove("eni-a");
    env.a.del().unwrap();
    assert_eq!(env.a.state(), None);
}

#[test]
fn status_calls_only_the_metadata_service() {
    let (env, _) = TestEnv::new();
    env.a.with(ready).unwrap();
    assert!(env.gate.log.lock().unwrap().is_empty());
    env.a.metadata.behaviour.lock().unwrap().no_role = true;
    let error = env.a.with(ready).unwrap_err();
    assert_eq!(error.code, Code::NotAvailable);
    assert!(error.message.contains("instance profile"), "{error}");
}
