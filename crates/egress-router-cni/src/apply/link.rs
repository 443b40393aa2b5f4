//! The new link: made by the host's socket, where its master is, straight into the pod.

use crate::names::TEMPORARY_NAME;
use crate::netlink::Error;
use crate::netlink::link::{Link, NewLink};
use crate::netlink::socket::Socket;

/// Makes `new` in the namespace whose open descriptor is `namespace` and which `pod` is in, and tells what came of it. On an
/// error nothing is left.
///
/// # Errors
/// The kernel's: EEXIST where the pod has a link of that name.
pub fn create(host: &mut Socket, pod: &mut Socket, namespace: i32, new: &NewLink) -> Result<Link, Error> {
    match host.request(&new.create(&new.name, namespace)).and_then(|()| there(pod, &new.name)) {
        Ok(link) => Ok(link),
        // Older kernels compare the name with the host's links too.
        Err(error) if error.is(&[libc::EEXIST]) && pod.link_by_name(&new.name)?.is_none() => {
            create_and_rename(host, pod, namespace, new)
        }
        Err(error) => {
            // An answer that was lost does not tell whether the link is there. The name was free when the pod was read.
            if !matches!(error, Error::Refused(_))
                && let Ok(Some(link)) = pod.link_by_name(&new.name)
            {
                let _ = pod.request(&Link::delete(link.index));
            }
            Err(error)
        }
    }
}

/// The same, by way of a name that neither has.
pub(super) fn create_and_rename(
    host: &mut Socket,
    pod: &mut Socket,
    namespace: i32,
    new: &NewLink,
) -> Result<Link, Error> {
    // One of a kind on the node: a process makes one link at a time.
    let temporary = format!("{TEMPORARY_NAME}{:x}", std::process::id());
    host.request(&new.create(&temporary, namespace))?;
    let link = there(pod, &temporary)?;
    if let Err(error) = pod.request(&Link::rename(link.index, &new.name)) {
        // That the renaming failed says more than that this did.
        let _ = pod.request(&Link::delete(link.index));
        return Err(error);
    }
    Ok(Link { name: new.name.clone(), ..link })
}

/// The link that was just made.
fn there(pod: &mut Socket, name: &str) -> Result<Link, Error> {
    // None: somebody else deleted it at once, so nothing is left.
    pod.link_by_name(name)?.ok_or(Error::NoReply)
}
