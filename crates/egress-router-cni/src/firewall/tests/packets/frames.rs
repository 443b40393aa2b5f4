//! Frames of packet sockets.

use super::*;
use crate::sys::isolated::send_frame;

/// An IPv4 packet with a datagram, in a frame to the hardware address `to_mac`.
fn frame(to_mac: [u8; 6], from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0].to_vec();
    header.extend([from, to].concat());
    let sum: u32 = header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    // Ports 1000 and 5353, the length, and no checksum.
    let datagram = [3, 232, 20, 233, 0, 9, 0, 0, b'?'];
    [&to_mac[..], &[2, 0, 0, 0, 0, 9], &[8, 0], &header, &datagram].concat()
}

/// A program with CAP_NET_RAW makes frames of its own, and may claim another protocol for them.
#[test]
fn frames_of_a_packet_socket_obey_the_allow_list() {
    isolated(|| {
        let lab = Lab::new();
        let outside = &lab.outside[0];
        let link = outside.within(|| ip("-o link show cable"));
        let mac = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
        let mut octets = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap());
        let mac: [u8; 6] = std::array::from_fn(|_| octets.next().unwrap());
        let links = Socket::open(Netlink::Route).unwrap().links().unwrap();
        let index = links.iter().find(|link| link.name == "net1").unwrap().index;
        let (listed_host, other) = ([203, 0, 113, 1], [198, 51, 100, 1]);
        let (own, spoofed, ipv4) = ([192, 168, 51, 10], [192, 0, 2, 66], 0x0800);
        let servers = outside.within(|| {
            for link in ["all", "cable"] {
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/rp_filter"), "0").unwrap();
            }
            [listed_host, other]
                .map(|address| std::net::UdpSocket::bind((IpAddr::from(address), 5353)).unwrap())
        });
        let arrives_within = |timeout: Duration, protocol: u16, from: [u8; 4], to: [u8; 4]| {
            send_frame(index, protocol, &frame(mac, from, to)).unwrap();
            let server = &servers[usize::from(to == other)];
            server.set_read_timeout(Some(timeout)).unwrap();
            server.recv(&mut [0; 9]).is_ok()
        };
        let arrives = |from: [u8; 4], to: [u8; 4]| arrives_within(TIMEOUT, ipv4, from, to);
        // The control: without the tables they leave.
        assert!(arrives(own, other) && arrives(spoofed, listed_host));
        install(&attachment(1, listed(&["203.0.113.0/24"])));
        assert!(arrives(own, listed_host));
        // ARP, VLAN and IPv6, of which other positions would be compared.
        for protocol in [ipv4, 0x0806, 0x8100, 0x86dd, 0] {
            for (from, to) in [(own, other), (spoofed, listed_host), (spoofed, other)] {
                let arrives = arrives_within(NO_REPLY_TIMEOUT, protocol, from, to);
                assert!(!arrives, "{protocol:#x} from {from:?} to {to:?}");
            }
        }
        // Packets of the kernel's own IP stack pass, also replies to unlisted hosts.
        let connected = outside.serves("203.0.113.1:80", || connect("203.0.113.1:80"));
        assert_eq!(connected.unwrap(), seen("192.168.51.10"));
        ip("neigh flush dev net1");
        let client = pod_serves("192.168.51.10:83", outside.connects("192.168.51.10:83"));
        assert_eq!(client.unwrap(), seen("192.168.51.1"));
    });
}
