use proptest::prelude::*;

use super::*;
use crate::netlink::isolated::{ip, isolated};
use crate::netlink::socket::{Protocol, Socket};
use crate::netlink::vxlan::{NewVxlan, Vxlan};

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>, inet: bool) {
        for flags in [0, SELF] {
            let family = if inet { libc::AF_INET } else { libc::AF_BRIDGE };
            let payload = [&fixed(family, 1, 0, flags)[..], &bytes].concat();
            let _ = (Neighbour::decode(&payload), ForwardingEntry::decode(&payload));
        }
        let _ = (Neighbour::decode(&bytes), ForwardingEntry::decode(&bytes));
    }

    #[test]
    fn a_request_decodes_like_an_existing_object(link: u32, address: [u8; 4], mac: [u8; 6]) {
        let neighbour = Neighbour::permanent(link, address.into(), mac);
        prop_assert_eq!(Neighbour::decode(neighbour.replace().body()), Ok(Some(neighbour)));
        let entry = ForwardingEntry::permanent(link, mac, address.into());
        prop_assert_eq!(ForwardingEntry::decode(entry.replace().body()), Ok(Some(entry)));
        prop_assert_eq!(Neighbour::decode(entry.replace().body()), Ok(None));
        prop_assert_eq!(ForwardingEntry::decode(neighbour.replace().body()), Ok(None));
    }
}

/// The index of a new VXLAN link that is up.
fn vxlan(socket: &mut Socket, name: &str, vni: u32) -> u32 {
    let vxlan = Vxlan::new(vni, Ipv4Addr::new(127, 0, 0, 1), 4789);
    let new = NewVxlan { name: name.into(), mac: [0x02, 0, 0, 0, 0, 1], mtu: 1450, vxlan };
    let link = socket.create_vxlan(&new).unwrap().index;
    socket.set_link_up(link, true).unwrap();
    link
}

#[test]
fn neighbours_are_added_replaced_and_deleted() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let (link, other) = (vxlan(&mut socket, "vx0", 1), vxlan(&mut socket, "vx1", 2));
        let address = Ipv4Addr::new(10, 244, 1, 0);
        let first = Neighbour::permanent(link, address, [0x02, 0, 0, 0, 0, 0xa]);
        socket.replace_neighbour(&first).unwrap();
        socket.replace_neighbour(&Neighbour { link: other, ..first }).unwrap();
        assert_eq!(socket.neighbours(link).unwrap(), [first]);
        let second = Neighbour { mac: Some([0x02, 0, 0, 0, 0, 0xb]), ..first };
        socket.replace_neighbour(&second).unwrap();
        assert_eq!(socket.neighbours(link).unwrap(), [second]);
        assert_eq!(ip("neigh show dev vx0").trim(), "10.244.1.0 lladdr 02:00:00:00:00:0b PERMANENT");
        assert!(socket.delete_neighbour(&second).unwrap());
        assert!(!socket.delete_neighbour(&second).unwrap());
        assert_eq!(socket.neighbours(link).unwrap(), []);
        assert_eq!(socket.neighbours(other).unwrap().len(), 1);
        ip("neigh add 10.244.1.1 lladdr 02:00:00:00:00:0c nud reachable dev vx0");
        assert!(!socket.neighbours(link).unwrap()[0].permanent);
        let error = socket.replace_neighbour(&Neighbour { link: 99, ..first }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "replacing the neighbour 10.244.1.0 dev 99 lladdr 02:00:00:00:00:0a failed: No such device"
        );
    });
}

#[test]
fn forwarding_entries_are_added_replaced_and_deleted() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        ip("link set lo up");
        let (link, other) = (vxlan(&mut socket, "vx0", 1), vxlan(&mut socket, "vx1", 2));
        let mac = [0x02, 0, 0, 0, 0, 0xa];
        let first = ForwardingEntry::permanent(link, mac, Ipv4Addr::new(192, 0, 2, 1));
        socket.replace_forwarding_entry(&first).unwrap();
        socket.replace_forwarding_entry(&ForwardingEntry { link: other, ..first }).unwrap();
        assert_eq!(socket.forwarding_entries(link).unwrap(), [first]);
        let second = ForwardingEntry { remote: Some(Ipv4Addr::new(192, 0, 2, 2)), ..first };
        socket.replace_forwarding_entry(&second).unwrap();
        assert_eq!(socket.forwarding_entries(link).unwrap(), [second]);
        // Deleting another remote does not delete the entry.
        assert!(!socket.delete_forwarding_entry(&first).unwrap());
        assert!(socket.delete_forwarding_entry(&second).unwrap());
        assert!(!socket.delete_forwarding_entry(&second).unwrap());
        assert_eq!(socket.forwarding_entries(link).unwrap(), []);
        assert_eq!(socket.forwarding_entries(other).unwrap().len(), 1);
    });
}

#[test]
fn forwarding_entries_of_other_programs_are_recognized() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        ip("link set lo up");
        let link = vxlan(&mut socket, "vx0", 1);
        for line in [
            "fdb append 02:00:00:00:00:01 dev vx0 dst 192.0.2.1 self permanent port 99",
            "fdb append 02:00:00:00:00:02 dev vx0 dst 192.0.2.1 self dynamic",
            "fdb append 02:00:00:00:00:03 dev vx0 dst 192.0.2.1 self permanent",
            "fdb append 02:00:00:00:00:03 dev vx0 dst 192.0.2.2 self permanent",
        ] {
            crate::netlink::isolated::run("bridge", line.split_whitespace());
        }
        let mut found = socket.forwarding_entries(link).unwrap();
        found.sort();
        let shown: Vec<_> =
            found.iter().map(|entry| (entry.mac[5], entry.permanent, entry.overrides)).collect();
        assert_eq!(shown, [(1, true, true), (2, false, false), (3, true, false), (3, true, false)]);
        let several = ForwardingEntry::permanent(link, [0x02, 0, 0, 0, 0, 3], Ipv4Addr::new(192, 0, 2, 9));
        let replaced = socket.replace_forwarding_entry(&several);
        let left = socket.forwarding_entries(link).unwrap();
        let of_mac: Vec<_> = left.iter().filter(|entry| entry.mac == several.mac).collect();
        // The kernel keeps one remote.
        assert!(replaced.is_ok(), "{replaced:?}");
        assert_eq!(of_mac, [&several]);
    });
}
