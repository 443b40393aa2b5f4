//! Permanent refusals of EC2: the message says what to do, and nothing is left.

use std::net::Ipv4Addr;

use egress_router_cni::aws::acquire::acquire;
use egress_router_cni::aws::{Journal, Request, State};
use egress_router_cni::cni::{self, Code};

use super::gate::Fault;
use super::metadata::{SECRET, SESSION};
use super::node::{Memory, PUBLIC, Snapshot, TestEnv};

#[test]
fn a_missing_permission_is_named_and_the_add_is_rolled_back() {
    for action in
        ["DescribeAddresses", "DescribeNetworkInterfaces", "AssignPrivateIpAddresses", "AssociateAddress"]
    {
        let (env, _) = TestEnv::new();
        env.gate.plan(action, Fault::Refuse(403, "UnauthorizedOperation"), u32::MAX);
        let error = env.a.add().unwrap_err();
        assert_eq!(error.code, Code::Aws);
        assert!(error.message.contains(&format!("ec2:{action}")), "{error}");
        assert!(error.details.contains("r-err"), "{error}");
        assert_eq!(env.snapshot(), Snapshot::clean());
        assert_eq!(env.a.state(), None);
    }
}

#[test]
fn a_failed_rollback_stays_in_the_record() {
    let (env, _) = TestEnv::new();
    env.gate.plan("AssociateAddress", Fault::Refuse(403, "UnauthorizedOperation"), u32::MAX);
    env.gate.plan("UnassignPrivateIpAddresses", Fault::Refuse(403, "UnauthorizedOperation"), u32::MAX);
    let error = env.a.add().unwrap_err();
    assert!(error.message.contains("ec2:AssociateAddress"), "{error}");
    assert!(error.details.contains("ec2:UnassignPrivateIpAddresses"), "{error}");
    assert!(env.a.state().is_some());
    env.gate.calm();
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}

#[test]
fn an_address_that_is_not_allocated_is_refused() {
    let (env, ec2) = TestEnv::new();
    ec2.lock().unwrap().elastics.insert(
        Ipv4Addr::new(198, 51, 100, 1),
        super::ec2::Elastic { allocation: "eipalloc-2".into(), association: None },
    );
    ec2.lock().unwrap().elastics.remove(&PUBLIC);
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(
        error.message.contains("not allocated") && error.details.contains("InvalidAddress.NotFound"),
        "{error}"
    );
}

#[test]
fn a_full_interface_is_reported() {
    let (env, ec2) = TestEnv::new();
    ec2.lock().unwrap().limit = 1;
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("instance type"), "{error}");
    assert_eq!((env.snapshot(), env.a.state()), (Snapshot::clean(), None));
}

#[test]
fn a_full_subnet_is_reported_and_the_last_free_address_is_found() {
    let (env, ec2) = TestEnv::new();
    let free = Ipv4Addr::new(10, 0, 0, 19);
    let others = (8..31).chain([4]).map(|last| Ipv4Addr::new(10, 0, 0, last)).filter(|other| *other != free);
    ec2.lock().unwrap().interfaces.get_mut("eni-c").unwrap().addresses.extend(others);
    // The subnet's addresses are listed, in pages, only after a chosen address was refused.
    assert_eq!(env.a.add().unwrap().private.addr(), free);
    let error = env.b.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("subnet-1"), "{error}");
    assert_eq!(env.b.state(), None);
}

#[test]
fn an_associated_address_is_not_moved_if_the_settings_forbid_it() {
    let (mut env, _) = TestEnv::new();
    let acquired = env.b.add().unwrap();
    env.a.settings.allow_reassociation = Some(false);
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("eni-b") && error.message.contains("allowReassociation"), "{error}");
    assert_eq!(env.snapshot(), Snapshot::only(&env.b, &acquired));
}

#[test]
fn a_concurrent_association_is_kept_if_the_settings_forbid_a_move() {
    let (mut env, _) = TestEnv::new();
    env.a.settings.allow_reassociation = Some(false);
    env.gate.plan("AssociateAddress", Fault::Refuse(400, "Resource.AlreadyAssociated"), 1);
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("allowReassociation"), "{error}");
    assert_eq!((env.snapshot(), env.a.state()), (Snapshot::clean(), None));
}

