//! An attachment's slot: the number that its tables, rules and mark are derived from.

use std::collections::BTreeSet;

use crate::cni::{Code, Error};
use crate::names;
use crate::observe::Pod;

use super::undo::Undo;

/// The smallest free slot whose tables and mark are unused, because another program may use a table with this number, and a record may
/// have been flushed with the pod's ruleset.
///
/// # Errors
/// [`Code::Kernel`]: all are in use.
pub fn free<'a>(pod: &Pod, others: impl IntoIterator<Item = &'a Undo>) -> Result<u32, Error> {
    let mut taken: BTreeSet<u32> = others.into_iter().map(|record| record.slot).collect();
    let tables = pod.routes.iter().map(|route| route.table).chain(pod.rules.iter().map(|rule| rule.table));
    for table in tables {
        for base in [names::primary_table(0), names::egress_table(0)] {
            taken.extend(table.checked_sub(base).filter(|slot| (1..=names::SLOTS).contains(slot)));
        }
    }
    taken.extend(
        pod.rules.iter().filter_map(|rule| rule.mark).map(|(mark, _)| (mark & names::MARK_MASK) >> 16),
    );
    (1..=names::SLOTS).find(|slot| !taken.contains(slot)).ok_or_else(|| {
        Error::new(
            Code::Kernel,
            format!("the pod has {} egress attachments already: no slot is free", names::SLOTS),
        )
    })
}

#[cfg(test)]
mod tests {
    use common::netlink::rule::Rule;

    use super::free;
    use crate::names;
    use crate::observe::Pod;

    fn rule(slot: u32, mark: Option<u32>) -> Rule {
        Rule {
            ipv6: false,
            priority: 7,
            mark: mark.map(|slot| (names::mark(slot), names::MARK_MASK)),
            from: None,
            table: names::egress_table(slot),
            protocol: 0,
        }
    }

    #[test]
    fn the_smallest_unused_slot_is_taken() {
        assert_eq!(free(&Pod::default(), []), Ok(1));
        let pod = Pod { rules: vec![rule(1, None), rule(4, Some(2))], ..Pod::default() };
        assert_eq!(free(&pod, []), Ok(3));
        let pod = Pod { rules: (1..=names::SLOTS).map(|slot| rule(slot, None)).collect(), ..Pod::default() };
        assert!(free(&pod, []).unwrap_err().message.contains("no slot is free"));
    }
}
