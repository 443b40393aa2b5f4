//! Descriptions of steps for error messages.

use std::fmt;

use common::netlink::link::name_of;

use crate::plan::Step;

/// "install the nf_tables table of net1".
pub struct Applying<'a>(pub &'a Step);

/// "delete the nf_tables table of net1": the rollback.
pub struct RollingBack<'a>(pub &'a Step);

impl fmt::Display for Applying<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Step::Firewall(firewall) => write!(f, "install the nf_tables table of {}", firewall.interface),
            Step::Sysctl { name, value, .. } => write!(f, "set {} to {value}", name.join(".")),
            Step::CreateLink(new) => {
                write!(f, "create the {} {} on link {} of the node", name_of(&new.kind), new.name, new.master)
            }
            Step::FrameFilter(firewall) => {
                write!(f, "install the nf_tables table of the frames of {}", firewall.interface)
            }
            Step::AddAddress(net) => write!(f, "add the address {net} to the new link"),
            Step::SetUp => write!(f, "set the new link up"),
            Step::AddRoute(route) => write!(f, "add the route {route}"),
            Step::AppendRoute(route) => write!(f, "append the route {route}"),
            Step::ReplaceRoute { before, after } => write!(f, "replace the route {before} by {after}"),
            Step::DeleteRoute(route) => write!(f, "delete the route {route}"),
            Step::AddRule(rule) => write!(f, "add the rule {rule}"),
            Step::DeleteRule(rule) => write!(f, "delete the rule {rule}"),
            Step::SetDown { name, .. } => write!(f, "set the link {name} down"),
            Step::DeleteLink { name, .. } => write!(f, "delete the link {name}"),
            Step::DeleteFirewall { interface, .. } => write!(f, "delete the nf_tables table of {interface}"),
        }
    }
}

impl fmt::Display for RollingBack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Step::Firewall(firewall) => write!(f, "delete the nf_tables table of {}", firewall.interface),
            Step::Sysctl { name, before, .. } => {
                write!(f, "reset {} to {}", name.join("."), before.as_deref().unwrap_or("its previous value"))
            }
            Step::CreateLink(new) => write!(f, "delete the link {}", new.name),
            Step::FrameFilter(firewall) => {
                write!(f, "delete the nf_tables table of the frames of {}", firewall.interface)
            }
            Step::AddAddress(net) => write!(f, "remove the address {net} from the new link"),
            Step::SetUp => write!(f, "set the new link down"),
            Step::AddRoute(route) | Step::AppendRoute(route) => write!(f, "delete the route {route}"),
            Step::ReplaceRoute { before, after } => write!(f, "replace the route {after} by {before}"),
            Step::DeleteRoute(route) => write!(f, "add the route {route} again"),
            Step::AddRule(rule) => write!(f, "delete the rule {rule}"),
            Step::DeleteRule(rule) => write!(f, "add the rule {rule} again"),
            Step::SetDown { name, .. } => write!(f, "set the link {name} up"),
            Step::DeleteLink { name, .. } => write!(f, "recreate the link {name}"),
            Step::DeleteFirewall { interface, .. } => {
                write!(f, "recreate the nf_tables table of {interface}")
            }
        }
    }
}
