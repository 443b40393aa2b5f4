//! Notifications of changed links and addresses (rtnetlink multicast groups; linux/rtnetlink.h, RTNLGRP_*).

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use super::address::Address;
use super::error::Error;
use super::message::messages;
use super::sys::Netlink;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// RTM_NEWLINK, RTM_DELLINK: a link was created or deleted, or has changed.
    Link,
    /// RTM_NEWADDR, RTM_DELADDR: an address was added or deleted, or has changed.
    Address(Address),
    /// Notifications were lost (ENOBUFS): the state must be listed again.
    Lost,
}

/// A socket that receives the changes of the links and addresses of one namespace.
///
/// Open it before the state is listed, so that no change is missed in between. An async runtime can poll its descriptor, and call
/// [`Self::read`] when it is readable.
#[derive(Debug)]
pub struct Monitor {
    netlink: Netlink,
    buffer: Vec<u8>,
}

/// RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// A notification is one message of a link, at most a few kilobytes.
const BUFFER: usize = 32 * 1024;

impl Monitor {
    /// Subscribes to links, IPv4 and IPv6 addresses in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel refuses, or no descriptors are left.
    pub fn open() -> Result<Self, Error> {
        let netlink = Netlink::open(libc::NETLINK_ROUTE, Duration::ZERO)
            .and_then(|netlink| netlink.subscribe(GROUPS).map(|()| netlink))
            .map_err(|source| Error::System { intent: "open a netlink socket for notifications", source })?;
        Ok(Self { netlink, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Returns all changes that are queued, without waiting.
    ///
    /// # Errors
    /// The system calls', and malformed notifications.
    pub fn read(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        loop {
            match self.netlink.receive(&mut self.buffer, false) {
                Ok(length) if length > self.buffer.len() => events.push(Event::Lost),
                Ok(_) => {
                    for message in messages(&self.buffer) {
                        let (header, payload) = message?;
                        match header.kind {
                            libc::RTM_NEWLINK | libc::RTM_DELLINK => events.push(Event::Link),
                            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                                events.extend(Address::decode(payload)?.map(Event::Address));
                            }
                            _ => {}
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => events.push(Event::Lost),
                Err(source) => return Err(Error::System { intent: "receive from the kernel", source }),
            }
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.netlink.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::netlink::isolated::{ip, isolated};
    use crate::netlink::link::Link;
    use crate::netlink::socket::{Protocol, Socket};

    /// Far longer than anything takes on a busy machine.
    const DEADLINE: Duration = Duration::from_secs(300);

    /// Waits for an event that `is` accepts.
    fn expect(monitor: &mut Monitor, is: impl Fn(&Event) -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            if monitor.read().unwrap().iter().any(&is) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no such event within {DEADLINE:?}");
    }

    #[test]
    fn links_and_addresses_are_reported_when_they_change() {
        isolated(|| {
            let mut monitor = Monitor::open().unwrap();
            assert_eq!(monitor.read().unwrap(), []);
            ip("link add v0 type veth peer name v1");
            expect(&mut monitor, |event| *event == Event::Link);
            ip("addr add 192.0.2.7/32 dev v0");
            let of = |address: &Address| address.net.to_string() == "192.0.2.7/32";
            expect(&mut monitor, |event| matches!(event, Event::Address(address) if of(address)));
            ip("addr del 192.0.2.7/32 dev v0");
            expect(&mut monitor, |event| matches!(event, Event::Address(address) if of(address)));
            ip("link del v0");
            expect(&mut monitor, |event| *event == Event::Link);
        });
    }

    #[test]
    fn lost_notifications_are_reported() {
        isolated(|| {
            let mut monitor = Monitor::open().unwrap();
            ip("link add v0 type veth peer name v1");
            let mut socket = Socket::open(Protocol::Route).unwrap();
            let index = socket.link_by_name("v0").unwrap().unwrap().index;
            // More than the default receive buffer of about 200 KiB.
            for number in 0..4000_u32 {
                socket.request(&Link::set_mtu(index, 1300 + number % 2)).unwrap();
            }
            assert!(monitor.read().unwrap().contains(&Event::Lost));
            assert_eq!(monitor.read().unwrap(), []);
        });
    }
}
