//! Descriptions of steps for error messages.

use common::netlink::link::name_of;

use crate::plan::Step;

/// "install the nf_tables table of net1".
#[must_use]
pub fn applying(step: &Step) -> String {
    match step {
        Step::Firewall(firewall) => format!("install the nf_tables table of {}", firewall.interface),
        Step::Sysctl { name, value, .. } => format!("set {} to {value}", name.join(".")),
        Step::CreateLink(new) => {
            format!("create the {} {} on link {} of the node", name_of(&new.kind), new.name, new.master)
        }
        Step::FrameFilter(firewall) => {
            format!("install the nf_tables table of the frames of {}", firewall.interface)
        }
        Step::AddAddress(net) => format!("add the address {net} to the new link"),
        Step::SetUp => "set the new link up".to_owned(),
        Step::AddRoute(route) => format!("add the route {route}"),
        Step::AppendRoute(route) => format!("append the route {route}"),
        Step::ReplaceRoute { before, after } => format!("replace the route {before} by {after}"),
        Step::DeleteRoute(route) => format!("delete the route {route}"),
        Step::AddRule(rule) => format!("add the rule {rule}"),
        Step::DeleteRule(rule) => format!("delete the rule {rule}"),
        Step::SetDown { name, .. } => format!("set the link {name} down"),
        Step::DeleteLink { name, .. } => format!("delete the link {name}"),
        Step::DeleteFirewall { interface, .. } => format!("delete the nf_tables table of {interface}"),
    }
}

/// "delete the nf_tables table of net1": the rollback.
pub(super) fn rolling_back(step: &Step) -> String {
    match step {
        Step::Firewall(firewall) => format!("delete the nf_tables table of {}", firewall.interface),
        Step::Sysctl { name, before, .. } => {
            format!("reset {} to {}", name.join("."), before.as_deref().unwrap_or("its previous value"))
        }
        Step::CreateLink(new) => format!("delete the link {}", new.name),
        Step::FrameFilter(firewall) => {
            format!("delete the nf_tables table of the frames of {}", firewall.interface)
        }
        Step::AddAddress(net) => format!("remove the address {net} from the new link"),
        Step::SetUp => "set the new link down".to_owned(),
        Step::AddRoute(route) | Step::AppendRoute(route) => format!("delete the route {route}"),
        Step::ReplaceRoute { before, after } => format!("replace the route {after} by {before}"),
        Step::DeleteRoute(route) => format!("add the route {route} again"),
        Step::AddRule(rule) => format!("delete the rule {rule}"),
        Step::DeleteRule(rule) => format!("add the rule {rule} again"),
        Step::SetDown { name, .. } => format!("set the link {name} up"),
        Step::DeleteLink { name, .. } => format!("recreate the link {name}"),
        Step::DeleteFirewall { interface, .. } => {
            format!("recreate the nf_tables table of {interface}")
        }
    }
}
