//! Chooses the private address of an attachment.
//!
//! EC2 could choose one (`SecondaryPrivateIpAddressCount`), but after a lost response it would be unknown. Other programs, such as Amazon's
//! CNI plugin, assign addresses to the same interface concurrently, and releasing a wrong one would disconnect a pod. So the plugin
//! chooses the address, records it, and then requests it.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// AWS reserves the first four addresses of a block and its last ("Subnet sizing", VPC User Guide).
const KEPT_FIRST: u32 = 4;

/// A random address of `block` that is not `taken`, so that two nodes rarely choose the same one. None if all are taken.
pub fn choose(block: Ipv4Net, random: u32, taken: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    let first = u32::from(block.network()).checked_add(KEPT_FIRST)?;
    let count = u32::from(block.broadcast()).checked_sub(first).filter(|count| *count > 0)?;
    let start = random % count;
    (start..count)
        .chain(0..start)
        .map(|offset| Ipv4Addr::from(first + offset))
        .find(|address| !taken(*address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_free_address_is_found_from_every_start() {
        let block: Ipv4Net = "10.0.0.16/28".parse().unwrap();
        let free = Ipv4Addr::new(10, 0, 0, 25);
        for random in 0..40 {
            assert_eq!(choose(block, random, |address| address != free), Some(free));
            assert_eq!(choose(block, random, |_| true), None);
        }
    }

    proptest! {
        #[test]
        fn reserved_addresses_are_never_chosen(address: u32, prefix in 0u8..=32, random: u32) {
            let block = Ipv4Net::new(Ipv4Addr::from(address), prefix).unwrap().trunc();
            match choose(block, random, |_| false) {
                None => prop_assert!(prefix > 29, "{block}"),
                Some(chosen) => {
                    let offset = u32::from(chosen) - u32::from(block.network());
                    prop_assert!(block.contains(&chosen) && offset >= 4 && chosen != block.broadcast());
                }
            }
        }
    }
}
