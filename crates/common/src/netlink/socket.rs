//! A netlink socket: sends requests and returns the reply to each.

mod changes;
mod objects;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use super::error::Error;
use super::message::{
    FLAG_ACK, FLAG_DUMP, FLAG_INTERRUPTED, Malformed, Message, Refusal, acknowledgement, messages,
};
use super::sys::Netlink;

/// NLMSG_ERROR: an acknowledgement or a refusal.
const ERROR: u16 = 2;
/// NLMSG_DONE: the end of a dump.
const DONE: u16 = 3;
/// NLMSG_MIN_TYPE: below are the messages of netlink itself.
const FIRST_OF_FAMILY: u16 = 16;

/// The kernel's largest datagram of a dump (linux/net/netlink/af_netlink.c, netlink_recvmsg).
const BUFFER: usize = 32 * 1024;

/// Attempts after transient failures: changes during a dump, or another dump in progress. On a node with 1,000 links, whose dump takes 5 ms,
/// and 200 changes a second, two of three attempts fail. Thirty failures in a row are one in a million, and take a quarter of a
/// second.
const ATTEMPTS: u32 = 30;

/// Pause between two attempts: longer than a dump, and short compared with a pod's start.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// Timeout of a reply. Replies are available when the request has been sent; a contended RTNL delays the sending, not the reply. So this
/// only prevents the caller from hanging with an unknown kernel.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, neighbours, routes, rules.
    Route,
    /// nf_tables, conntrack.
    Netfilter,
}

/// A netlink socket in the namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    netlink: Netlink,
    sequence: u32,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

/// The sockets of one namespace.
#[derive(Debug)]
pub struct Sockets {
    /// Links, addresses, routes, rules.
    pub route: Socket,
    /// nf_tables.
    pub netfilter: Socket,
}

impl Sockets {
    /// Both, in the calling thread's namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self { route: Socket::open(Protocol::Route)?, netfilter: Socket::open(Protocol::Netfilter)? })
    }
}

/// The reply to one request.
type Reply = Option<Refusal>;

