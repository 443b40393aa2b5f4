//! EC2 throttles, fails, and loses responses, before and after the request takes effect.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use egress_router_cni::cni::Code;

use super::gate::{Fault, Planned};
use super::node::{LONGEST, Snapshot, TestEnv};

const ADD: [&str; 4] =
    ["DescribeAddresses", "DescribeNetworkInterfaces", "AssignPrivateIpAddresses", "AssociateAddress"];
const DEL: [&str; 2] = ["DisassociateAddress", "UnassignPrivateIpAddresses"];

/// Temporary faults, each once or twice.
fn temporary() -> Vec<Fault> {
    vec![
        Fault::Refuse(503, "RequestLimitExceeded"),
        Fault::Refuse(400, "Throttling"),
        Fault::Refuse(500, "InternalError"),
        Fault::Refuse(503, "Unavailable"),
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::After(500, "<Response><Errors><Error><Code>InternalError</Code></Error></Errors></Response>"),
        Fault::After(502, "<html><body>Bad Gateway</body></html>"),
    ]
}

#[test]
fn temporary_failures_are_retried() {
    for action in ADD.into_iter().chain(DEL) {
        for (n, fault) in temporary().into_iter().enumerate() {
            for times in [1, 2] {
                let (env, _) = TestEnv::new();
                env.gate.plan(action, fault.clone(), times);
                let acquired = env.a.add().unwrap_or_else(|error| panic!("{action}, fault {n}: {error}"));
                assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired), "{action}, fault {n}");
                env.a.del().unwrap_or_else(|error| panic!("{action}, fault {n}: {error}"));
                assert_eq!(env.snapshot(), Snapshot::clean(), "{action}, fault {n}");
            }
        }
    }
}

#[test]
fn a_lasting_temporary_failure_has_code_11_and_leaves_nothing() {
    for action in ADD {
        for fault in [Fault::Refuse(503, "RequestLimitExceeded"), Fault::CutBefore, Fault::CutAfter] {
            let (env, _) = TestEnv::new();
            env.a.retry.set(Duration::from_millis(300));
            env.gate.plan(action, fault.clone(), u32::MAX);
            let start = Instant::now();
            let result = env.a.add();
            // After a lost response, the effect is read, unless that response is lost too.
            if let Err(error) = result {
                assert_eq!(error.code, Code::TryAgain, "{action}: {error}");
            } else {
                assert!(matches!(fault, Fault::CutAfter), "{action}");
            }
            assert!(start.elapsed() < LONGEST, "{action}: {:?}", start.elapsed());
            env.gate.calm();
            env.a.retry.set(LONGEST);
            env.a.del().unwrap();
            assert_eq!(env.snapshot(), Snapshot::clean(), "{action}");
        }
    }
}

#[test]
fn a_del_that_ec2_throttles_has_code_11() {
    for action in DEL {
        let (env, _) = TestEnv::new();
        env.a.add().unwrap();
        env.a.retry.set(Duration::from_millis(300));
        env.gate.plan(action, Fault::Refuse(503, "RequestLimitExceeded"), u32::MAX);
        assert_eq!(env.a.del().unwrap_err().code, Code::TryAgain);
        assert!(env.a.state().is_some(), "what is left is still written down");
        env.gate.calm();
        env.a.retry.set(LONGEST);
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean());
    }
}

#[test]
fn an_assigned_address_that_is_not_listed_yet_does_not_leak() {
    for lag in 1..4 {
        let (env, ec2) = TestEnv::new();
        ec2.lock().unwrap().refuses_repeated = true;
        let meanwhile = move || ec2.lock().unwrap().lag = lag;
        let planned = Planned {
            action: "AssignPrivateIpAddresses",
            fault: Fault::CutAfter,
            times: 1,
            meanwhile: Some(Box::new(meanwhile)),
        };
        env.gate.faults.lock().unwrap().push(planned);
        let acquired = env.a.add().unwrap();
        assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
    }
}

#[test]
fn an_address_that_others_get_after_a_lost_response_is_kept() {
    let (env, ec2) = TestEnv::new();
    let free = Ipv4Addr::new(10, 0, 0, 19);
    let meanwhile = move || {
        let others = (8..31).chain([4]).map(|last| Ipv4Addr::new(10, 0, 0, last));
        let mut ec2 = ec2.lock().unwrap();
        let theirs = ec2.interfaces.get_mut("eni-c").unwrap();
        theirs.addresses.extend(others.filter(|other| *other != free));
    };
    let planned = Planned {
        action: "AssignPrivateIpAddresses",
        fault: Fault::CutBefore,
        times: 1,
        meanwhile: Some(Box::new(meanwhile)),
    };
    env.gate.faults.lock().unwrap().push(planned);
    assert_eq!(env.a.add().unwrap().private.addr(), free);
}

#[test]
fn an_association_that_moved_after_a_lost_response_is_not_moved_back() {
    for fault in [Fault::CutBefore, Fault::CutAfter] {
        let (env, ec2) = TestEnv::new();
        let meanwhile = move || {
            let mut ec2 = ec2.lock().unwrap();
            let elastic = ec2.elastics.get_mut(&super::node::PUBLIC).unwrap();
            elastic.association =
                Some(("eipassoc-newer".into(), "eni-b".into(), "10.0.0.6".parse().unwrap()));
        };
        let planned =
            Planned { action: "AssociateAddress", fault, times: 1, meanwhile: Some(Box::new(meanwhile)) };
        env.gate.faults.lock().unwrap().push(planned);
        let error = env.a.add().unwrap_err();
        assert_eq!(error.code, Code::TryAgain);
        assert!(error.message.contains("eni-b"), "{error}");
        let left = env.snapshot();
        assert_eq!(left.at, Some(("eni-b".into(), "10.0.0.6".parse().unwrap())));
        assert!(left.secondary.is_empty(), "{left:?}");
        assert_eq!(env.a.state(), None);
    }
}

#[test]
fn an_invalid_response_is_reported() {
    let (env, _) = TestEnv::new();
    env.gate.plan("DescribeAddresses", Fault::After(200, "<html>portal</html>"), u32::MAX);
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("DescribeAddresses") && error.details.contains("html"), "{error}");
}
