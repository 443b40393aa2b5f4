//! Creates the new link through the host's socket, where its master is, directly in the pod's namespace.

use common::netlink::Error;
use common::netlink::link::{Link, NewLink};
use common::netlink::socket::Socket;

use crate::names::TEMPORARY_NAME;

/// Creates `new` in the namespace of the descriptor `namespace`, which is that of `pod`, and returns the created link. After an error
/// nothing is left.
///
/// # Errors
/// EEXIST: the pod has a link with this name.
pub fn create(host: &mut Socket, pod: &mut Socket, namespace: i32, new: &NewLink) -> Result<Link, Error> {
    match host.request(&new.create(&new.name, namespace)).and_then(|()| there(pod, &new.name)) {
        Ok(link) => Ok(link),
        // Older kernels also compare the name with the host's links.
        Err(error) if error.is(&[libc::EEXIST]) && pod.link_by_name(&new.name)?.is_none() => {
            create_and_rename(host, pod, namespace, new)
        }
        Err(error) => {
            // After a lost reply the link may exist. The name was free when the pod was read.
            if !matches!(error, Error::Refused(_))
                && let Ok(Some(link)) = pod.link_by_name(&new.name)
            {
                let _ = pod.request(&Link::delete(link.index));
            }
            Err(error)
        }
    }
}

/// The same, through a temporary name that is free in both namespaces.
pub(super) fn create_and_rename(
    host: &mut Socket,
    pod: &mut Socket,
    namespace: i32,
    new: &NewLink,
) -> Result<Link, Error> {
    // Unique on the node, because a process creates one link at a time.
    let temporary = format!("{TEMPORARY_NAME}{:x}", std::process::id());
    host.request(&new.create(&temporary, namespace))?;
    let link = there(pod, &temporary)?;
    if let Err(error) = pod.request(&Link::rename(link.index, &new.name)) {
        // The failed renaming is the more important error.
        let _ = pod.request(&Link::delete(link.index));
        return Err(error);
    }
    Ok(Link { name: new.name.clone(), ..link })
}

/// The link that was created.
fn there(pod: &mut Socket, name: &str) -> Result<Link, Error> {
    // None: another process has already deleted it, so nothing is left.
    pod.link_by_name(name)?.ok_or(Error::NoReply)
}