impl Socket {
    /// A socket in the calling thread's namespace.
    ///
    /// # Errors
    /// No netlink of this protocol, or no descriptors left.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let protocol = match protocol {
            Protocol::Route => libc::NETLINK_ROUTE,
            Protocol::Netfilter => libc::NETLINK_NETFILTER,
        };
        let netlink = Netlink::open(protocol, TIMEOUT)
            .map_err(|source| Error::System { intent: "open a netlink socket", source })?;
        Ok(Self { netlink, sequence: 0, out: Vec::new(), buffer: Vec::with_capacity(BUFFER) })
    }

    /// A descriptor of the namespace in which it was opened.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn namespace(&self) -> Result<OwnedFd, Error> {
        self.netlink
            .namespace()
            .map_err(|source| Error::System { intent: "open the namespace of a socket", source })
    }

    /// Sends one request and waits for its acknowledgement.
    ///
    /// # Errors
    /// [`Error::Refused`], or why there is no reply.
    pub fn request(&mut self, message: &Message) -> Result<(), Error> {
        let message = message.clone().with_flags(FLAG_ACK);
        match self.transaction(std::slice::from_ref(&message))?.pop().flatten() {
            Some(refusal) => Err(Error::Refused(refusal)),
            None => Ok(()),
        }
    }

    /// Sends all of `requests` at once, as a batch of nf_tables requires. Those with NLM_F_ACK are acknowledged, and any may be refused. The
    /// refusals have the positions of their requests; one at the batch's begin is for the whole batch.
    ///
    /// # Errors
    /// Why replies are missing; [`Error::NoReply`] if a request with NLM_F_ACK got none and none was refused.
    pub fn transaction(&mut self, requests: &[Message]) -> Result<Vec<Reply>, Error> {
        self.transaction_with(requests, |_, _| {})
    }

    /// As [`Self::transaction`]. `echo` gets type and payload of each object that a request with NLM_F_ECHO has made. The kernel queues them
    /// before the acknowledgements, which are lost with them if they do not fit into the receive buffer.
    ///
    /// # Errors
    /// As [`Self::transaction`].
    pub fn transaction_with(
        &mut self,
        requests: &[Message],
        mut echo: impl FnMut(u16, &[u8]),
    ) -> Result<Vec<Reply>, Error> {
        let first = self.send(requests)?;
        let mut replies: Vec<Reply> = vec![None; requests.len()];
        let mut desired = requests.iter().filter(|message| message.requests_ack()).count();
        let all_acknowledged = desired == requests.len();
        let (mut refused, mut lost) = (false, None);
        // The kernel has queued all replies by now; only the required ones are waited for.
        while desired > 0 || refused || !all_acknowledged {
            match self.receive(desired > 0 && !refused) {
                Ok(_) => {}
                Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.is(&[libc::ENOBUFS]) => {
                    // The remaining replies may have the cause.
                    lost = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            for message in messages(&self.buffer) {
                let (header, payload) = message?;
                let place = usize::try_from(header.sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                // The kernel echoes elements of sets without a sequence number (nf_tables_setelem_notify).
                if header.kind >= FIRST_OF_FAMILY && (header.sequence == 0 || place < requests.len()) {
                    echo(header.kind, payload);
                }
                let Some(slot) = replies.get_mut(place).filter(|_| header.kind == ERROR) else { continue };
                let reply = acknowledgement(header, payload)?;
                refused |= reply.is_some();
                if requests.get(place).is_some_and(Message::requests_ack) {
                    desired = desired.saturating_sub(1);
                }
                // A batch's begin may be both acknowledged and refused: the refusal is used.
                if reply.is_some() {
                    *slot = reply;
                }
            }
        }
        match lost {
            Some(error) if !refused => Err(error),
            _ if desired > 0 && !refused => Err(Error::NoReply),
            _ => Ok(replies),
        }
    }

    /// Requests one object without a dump, decoded by `decode` from the reply's type and payload.
    ///
    /// # Errors
    /// [`Error::Refused`] (ENODEV, ENOENT: there is none), or why there is no reply.
    pub fn ask<T>(
        &mut self,
        message: &Message,
        decode: impl Fn(u16, &[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let first = self.send(std::slice::from_ref(message))?;
        loop {
            self.receive(true)?;
            for message in messages(&self.buffer) {
                let (header, payload) = message?;
                if header.sequence != first {
                    continue;
                }
                match header.kind {
                    ERROR => {
                        let refusal = acknowledgement(header, payload)?;
                        return Err(refusal.map_or(Error::NoReply, Error::Refused));
                    }
                    kind if kind >= FIRST_OF_FAMILY => return Ok(decode(kind, payload)?),
                    _ => {}
                }
            }
        }
    }

    /// Dumps all objects for which `decode`, with the reply's type and payload, is not none. Repeats the dump if the objects change during
    /// it.
    ///
    /// # Errors
    /// [`Error::DumpInterrupted`] when they always do; [`Error::Refused`]; why there is no reply.
    pub fn dump<T>(
        &mut self,
        message: &Message,
        decode: impl Fn(u16, &[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let message = message.clone().with_flags(FLAG_DUMP);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                thread::sleep(RETRY_INTERVAL);
            }
            match self.dump_once(&message, &decode) {
                Ok(Some(objects)) => return Ok(objects),
                // Changed during the dump, or a datagram was lost or larger than the buffer.
                Ok(None) => {}
                Err(error) if error.is(&[libc::ENOBUFS, libc::EBUSY, libc::EINTR, libc::EAGAIN]) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::DumpInterrupted(ATTEMPTS))
    }

    fn dump_once<T>(
        &mut self,
        message: &Message,
        decode: impl Fn(u16, &[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Option<Vec<T>>, Error> {
        let first = self.send(std::slice::from_ref(message))?;
        let (mut objects, mut whole, mut larger, mut malformed) = (Vec::new(), true, 0, None);
        // Read to its end in any case, because the kernel starts no other dump on this socket before.
        'dump: loop {
            let length = self.receive(true)?;
            if length > self.buffer.len() {
                (whole, larger) = (false, length.max(larger));
                continue;
            }
            for message in messages(&self.buffer) {
                let (header, payload) = message?;
                if header.sequence != first {
                    continue;
                }
                whole &= header.flags & FLAG_INTERRUPTED == 0;
                match header.kind {
                    ERROR | DONE => {
                        if let Some(refusal) = acknowledgement(header, payload)? {
                            return Err(Error::Refused(refusal));
                        }
                        break 'dump;
                    }
                    kind if kind >= FIRST_OF_FAMILY => match decode(kind, payload) {
                        Ok(object) => objects.extend(object),
                        Err(error) => malformed = Some(error),
                    },
                    _ => {}
                }
            }
        }
        if larger > 0 {
            self.buffer.clear();
            self.buffer.reserve(larger);
        }
        match malformed {
            Some(error) if whole => Err(error.into()),
            _ => Ok(whole.then_some(objects)),
        }
    }

    /// Sends all in one datagram. Returns the first sequence number; the others follow.
    fn send(&mut self, requests: &[Message]) -> Result<u32, Error> {
        let first = self.sequence.wrapping_add(1);
        self.out.clear();
        for message in requests {
            self.sequence = self.sequence.wrapping_add(1);
            if !message.write(self.sequence, &mut self.out) {
                return Err(Error::TooLong);
            }
        }
        let mut sent = self.netlink.send(&self.out);
        if sent.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EMSGSIZE)) {
            // The kernel counts its own overhead too.
            sent = self
                .netlink
                .allow_sending(self.out.len().saturating_mul(2))
                .and_then(|()| self.netlink.send(&self.out));
        }
        sent.map_err(|source| Error::System { intent: "send to the kernel", source })?;
        Ok(first)
    }

    fn receive(&mut self, wait: bool) -> Result<usize, Error> {
        self.netlink
            .receive(&mut self.buffer, wait)
            .map_err(|source| Error::System { intent: "receive from the kernel", source })
    }
}
