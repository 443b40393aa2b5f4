//! What an action changes.

use std::net::Ipv4Addr;

use super::{
    model::{PrivateNet, Route},
    project::Project,
};

/// One change of the project, made by one action.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The names of the fields say it.
pub enum Change {
    /// `add_route`
    AddRoute { network: u64, route: Route },
    /// `delete_route`
    DeleteRoute { network: u64, route: Route },
    /// `change_protection` of a network
    Protect { network: u64, delete: bool },
    /// `attach_to_network`
    Attach { server: u64, net: PrivateNet },
    /// `detach_from_network`
    Detach { server: u64, network: u64 },
    /// `change_alias_ips`
    Aliases { server: u64, network: u64, alias_ips: Vec<Ipv4Addr> },
    /// `poweron`, `poweroff`
    Power { server: u64, on: bool },
    /// `assign_floating_ip`
    Assign { floating_ip: u64, server: u64 },
    /// `unassign_floating_ip`
    Unassign { floating_ip: u64, server: u64 },
}

impl Change {
    /// As the action's `command` says it.
    pub fn command(&self) -> &'static str {
        match self {
            Self::AddRoute { .. } => "add_route",
            Self::DeleteRoute { .. } => "delete_route",
            Self::Protect { .. } => "change_protection",
            Self::Attach { .. } => "attach_to_network",
            Self::Detach { .. } => "detach_from_network",
            Self::Aliases { .. } => "change_alias_ips",
            Self::Power { on: true, .. } => "start_server",
            Self::Power { on: false, .. } => "stop_server",
            Self::Assign { .. } => "assign_floating_ip",
            Self::Unassign { .. } => "unassign_floating_ip",
        }
    }

    /// The kinds and IDs that are busy while it runs, and that the action lists.
    pub fn resources(&self) -> Vec<(&'static str, u64)> {
        match *self {
            Self::AddRoute { network, .. }
            | Self::DeleteRoute { network, .. }
            | Self::Protect { network, .. } => vec![("network", network)],
            Self::Attach { server, ref net } => vec![("server", server), ("network", net.network)],
            Self::Detach { server, network } | Self::Aliases { server, network, .. } => {
                vec![("server", server), ("network", network)]
            }
            Self::Power { server, .. } => vec![("server", server)],
            Self::Assign { floating_ip, server } | Self::Unassign { floating_ip, server } => {
                vec![("floating_ip", floating_ip), ("server", server)]
            }
        }
    }

    /// Makes the change. An error says what was no longer there: the project may have changed under the action.
    pub(super) fn apply(&self, project: &mut Project) -> Result<(), String> {
        match self {
            Self::AddRoute { network, route } => {
                let network = project.network_mut(*network)?;
                if network.routes.iter().any(|other| other.destination == route.destination) {
                    return Err("network route destination is taken".to_owned());
                }
                network.routes.push(*route);
            }
            Self::DeleteRoute { network, route } => {
                let network = project.network_mut(*network)?;
                let before = network.routes.len();
                network.routes.retain(|other| other != route);
                if network.routes.len() == before {
                    return Err("network route is gone".to_owned());
                }
            }
            Self::Protect { network, delete } => project.network_mut(*network)?.protected = *delete,
            Self::Attach { server, net } => {
                project.network_mut(net.network)?;
                let server = project.server_mut(*server)?;
                server.private_net.retain(|other| other.network != net.network);
                server.private_net.push(net.clone());
            }
            Self::Detach { server, network } => {
                project.server_mut(*server)?.private_net.retain(|net| net.network != *network);
            }
            Self::Aliases { server, network, alias_ips } => {
                let server = project.server_mut(*server)?;
                let net = server.private_net.iter_mut().find(|net| net.network == *network);
                net.ok_or("server is not in the network")?.alias_ips.clone_from(alias_ips);
            }
            Self::Power { server, on } => {
                let status = if *on { "running" } else { "off" };
                status.clone_into(&mut project.server_mut(*server)?.status);
            }
            Self::Assign { floating_ip, server } => {
                project.server_mut(*server)?;
                project.floating_ip_mut(*floating_ip)?.server = Some(*server);
            }
            Self::Unassign { floating_ip, .. } => project.floating_ip_mut(*floating_ip)?.server = None,
        }
        Ok(())
    }
}
