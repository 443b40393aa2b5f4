//! A route as text, exactly as the router has it, and its meaning.
//!
//! Neutron removes a route only if both strings equal the stored ones: `fd00:0::1` is not `fd00::1`. So the text is kept, and the
//! parsed values are compared.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

pub use crate::api::routegc::Route;

impl Route {
    /// From its two texts.
    #[must_use]
    pub fn new(destination: impl Into<String>, nexthop: impl Into<String>) -> Route {
        Route { destination: destination.into(), nexthop: nexthop.into() }
    }

    /// Its meaning; None if a text is no network or no address, or if the address families differ.
    #[must_use]
    pub fn meaning(&self) -> Option<Meaning> {
        let destination: IpNet = self.destination.parse().ok()?;
        let nexthop: IpAddr = self.nexthop.parse().ok()?;
        let same_family = destination.addr().is_ipv4() == nexthop.is_ipv4();
        same_family.then_some(Meaning { destination: destination.trunc(), nexthop })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, self.nexthop)
    }
}

/// The meaning of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Meaning {
    /// Without host bits.
    pub destination: IpNet,
    /// Of the same family.
    pub nexthop: IpAddr,
}

/// `1 route`, `2 routes`.
#[must_use]
pub fn so_many(count: usize) -> String {
    format!("{count} route{}", if count == 1 { "" } else { "s" })
}

/// Number of items that one line names. `--dry-run` shows all.
const NAMED: usize = 20;

/// Routes in one line: the first twenty.
#[must_use]
pub fn list<'a>(routes: impl IntoIterator<Item = &'a Route>) -> String {
    first_of(routes.into_iter().map(Route::to_string))
}

/// Items in one line: the first twenty.
#[must_use]
pub fn first_of(all: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    match all.split_at_checked(NAMED) {
        Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(", "), rest.len()),
        _ => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_spellings_have_the_same_meaning() {
        let (one, other) =
            (Route::new("fd00:0010::/64", "fd00::A"), Route::new("fd00:10:0::/64", "fd00:0:0::a"));
        assert_ne!(one, other);
        assert_eq!(one.meaning(), other.meaning());
        assert!(one.meaning().is_some());
    }

    #[test]
    fn a_long_list_is_cut() {
        let routes = vec![Route::new("10.244.1.0/24", "10.0.0.1"); 22];
        assert_eq!(list(routes.iter().take(2)), "10.244.1.0/24 via 10.0.0.1, 10.244.1.0/24 via 10.0.0.1");
        assert!(list(&routes).ends_with("via 10.0.0.1 and 2 more"));
    }

    #[test]
    fn the_count_has_the_right_plural() {
        assert_eq!([0, 1, 2].map(so_many), ["0 routes", "1 route", "2 routes"]);
    }

    #[test]
    fn an_unparseable_route_has_no_meaning() {
        for (destination, nexthop) in [
            ("", ""),
            ("10.244.1.0", "10.0.0.1"),
            ("10.244.1.0/24", "node-1"),
            ("fd00::/64", "10.0.0.1"),
            ("10.0.0.0/33", "10.0.0.1"),
        ] {
            assert_eq!(Route::new(destination, nexthop).meaning(), None, "{destination} {nexthop}");
        }
    }
}
