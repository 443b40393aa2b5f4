//! STATUS: whether an ADD could succeed.

use std::time::{Duration, Instant};

use crate::aws;
use crate::cni::{Code, Error};
use crate::config::interface::{InterfaceType, Kind};
use crate::config::network::Source;
use crate::netlink::nftables;
use crate::netlink::socket::{Protocol, Socket, Sockets};

use super::{Context, first, resolve};

/// A runtime asks every few seconds: a metadata service that is there answers at once.
const METADATA: Duration = Duration::from_secs(2);

/// The kernel has nf_tables and the configured kind of link, the kubeconfig can be read if it is needed, and the metadata
/// service answers if it is needed.
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
    if matches!(context.network.source, Source::IpConfig(_)) {
        errors.extend(kubeconfig(context).err());
    }
    if interface_type == InterfaceType::AwsElasticIp {
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

fn kubeconfig(context: &Context<'_>) -> Result<(), Error> {
    let path = &context.settings.kubeconfig;
    std::fs::File::open(path).map(drop).map_err(|error| {
        let message = format!("ipConfig is used, and the kubeconfig {} cannot be read", path.display());
        Error::new(Code::NotAvailable, message).details(error.to_string())
    })
}
