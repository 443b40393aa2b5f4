//! STATUS: whether an ADD could succeed.

use std::time::{Duration, Instant};

use crate::aws;
use crate::cni::{Code, Error};
use crate::config::interface::{InterfaceType, Kind};
use crate::config::network::Source;
use crate::netlink::nftables;
use crate::netlink::socket::{Protocol, Socket, Sockets};
use crate::record::{attachment, elastic_ip};

use super::{Context, first, resolve};

/// A runtime asks every few seconds: a metadata service that is there answers at once.
const METADATA: Duration = Duration::from_secs(2);

/// The kernel has nf_tables and the configured kind of link, what is recorded can be written, the master is there as far as the
/// configuration tells which, the kubeconfig can be read if it is needed, and the metadata service answers if it is needed.
///
/// # Errors
/// Code 50 with everything that is missing.
pub fn status(context: &Context<'_>) -> Result<(), Error> {
    let (interface_type, kind) = resolve::interface(context)?;
    let mut errors = Vec::new();
    match Sockets::open() {
        Ok(mut sockets) => {
            errors.extend(nftables::generation(&mut sockets.netfilter).err());
            errors.extend(knows(&mut sockets.route, kind).err());
        }
        // A kernel without nf_tables may have no such sockets at all.
        Err(error) => {
            errors.push(error.to_cni("the kernel has no nf_tables, or netlink is not allowed"));
            if let Ok(mut route) = Socket::open(Protocol::Route) {
                errors.extend(knows(&mut route, kind).err());
            }
        }
    }
    errors.extend(attachment::folder(&context.settings.run_directory).ready().err());
    errors.extend(master(context, interface_type, kind).err());
    if matches!(context.network.source, Source::IpConfig(_)) {
        errors.extend(kubeconfig(context).err());
    }
    if interface_type == InterfaceType::AwsElasticIp {
        errors.extend(elastic_ip::folder(&context.settings.state_directory).ready().err());
        errors.extend(aws::ready(context.settings, Instant::now() + METADATA).err());
    }
    first(errors).map_err(|error| Error { code: Code::NotAvailable, ..error })
}

fn knows(socket: &mut Socket, kind: Kind) -> Result<(), Error> {
    let name = crate::netlink::link::name_of(&kind);
    match socket.knows(name) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            Code::NotAvailable,
            format!("the kernel has no {name}: load the module {name}, or use another interfaceType"),
        )),
        Err(error) => Err(error.to_cni(format!("cannot ask the kernel for {name}"))),
    }
}

/// What the pods' interfaces are made on: the one that is named, and what is inferred where all pods have the same addresses.
fn master(context: &Context<'_>, interface_type: InterfaceType, kind: Kind) -> Result<(), Error> {
    let mut socket =
        Socket::open(Protocol::Route).map_err(|error| error.to_cni("cannot speak with the kernel"))?;
    match (interface_type, &context.network.source) {
        (InterfaceType::AwsElasticIp, _) => resolve::master_mac(context, &mut socket).map(drop),
        (_, Source::Ip(ip)) => resolve::master(context, &mut socket, &mut ip.clone(), kind).map(drop),
        _ => resolve::named_master(context, &mut socket).map(drop),
    }
}

fn kubeconfig(context: &Context<'_>) -> Result<(), Error> {
    let path = &context.settings.kubeconfig;
    std::fs::File::open(path).map(drop).map_err(|error| {
        let message = format!("ipConfig is used, and the kubeconfig {} cannot be read", path.display());
        Error::new(Code::NotAvailable, message).details(error.to_string())
    })
}
