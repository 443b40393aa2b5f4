//! Executes steps with the kernel.

use std::io;

use common::netlink::Error;
use common::netlink::address;
use common::netlink::link::{Link, NewLink};
use common::netlink::message::{FLAG_ACK, Message, Refusal};
use common::netlink::route::Route;
use common::netlink::socket::{Socket, Sockets};

use super::advertised::{self, written};
use super::description::{applying, rolling_back};
use super::{Kernel, link, sysctl};
use crate::cni::{self, ToCni};
use crate::names;
use crate::nftables::{self, Description, Family};
use crate::plan::Step;
use crate::plan::route::MAIN;
use crate::plan::sysctl::is_ipv6_forwarding;
use crate::sys::Namespace;

/// Requests in one send. The refusals of all of them fit into a socket's receive buffer, and few attachments have more.
const TOGETHER: usize = 64;

/// The kernel, in the pod's namespace. The calling thread must be in it, because sysctls are those of the thread's namespace.
#[derive(Debug)]
pub struct Linux<'a> {
    pod: &'a mut Sockets,
    host: Option<(&'a mut Socket, &'a Namespace)>,
    link: Option<Link>,
    /// Whether [`Step::FrameFilter`] was installed.
    filters_frames: bool,
    /// The kernel's description of the installed tables; none if it must be read.
    firewall: Option<Description>,
    /// Steps that changed nothing, so that their rollback adds nothing.
    skipped: Vec<Step>,
    /// Routes that were deleted and not added again, in their original order.
    deleted: Vec<Route>,
    /// All routes before the first was deleted.
    order: Option<Vec<Route>>,
}

impl<'a> Linux<'a> {
    /// For steps in the namespace in which `pod` was opened.
    #[must_use]
    pub fn new(pod: &'a mut Sockets) -> Self {
        Self {
            pod,
            host: None,
            link: None,
            filters_frames: false,
            firewall: Some(Description::default()),
            skipped: Vec::new(),
            deleted: Vec::new(),
            order: None,
        }
    }

    /// Adds what creating links needs: `host`, a socket of the node, and `namespace`, the pod's.
    #[must_use]
    pub fn making_links(mut self, host: &'a mut Socket, namespace: &'a Namespace) -> Self {
        self.host = Some((host, namespace));
        self
    }

    /// The link that [`Step::CreateLink`] created, as it was read afterwards.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Whether the kernel has the hook that [`Step::FrameFilter`] needs. False without such a step.
    #[must_use]
    pub fn filters_frames(&self) -> bool {
        self.filters_frames
    }

    /// The fingerprint of the tables that were installed for the attachment `interface`.
    ///
    /// # Errors
    /// Code 100, with the kernel's message.
    pub fn fingerprint(&mut self, interface: &str) -> Result<Option<String>, cni::Error> {
        match self.firewall.take() {
            Some(description) => Ok(Some(description.fingerprint())),
            None => nftables::fingerprint(&mut self.pod.netfilter, &names::table(interface)),
        }
    }

    fn describe(&mut self, installed: Option<Vec<nftables::Part>>) {
        match (&mut self.firewall, installed) {
            (Some(description), Some(parts)) => description.extend(parts),
            _ => self.firewall = None,
        }
    }

