use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ipnet::IpNet;

use super::{Protocol, Socket};
use crate::netlink::Error;
use crate::netlink::address::{self, Address};
use crate::netlink::isolated::{enter, ip, isolated};
use crate::netlink::message::{FLAG_ACK, FLAG_CREATE, FLAG_EXCLUSIVE, Message, Refusal};

fn by_name(name: &str) -> Message {
    let mut message = Message::new(libc::RTM_GETLINK, 0, &[0; 16]);
    message.string(libc::IFLA_IFNAME, name);
    message
}

/// Sends all of `requests` in batches whose replies fit into the receive buffer.
fn all(socket: &mut Socket, requests: &[Message]) -> Vec<Option<Refusal>> {
    let asked =
        |some: &[Message]| some.iter().map(|one| one.clone().with_flags(FLAG_ACK)).collect::<Vec<_>>();
    requests.chunks(100).flat_map(|some| socket.transaction(&asked(some)).unwrap()).collect()
}

fn veth(name: &str) -> Message {
    let mut message = Message::new(libc::RTM_NEWLINK, FLAG_CREATE | FLAG_EXCLUSIVE, &[0; 16]);
    message.string(libc::IFLA_IFNAME, name).nest(libc::IFLA_LINKINFO, |info| {
        info.string(1, "veth");
    });
    message
}

#[test]
fn one_object_is_read_and_a_missing_one_is_a_refusal() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let kind = socket.ask(&by_name("lo"), |kind, _| Ok(kind)).unwrap();
        assert_eq!(kind, libc::RTM_NEWLINK);
        let error = socket.ask(&by_name("missing"), |kind, _| Ok(kind)).unwrap_err();
        assert!(error.is(&[libc::ENODEV]), "{error}");
    });
}

#[test]
fn refusals_have_the_position_of_their_requests_and_the_kernels_message() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let replies = all(&mut socket, &[veth("a0"), veth("a0"), veth("a1")]);
        assert_eq!(replies.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(replies[1].as_ref().unwrap().errno, libc::EEXIST);
        let mut route =
            Message::new(libc::RTM_NEWROUTE, FLAG_CREATE, &[2, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        route.attribute(libc::RTA_DST, &[10, 0, 0, 1]).attribute(libc::RTA_GATEWAY, &[10, 9, 9, 9]);
        match socket.request(&route).unwrap_err() {
            Error::Refused(refusal) => {
                assert_eq!(refusal.errno, libc::ENETUNREACH);
                assert_eq!(refusal.to_string(), "Network is unreachable: Nexthop has invalid gateway");
            }
            other => panic!("{other}"),
        }
    });
}

#[test]
fn a_large_batch_and_a_large_dump_are_complete() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        ip("link set lo up");
        let routes: Vec<_> = (0..3000_u16)
            .map(|number| {
                let [high, low] = number.to_be_bytes();
                let mut message = Message::new(
                    libc::RTM_NEWROUTE,
                    FLAG_CREATE | FLAG_EXCLUSIVE,
                    &[2, 32, 0, 0, 254, 4, 253, 1, 0, 0, 0, 0],
                );
                message.attribute(libc::RTA_DST, &[10, 1, high, low]).u32(libc::RTA_OIF, 1);
                message
            })
            .collect();
        assert!(all(&mut socket, &routes).iter().all(Option::is_none));
        let dump = Message::new(libc::RTM_GETROUTE, 0, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mine = socket.dump(&dump, |_, payload| Ok((payload[4] == 254).then_some(()))).unwrap();
        assert_eq!(mine.len(), 3000);
        let second = all(&mut socket, &routes);
        assert!(
            second.iter().all(|reply| reply.as_ref().is_some_and(|refusal| refusal.errno == libc::EEXIST))
        );
        // In one send, larger than the default buffers: lost replies are an error, never a success.
        assert!(socket.transaction(&routes).is_ok_and(|replies| replies.iter().any(Option::is_some)));
    });
}

#[test]
fn an_attribute_that_is_too_long_is_not_sent() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let mut message = by_name("lo");
        message.attribute(1, &vec![0; 70_000]);
        assert!(matches!(socket.request(&message), Err(Error::TooLong)));
        assert!(socket.ask(&by_name("lo"), |kind, _| Ok(kind)).is_ok());
    });
}

/// Adds and deletes addresses continuously, so that dumps are interrupted.
#[test]
fn a_dump_during_changes_is_complete_or_an_error() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        ip("link set lo up");
        let address = |second: u8, number: u16| {
            let [high, low] = number.to_be_bytes();
            address::add(1, IpNet::new(IpAddr::from([10, second, high, low]), 32).unwrap(), 0)
        };
        let stable: Vec<_> = (0..1000).map(|number| address(1, number)).collect();
        assert!(all(&mut socket, &stable).iter().all(Option::is_none));
        let count = |addresses: &[Address]| {
            let ours = |there: &&Address| there.net.to_string().starts_with("10.1.");
            addresses.iter().filter(ours).count()
        };
        let (namespace, over) = (socket.namespace().unwrap(), AtomicBool::new(false));
        let (mut whole, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                enter(&namespace).unwrap();
                let mut socket = Socket::open(Protocol::Route).unwrap();
                let mut number = 0;
                while !over.load(Ordering::Relaxed) {
                    number = (number + 1) % 60_000;
                    socket.request(&address(2, number)).unwrap();
                    let net = IpNet::new(
                        IpAddr::from([10, 2, number.to_be_bytes()[0], number.to_be_bytes()[1]]),
                        32,
                    );
                    socket.request(&address::delete(1, net.unwrap())).unwrap();
                }
            });
            for _ in 0..5 {
                match socket.addresses() {
                    Ok(addresses) => {
                        assert_eq!(count(&addresses), 1000);
                        whole += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::DumpInterrupted(_)), "{error}");
                        refused += 1;
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(whole + refused, 5);
        assert_eq!(count(&socket.addresses().unwrap()), 1000);
    });
}
