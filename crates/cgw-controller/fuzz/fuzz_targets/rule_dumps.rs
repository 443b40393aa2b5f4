//! Output of `iptables-save`, also with rules of other programs. The transaction that removes the driver's rules changes no other chain but
//! by the removal of jumps, and is one that `iptables-restore` reads line by line.
#![no_main]

use cgw_controller::agent::ovs::difference::rules;
use cgw_controller::agent::ovs::iptables::{Rules, Step, parse_save, render};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(observed) = parse_save(text) else { return };
    assert!(rules(&observed, &observed).is_empty());
    let steps = rules(&observed, &Rules::default());
    for step in &steps {
        match step {
            Step::Remove(chain) => assert!(observed.chains.contains_key(chain), "{step}"),
            Step::DeleteJump(chain, rule) => {
                let jumps = &observed.jumps[chain];
                assert!(jumps.iter().any(|(_, jump)| jump == rule), "{step}");
            }
            Step::Replace(..) | Step::InsertJump(..) => panic!("{step}"),
        }
    }
    for line in render(&steps).lines() {
        let known = ["*", ":CGW-", "-D ", "-X CGW-", "COMMIT"];
        assert!(known.iter().any(|prefix| line.starts_with(prefix)), "{line:?}");
    }
});
