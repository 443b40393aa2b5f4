//! The task of a Job: its kind, and the IP address that it sets up or tears down.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// As what a Node takes part in NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It holds a floating IP and translates for the others.
    Gateway,
    /// It sends its default traffic into the private network.
    Client,
}

/// The types of Jobs. The words are label values, marker prefixes and Job name parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Makes the Node a gateway for a floating IP.
    Setup,
    /// Removes what setup made.
    Teardown,
    /// Gives the Node a default route into the private network.
    ClientSetup,
    /// Removes that route.
    ClientTeardown,
    /// Compares the Node with its gateway setup, and changes nothing. It is never pending.
    Verify,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Setup, Kind::Teardown, Kind::ClientSetup, Kind::ClientTeardown, Kind::Verify];

    /// Its name: `setup`, `teardown`, `client-setup`, `client-teardown`, `verify`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Setup => "setup",
            Kind::Teardown => "teardown",
            Kind::ClientSetup => "client-setup",
            Kind::ClientTeardown => "client-teardown",
            Kind::Verify => "verify",
        }
    }

    /// The role that it makes, ends or verifies.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Kind::Setup | Kind::Teardown | Kind::Verify => Role::Gateway,
            Kind::ClientSetup | Kind::ClientTeardown => Role::Client,
        }
    }

    /// Whether it makes the role.
    #[must_use]
    pub fn is_setup(self) -> bool {
        matches!(self, Kind::Setup | Kind::ClientSetup)
    }

    /// Whether it ends the role.
    #[must_use]
    pub fn is_teardown(self) -> bool {
        matches!(self, Kind::Teardown | Kind::ClientTeardown)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word).ok_or(())
    }
}

/// A role and the IP that it is for: the floating IP of a gateway, the network's first address for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// Gateway or client.
    pub role: Role,
    /// For which IP.
    pub ip: Ipv4Addr,
}

impl Part {
    /// The Job that makes it.
    #[must_use]
    pub fn setup(self) -> Task {
        let kind = match self.role {
            Role::Gateway => Kind::Setup,
            Role::Client => Kind::ClientSetup,
        };
        Task { kind, ip: self.ip }
    }

    /// The Job that ends it.
    #[must_use]
    pub fn teardown(self) -> Task {
        let kind = match self.role {
            Role::Gateway => Kind::Teardown,
            Role::Client => Kind::ClientTeardown,
        };
        Task { kind, ip: self.ip }
    }
}

/// A kind of Job and the IP that it is for. Its text, `setup:198.51.100.7`, is the marker in the pending annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// The kind of Job.
    pub kind: Kind,
    /// For which IP.
    pub ip: Ipv4Addr,
}

impl Task {
    /// The part that the task sets up, tears down or verifies.
    #[must_use]
    pub fn part(self) -> Part {
        Part { role: self.kind.role(), ip: self.ip }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.ip)
    }
}

impl Serialize for Task {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Task {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, ip) = text.split_once(':').ok_or(())?;
        Ok(Task { kind: kind.parse()?, ip: ip.parse().map_err(|_| ())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_reads_back() {
        for kind in Kind::ALL {
            let task = Task { kind, ip: Ipv4Addr::new(198, 51, 100, 7) };
            assert_eq!(task.to_string().parse(), Ok(task));
        }
        for garbage in ["", "setup", "setup:", "setup:2001:db8::1", "set:198.51.100.7", "setup:198.51.100.07"]
        {
            assert_eq!(garbage.parse::<Task>(), Err(()), "{garbage}");
        }
    }
}