    /// Index of the new link.
    fn new_link(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.index)
    }

    fn create(&mut self, new: &NewLink) -> Result<(), Error> {
        let Some((host, namespace)) = &mut self.host else {
            return Err(system("create a link in the namespace of its master", libc::ENODEV));
        };
        self.link = Some(link::create(host, &mut self.pod.route, namespace.descriptor(), new)?);
        Ok(())
    }

    /// The request of a step that may be batched with others: about the new link, routes or rules. The pod's default route is not batched: it
    /// is replaced after all other steps have succeeded.
    fn asked(&self, step: &Step) -> Option<Message> {
        let (new, index) = (self.new_link(), self.new_index());
        Some(match step {
            Step::Sysctl { name, value, before: None } => {
                let link = self.link.as_ref()?;
                Link::ipv4_setting(link.index, setting_of(name, &link.name)?, value.parse().ok()?)
            }
            Step::AddAddress(net) => address::add(index, *net, libc::RT_SCOPE_UNIVERSE),
            Step::SetUp => Link::set_up(index, true),
            Step::AddRoute(route) if route.table != MAIN || route.destination.prefix_len() > 0 => {
                route.add(new)
            }
            Step::AddRule(rule) => rule.add(),
            _ => return None,
        })
    }

    /// The index of the new link. Before it is created, 0, which the kernel refuses.
    fn new_index(&self) -> u32 {
        self.new_link().unwrap_or(0)
    }

    fn request(&mut self, message: &Message) -> Result<(), Error> {
        self.pod.route.request(message)
    }

    /// Deletes an object. A missing object is not an error.
    fn delete(&mut self, message: &Message) -> Result<bool, Error> {
        match self.request(message) {
            Ok(()) => Ok(true),
            Err(error) if error.is(&[libc::ESRCH, libc::ENOENT, libc::ENODEV]) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, name: &[String], value: &str, before: Option<&str>) -> Result<(), Error> {
        if is_ipv6_forwarding(name) {
            advertised::write(&mut self.pod.route, name, value, before)
        } else {
            sysctl::write(name, value).map_err(written)
        }
    }

    fn remember_skipped(&mut self, step: &Step, there: bool) {
        if !there {
            self.skipped.push(step.clone());
        }
    }

    /// Deletes a route, and records its position for [`Self::restore`].
    fn delete_route(&mut self, route: &Route, new: Option<u32>) -> Result<bool, Error> {
        if self.order.is_none() {
            self.order = Some(self.pod.route.routes(None)?);
        }
        let there = self.delete(&route.delete(new))?;
        if there {
            self.deleted.push(route.clone());
        }
        Ok(there)
    }

    /// Rolls back a step that may or may not have been executed.
    fn rollback_if_done(&mut self, step: &Step) {
        let new = self.new_link();
        // If it was not executed, the kernel refuses.
        let _ = match step {
            // If it still exists, it would be appended a second time.
            Step::DeleteRoute(route) => self.request(&route.add(new)),
            step => return drop(self.rollback(step)),
        };
    }

    /// Adds a deleted route at its original position. The order of routes with the same destination, TOS and metric decides, so those after
    /// it are appended again.
    fn restore(&mut self, route: &Route) -> Result<(), Error> {
        let earlier = match self.deleted.iter().rposition(|deleted| deleted == route) {
            Some(place) => {
                self.deleted.truncate(place);
                self.deleted.as_slice()
            }
            None => &[],
        };
        match self.pod.route.request(&route.add(None)) {
            Err(error) if error.is(&[libc::EEXIST]) => {}
            reply => return reply,
        }
        let order = self.order.as_deref().unwrap_or_default();
        let place = order.iter().position(|there| there == route).unwrap_or(order.len());
        let behind: Vec<_> = order
            .iter()
            .skip(place.saturating_add(1))
            .filter(|rival| rival.rivals(route) && !earlier.contains(rival))
            .cloned()
            .collect();
        self.request(&route.append(None))?;
        for rival in behind {
            if self.delete(&rival.delete(None))? {
                self.request(&rival.append(None))?;
            }
        }
        Ok(())
    }
}

