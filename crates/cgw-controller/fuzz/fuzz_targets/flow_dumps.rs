//! Output of `ovs-ofctl dump-flows`, also with flows of other programs. The changes that remove the driver's flows name no other flow, and are
//! lines that a bundle accepts.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use cgw_controller::agent::ovs::difference::{FlowChange, bundle, flows};
use cgw_controller::agent::ovs::facts::{facts, parse_interfaces};
use cgw_controller::agent::ovs::flow::{Flow, parse_dump};
use cgw_controller::agent::ovs::profile::{V3_7, V4_10};
use libfuzzer_sys::fuzz_target;

const INTERFACES: &str = include_str!("../../src/agent/ovs/tests/interfaces.json");

fuzz_target!(|text: &str| {
    let _ = parse_interfaces(text);
    let Ok(observed) = parse_dump(text) else { return };
    let interfaces = parse_interfaces(INTERFACES).unwrap();
    for profile in [&V3_7, &V4_10] {
        let _ = facts(profile, &interfaces, &observed);
        let _ = facts(profile, &BTreeMap::new(), &observed);
    }
    let ours: BTreeSet<_> =
        observed.iter().filter(|flow| flow.is_ours()).map(|flow| flow.key.clone()).collect();
    let changes = flows(&observed, &BTreeSet::new());
    let removed: BTreeSet<_> = changes
        .iter()
        .map(|change| match change {
            FlowChange::Delete(key) => key.clone(),
            FlowChange::Add(flow) => panic!("it adds {flow}"),
        })
        .collect();
    assert_eq!(removed, ours);
    let text = bundle(&changes);
    assert_eq!(text.lines().count(), changes.len(), "{text:?}");
    assert!(
        text.lines().all(|line| line.starts_with("flow delete_strict cookie=0xc6e0000000000000/")),
        "{text:?}"
    );
    // What is desired already changes nothing.
    let desired: BTreeSet<Flow> = observed.iter().filter(|flow| flow.is_ours()).cloned().collect();
    if desired.len() == ours.len() {
        assert_eq!(flows(&desired, &desired), []);
    }
});
