//! Compares the page about Elastic IPs with the code.

use std::collections::BTreeSet;

use super::gate::Fault;
use super::node::{KillPoint, TestEnv};

const PAGE: &str = include_str!("../../../../docs/egress-router-cni/aws.md");

/// The indented block that begins with `first` and contains `word`.
fn json(word: &str) -> serde_json::Value {
    let mut blocks = PAGE.split("\n\n").filter(|block| block.starts_with("    {") && block.contains(word));
    serde_json::from_str(blocks.next().unwrap()).unwrap()
}

#[test]
fn the_policy_grants_exactly_the_used_actions() {
    let policy = json("Statement");
    let granted: BTreeSet<String> = policy["Statement"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|statement| statement["Action"].as_array().unwrap())
        .map(|action| action.as_str().unwrap().strip_prefix("ec2:").unwrap().to_owned())
        .collect();

    let (env, _) = TestEnv::new();
    env.gate.plan("AssociateAddress", Fault::CutBefore, 1);
    env.a.add().unwrap();
    env.a.del().unwrap();
    env.a.add_until(&KillPoint::at(9)).unwrap_err();
    env.a.del().unwrap();
    let asked: BTreeSet<String> = env.gate.log.lock().unwrap().iter().cloned().collect();
    assert_eq!(granted, asked);
    for action in asked {
        assert!(PAGE.split("## Settings").next().unwrap().contains(&action), "{action} is in the table");
    }
}

#[test]
fn the_example_is_json() {
    assert_eq!(json("interfaceType")["ip"]["addresses"], serde_json::json!(["203.0.113.9"]));
}