#[test]
fn the_nodes_own_elastic_ip_is_refused() {
    let (env, ec2) = TestEnv::new();
    let own = ("eipassoc-own".to_owned(), "eni-a".to_owned(), Ipv4Addr::new(10, 0, 0, 5));
    ec2.lock().unwrap().elastics.get_mut(&PUBLIC).unwrap().association = Some(own.clone());
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("belongs to this node"), "{error}");
    assert_eq!(env.snapshot().at, Some((own.1, own.2)));
}

#[test]
fn an_elastic_ip_of_another_interface_of_the_node_is_refused() {
    for (instance, last, refused) in [("i-a", 7, true), ("i-a", 20, false), ("i-b", 7, false)] {
        let (env, ec2) = TestEnv::new();
        {
            let mut ec2 = ec2.lock().unwrap();
            ec2.instances.insert("eni-c".into(), instance);
            ec2.interfaces.get_mut("eni-c").unwrap().addresses.push(Ipv4Addr::new(10, 0, 0, 20));
            let there = ("eipassoc-own".to_owned(), "eni-c".to_owned(), Ipv4Addr::new(10, 0, 0, last));
            ec2.elastics.get_mut(&PUBLIC).unwrap().association = Some(there);
        }
        let result = env.a.add();
        assert_eq!(result.is_err(), refused, "{instance} {last}: {result:?}");
        if let Err(error) = result {
            assert!(
                error.message.contains("belongs to this node") && error.message.contains("eni-c"),
                "{error}"
            );
            assert_eq!(env.snapshot().at.map(|(interface, _)| interface), Some("eni-c".into()));
        }
    }
}

#[test]
fn exactly_one_ipv4_address_is_required() {
    let (env, _) = TestEnv::new();
    for addresses in [&["2001:db8::9/128"][..], &["203.0.113.9/32", "203.0.113.10/32"], &[]] {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let request = Request { addresses: &addresses, master: None, before: None };
        let error = env
            .a
            .with(|cloud, deadline| acquire(cloud, request, &mut Memory::default(), deadline))
            .unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("ip.addresses"), "{error}");
    }
    assert!(env.a.metadata.behaviour.lock().unwrap().asked.is_empty(), "there is no request");
}

#[test]
fn a_device_that_is_no_network_interface_of_the_instance_is_refused() {
    let (env, _) = TestEnv::new();
    let addresses = ["203.0.113.9/32".parse().unwrap()];
    let request = Request { addresses: &addresses, master: Some([2, 0, 0, 0, 0, 1]), before: None };
    let error =
        env.a.with(|cloud, deadline| acquire(cloud, request, &mut Memory::default(), deadline)).unwrap_err();
    assert!(error.message.contains("02:00:00:00:00:01") && error.message.contains("master"), "{error}");
}

#[test]
fn an_unwritable_record_fails_before_any_request() {
    let (env, _) = TestEnv::new();
    let addresses = ["203.0.113.9/32".parse().unwrap()];
    for writes in 0..3 {
        let request = Request { addresses: &addresses, master: None, before: None };
        let mut full = Full(writes);
        let error = env.a.with(|cloud, deadline| acquire(cloud, request, &mut full, deadline)).unwrap_err();
        assert_eq!(error.code, Code::Io);
        assert_eq!(env.snapshot(), Snapshot::clean(), "the disk is full after {writes} writes");
    }
}

#[test]
fn no_error_contains_a_secret() {
    for (action, status, code) in [
        ("DescribeAddresses", 401, "AuthFailure"),
        ("AssociateAddress", 403, "UnauthorizedOperation"),
        ("AssignPrivateIpAddresses", 400, "SignatureDoesNotMatch"),
    ] {
        let (env, _) = TestEnv::new();
        env.gate.plan(action, Fault::Refuse(status, code), u32::MAX);
        let error = env.a.add().unwrap_err();
        let all = format!("{error} {error:?} {}", error.to_json("1.1.0"));
        assert!(!all.contains(SECRET) && !all.contains(SESSION), "{all}");
    }
}

/// A disk that becomes full after a number of writes.
struct Full(u32);

impl Journal for Full {
    fn write(&mut self, _: &State) -> Result<(), cni::Error> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| cni::Error::new(Code::Io, "no space left"))?;
        Ok(())
    }
    fn clear(&mut self) -> Result<(), cni::Error> {
        Ok(())
    }
}
