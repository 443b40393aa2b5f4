use proptest::prelude::*;

use super::*;
use crate::netlink::isolated::{ip, isolated};
use crate::netlink::socket::{Protocol, Socket};

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn vxlans() -> impl Strategy<Value = Vxlan> {
    let address = || proptest::option::of(any::<u32>().prop_map(Ipv4Addr::from));
    let numbers = (0_u32..1 << 24, any::<u16>(), any::<u8>(), any::<u8>(), 0_u8..3);
    (numbers, address(), address(), any::<bool>(), any::<bool>(), proptest::option::of(1_u32..)).prop_map(
        |((vni, port, ttl, tos, df), local, group, learning, external, underlay)| Vxlan {
            vni,
            local,
            port,
            learning,
            ttl,
            tos,
            df,
            underlay,
            group,
            external,
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
        let _ = Vxlan::decode(&bytes);
        let mut message = link::request(libc::RTM_NEWLINK, 0, 1);
        link::named(&mut message, "x", [2; 6], 1);
        link::of_kind(&mut message, KIND, |data| { data.attribute(ID, &bytes); });
        let _ = Vxlan::decode(&[message.body(), &bytes].concat());
    }

    #[test]
    fn a_request_decodes_like_an_existing_link(vxlan in vxlans(), mac: [u8; 6], mtu in 68_u32..65_536) {
        let new = NewVxlan { name: "vx0".into(), mac, mtu, vxlan };
        let (link, read) = Vxlan::decode(new.create().body()).unwrap();
        prop_assert_eq!((link.name.as_str(), link.kind.as_str()), ("vx0", KIND));
        prop_assert_eq!((link.mac, link.mtu, read), (Some(mac), mtu, Some(vxlan)));
    }
}

fn new(vxlan: Vxlan) -> NewVxlan {
    NewVxlan { name: "vx0".into(), mac: [0x02, 0, 0, 0, 0, 1], mtu: 1450, vxlan }
}

#[test]
fn the_kernel_has_the_attributes_of_the_request() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        assert_eq!(socket.vxlan_by_name("vx0").unwrap(), None);
        let desired = new(Vxlan::new(4_711, LOCAL, 4789));
        let created = socket.create_vxlan(&desired).unwrap();
        assert_eq!((created.kind.as_str(), created.mtu, created.up), ("vxlan", 1450, false));
        assert_eq!(created.mac, Some(desired.mac));
        assert_eq!(socket.vxlan_by_name("vx0").unwrap(), Some((created.clone(), Some(desired.vxlan))));
        let shown = ip("-d link show vx0");
        for part in ["vxlan id 4711 local 192.0.2.1 ", "dstport 4789 ", "nolearning ", "ttl auto "] {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
        assert!(!shown.contains(" df "), "{shown}");

        let error = socket.create_vxlan(&desired).unwrap_err();
        assert!(error.is(&[libc::EEXIST]), "{error}");
        assert_eq!(error.to_string(), "creating the VXLAN link vx0 failed: File exists");

        socket.set_link_mtu(created.index, 1400).unwrap();
        socket.set_link_up(created.index, true).unwrap();
        let link = socket.link_by_index(created.index).unwrap().unwrap();
        assert_eq!((link.mtu, link.up), (1400, true));
        assert!(socket.set_link_mtu(created.index, 1 << 20).unwrap_err().is(&[libc::EINVAL]));

        assert!(socket.delete_link(created.index).unwrap());
        assert!(!socket.delete_link(created.index).unwrap());
        assert_eq!(socket.link_by_index(created.index).unwrap(), None);
    });
}

#[test]
fn attributes_of_another_program_differ_from_the_desired_ones() {
    isolated(|| {
        ip("link add v0 type veth peer name v1");
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let underlay = socket.link_by_name("v0").unwrap().unwrap();
        ip(
            "link add vx0 type vxlan id 7 local 192.0.2.1 dstport 4789 dev v0 ttl 9 tos 8 df set group 239.1.1.1",
        );
        let (_, vxlan) = socket.vxlan_by_name("vx0").unwrap().unwrap();
        let expected = Vxlan {
            ttl: 9,
            tos: 8,
            df: 1,
            learning: true,
            underlay: Some(underlay.index),
            group: Some(Ipv4Addr::new(239, 1, 1, 1)),
            ..Vxlan::new(7, LOCAL, 4789)
        };
        assert_eq!(vxlan, Some(expected));
        ip("link del vx0");
        ip("link add vx0 type vxlan external dstport 4790");
        assert!(socket.vxlan_by_name("vx0").unwrap().unwrap().1.unwrap().external);
        // A link of another kind has no attributes.
        assert_eq!(socket.vxlan_by_name("v0").unwrap(), Some((underlay, None)));
    });
}
