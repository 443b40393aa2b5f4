//! Advertised IPv6 default routes. When IPv6 forwarding is enabled on a device, the kernel removes them
//! (linux/net/ipv6/addrconf.c, rt6_purge_dflt_routers). This module adds them again as ordinary routes.

use std::io;

use common::netlink::Error;
use common::netlink::route::Route;
use common::netlink::socket::Socket;

use super::sysctl;

/// Writes `value` to an IPv6 forwarding sysctl, and adds the routes that the kernel removed because of it.
///
/// # Errors
/// The write or an added route failed; the sysctl has the value `before` again.
pub fn write(route: &mut Socket, name: &[String], value: &str, before: Option<&str>) -> Result<(), Error> {
    let kept = advertised(route)?;
    sysctl::write(name, value).map_err(written)?;
    if kept.is_empty() {
        return Ok(());
    }
    let restored = restore(route, &kept);
    if let (Err(_), Some(before)) = (&restored, before) {
        // The lost route is the more important error.
        let _ = sysctl::write(name, before);
    }
    restored
}

/// The error of a failed write of a sysctl.
pub fn written(source: io::Error) -> Error {
    Error::System { intent: "write the file", source }
}

fn advertised(route: &mut Socket) -> Result<Vec<Route>, Error> {
    let mut routes = route.routes(None)?;
    routes.retain(Route::is_advertised_default);
    Ok(routes)
}

fn restore(route: &mut Socket, kept: &[Route]) -> Result<(), Error> {
    let there = advertised(route)?;
    for lost in kept
        .iter()
        .filter(|kept| !there.iter().any(|there| there.rivals(kept) && there.gateway == kept.gateway))
    {
        match route.request(&lost.append(None)) {
            // The router has advertised it again.
            Err(error) if error.is(&[libc::EEXIST]) => {}
            reply => reply?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use common::netlink::socket::Protocol;

    use super::*;
    use crate::sys::isolated::{advertise_router, ip, isolated};

    fn name(link: &str) -> Vec<String> {
        ["net", "ipv6", "conf", link, "forwarding"].map(str::to_owned).to_vec()
    }

    /// Whether it has an RTA_EXPIRES.
    fn expires(route: &Route) -> bool {
        route.rest.iter().any(|(kind, _)| *kind == 23)
    }

    /// The route without its origin and expiry.
    fn seen(routes: &[Route]) -> Vec<String> {
        routes.iter().map(|route| format!("{route} {} {}", route.protocol, expires(route))).collect()
    }

    #[test]
    fn an_advertised_default_route_is_kept() {
        isolated(|| {
            for line in ["link set lo up", "link add eth0 type veth peer name eth1"] {
                ip(line);
            }
            for (key, value) in [
                ("eth0/accept_dad", "0"),
                ("eth1/accept_dad", "0"),
                ("eth0/accept_ra_from_local", "1"),
                ("eth0/accept_ra", "1"),
            ] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{key}"), value).unwrap();
            }
            for line in ["link set eth0 up", "link set eth1 up"] {
                ip(line);
            }
            let mut socket = Socket::open(Protocol::Route).unwrap();
            let router = socket.link_by_name("eth1").unwrap().unwrap().index;
            let end = Instant::now() + Duration::from_secs(300);
            while advertised(&mut socket).unwrap().is_empty() {
                assert!(Instant::now() < end, "the kernel took no advertisement");
                // Sending fails until the link is up and has its address.
                let _ = advertise_router(router);
                std::thread::yield_now();
            }
            let before = advertised(&mut socket).unwrap();
            assert!(expires(&before[0]));
            // The control: the sysctl alone removes it.
            write(&mut socket, &name("all"), "1", Some("0")).unwrap();
            assert_eq!(seen(&advertised(&mut socket).unwrap()), seen(&before));
            write(&mut socket, &name("all"), "0", Some("1")).unwrap();
            assert_eq!(seen(&advertised(&mut socket).unwrap()), seen(&before));
            let old = &before[0];
            let new = Route { rest: Vec::new(), protocol: 99, ..old.clone() };
            socket.request(&new.replace(None)).unwrap();
            socket.request(&old.replace(None)).unwrap();
            assert_eq!(seen(&advertised(&mut socket).unwrap()), seen(&before));
        });
    }
}
