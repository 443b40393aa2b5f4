//! What shall be done, as plain data: decided from the configuration and what was observed, without asking anybody.

use crate::firewall::Firewall;
use crate::netlink::link::NewLink;
use crate::netlink::route::Route;
use crate::netlink::rule::Rule;

/// One act. Each carries what it needs to be undone, so that undoing asks nobody either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// In the pod: the attachment's nf_tables table, in one batch. Undone by deleting the table. First, because it is also
    /// the record of what the steps after it change.
    Firewall(Firewall),
    /// In the pod: `net.ipv4.conf.eth0.rp_filter` becomes `value`. Undone by writing `before`; none where the new link takes
    /// it away with itself.
    Sysctl {
        /// Dots between its parts, and the link's name as it is: slashes in `/proc/sys`.
        name: Vec<String>,
        /// To be written.
        value: String,
        /// What was there.
        before: Option<String>,
    },
    /// From the host: a link in the pod. Undone by deleting it, with its addresses and routes.
    CreateLink(NewLink),
    /// In the pod, on the new link: an address, without duplicate address detection.
    AddAddress(ipnet::IpNet),
    /// In the pod: the new link goes up.
    SetUp,
    /// In the pod. Undone by deleting it.
    AddRoute(Route),
    /// In the pod: `after` takes the place of `before`, which has the same destination, TOS and metric, in one act. Undone by
    /// the opposite act.
    ReplaceRoute {
        /// What is there.
        before: Route,
        /// What shall be there.
        after: Route,
    },
    /// In the pod. Undone by adding it again. One that is not there is no error.
    DeleteRoute(Route),
    /// In the pod. Undone by deleting it.
    AddRule(Rule),
    /// In the pod. Undone by adding it again. One that is not there is no error.
    DeleteRule(Rule),
    /// In the pod: a link of ours, with its addresses and routes. Cannot be undone. One that is not there is no error.
    DeleteLink {
        /// Its index.
        index: u32,
        /// Its name, for messages.
        name: String,
    },
    /// In the pod: the nf_tables table of an attachment, the last act of DEL. Cannot be undone. One that is not there is no
    /// error.
    DeleteFirewall {
        /// The attachment's interface.
        interface: String,
    },
}