impl Kernel for Linux<'_> {
    fn apply(&mut self, step: &Step) -> Result<(), cni::Error> {
        let new = self.new_link();
        let reply = match step {
            Step::Firewall(firewall) => {
                let installed = nftables::install(&mut self.pod.netfilter, &firewall.ruleset())?;
                self.describe(installed);
                return Ok(());
            }
            Step::FrameFilter(firewall) => {
                let installed = match firewall.frames() {
                    Some(frames) => nftables::install_if_supported(&mut self.pod.netfilter, &frames)?,
                    None => None,
                };
                self.filters_frames = installed.is_some();
                self.remember_skipped(step, installed.is_some());
                if let Some(parts) = installed {
                    self.describe(parts);
                }
                return Ok(());
            }
            Step::DeleteFirewall { interface, frames } => {
                let table = names::table(interface);
                if *frames {
                    nftables::delete(&mut self.pod.netfilter, Family::Netdev, &table)?;
                }
                return nftables::delete(&mut self.pod.netfilter, Family::Inet, &table);
            }
            Step::Sysctl { name, value, before } => self.write(name, value, before.as_deref()),
            Step::CreateLink(link) => self.create(link),
            Step::AddAddress(net) => {
                self.request(&address::add(self.new_index(), *net, libc::RT_SCOPE_UNIVERSE))
            }
            Step::SetUp => self.request(&Link::set_up(self.new_index(), true)),
            Step::AddRoute(route) => self.request(&route.add(new)),
            Step::AppendRoute(route) => self.request(&route.append(new)),
            Step::ReplaceRoute { after, .. } => self.request(&after.replace(new)),
            Step::AddRule(rule) => self.request(&rule.add()),
            Step::SetDown { index, .. } => self.delete(&Link::set_up(*index, false)).map(|_| ()),
            Step::DeleteLink { index, .. } => self.delete(&Link::delete(*index)).map(|_| ()),
            Step::DeleteRoute(route) => {
                self.delete_route(route, new).map(|there| self.remember_skipped(step, there))
            }
            Step::DeleteRule(rule) => {
                self.delete(&rule.delete()).map(|there| self.remember_skipped(step, there))
            }
        };
        reply.map_err(|error| {
            // Without the kernel's reply, it may have been executed.
            if !matches!(error, Error::Refused(_)) {
                self.rollback_if_done(step);
            }
            failed(step, &error)
        })
    }

    fn apply_first(&mut self, steps: &[Step]) -> Vec<Result<(), cni::Error>> {
        let mut requests: Vec<Message> =
            steps.iter().map_while(|step| self.asked(step)).take(TOGETHER).collect();
        let steps = steps.get(..requests.len().max(1)).unwrap_or_default();
        // After the last acknowledgement, all requests are processed.
        match requests.pop() {
            Some(last) if !requests.is_empty() => requests.push(last.with_flags(FLAG_ACK)),
            _ => return steps.iter().map(|step| self.apply(step)).collect(),
        }
        match self.pod.route.transaction(&requests) {
            Ok(replies) => {
                let result = |(step, refusal): (&Step, Option<Refusal>)| match refusal {
                    Some(refusal) => Err(failed(step, &Error::Refused(refusal))),
                    None => Ok(()),
                };
                steps.iter().zip(replies).map(result).collect()
            }
            Err(error) => {
                // Without the kernel's replies, any of them may have been executed.
                steps.iter().rev().for_each(|step| self.rollback_if_done(step));
                steps.first().map(|step| Err(failed(step, &error))).into_iter().collect()
            }
        }
    }

    fn rollback(&mut self, step: &Step) -> Result<(), cni::Error> {
        if let Some(place) = self.skipped.iter().rposition(|skipped| skipped == step) {
            self.skipped.remove(place);
            return Ok(());
        }
        let new = self.new_link();
        let reply = match step {
            Step::Firewall(firewall) => {
                let table = names::table(&firewall.interface);
                return nftables::delete(&mut self.pod.netfilter, Family::Inet, &table);
            }
            Step::FrameFilter(firewall) => {
                let table = names::table(&firewall.interface);
                return nftables::delete(&mut self.pod.netfilter, Family::Netdev, &table);
            }
            Step::Sysctl { name, value, before: Some(before) } => self.write(name, before, Some(value)),
            Step::Sysctl { before: None, .. } => Ok(()),
            Step::CreateLink(_) => match self.link.take() {
                Some(link) => self.delete(&Link::delete(link.index)).map(|_| ()),
                None => Ok(()),
            },
            Step::AddAddress(net) => match self.request(&address::delete(self.new_index(), *net)) {
                // IPv6 forgets its addresses when a link goes down.
                Err(error) if error.is(&[libc::EADDRNOTAVAIL]) => Ok(()),
                reply => reply,
            },
            Step::SetUp => self.request(&Link::set_up(self.new_index(), false)),
            Step::AddRoute(route) | Step::AppendRoute(route) => self.request(&route.delete(new)),
            Step::ReplaceRoute { before, .. } => self.request(&before.replace(new)),
            Step::DeleteRoute(route) => self.restore(route),
            Step::AddRule(rule) => self.request(&rule.delete()),
            Step::DeleteRule(rule) => self.request(&rule.add()),
            Step::SetDown { .. } | Step::DeleteLink { .. } | Step::DeleteFirewall { .. } => {
                return Err(cni::Error::new(cni::Code::Kernel, format!("cannot {}", rolling_back(step))));
            }
        };
        reply.map_err(|error| error.to_cni(format!("cannot {}", rolling_back(step))))
    }
}

fn failed(step: &Step, error: &Error) -> cni::Error {
    error.to_cni(format!("cannot {}", applying(step)))
}

/// The number of an IPv4 setting of `link` that netlink can write without other effects, if `name` is one.
fn setting_of(name: &[String], link: &str) -> Option<u16> {
    match name {
        [net, family, conf, of, key] if net == "net" && family == "ipv4" && conf == "conf" && of == link => {
            Link::ipv4_setting_named(key)
        }
        _ => None,
    }
}

fn system(intent: &'static str, errno: i32) -> Error {
    Error::System { intent, source: io::Error::from_raw_os_error(errno) }
}
