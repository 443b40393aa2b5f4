//! DEL: whatever is left of an attachment ends, and the pod, should it live on, is as it was. Repeated, it does nothing.

use std::time::Instant;

use crate::apply::{self, Linux};
use crate::aws;
use crate::cni::Error;
use crate::config::settings::Settings;
use crate::names;
use crate::observe::Pod;
use crate::plan::note::Notes;
use crate::plan::{self, Identity, Step};
use crate::record::{Attachment, ElasticIp, Folder, attachment, elastic_ip};
use crate::sys::Namespace;

use super::scene::{self, Scene};
use super::{Context, first};

/// Ends it: in the pod, at EC2, and its records. Goes on where something fails, so that as little as possible stays.
///
/// # Errors
/// The first failure, the others in its details. Something is left then, and the runtime comes again.
pub fn del(context: &Context<'_>) -> Result<(), Error> {
    let identity = context.identity();
    let mut errors = Vec::new();
    match scene::find(context.call) {
        Ok(Some(namespace)) => {
            let path = context.call.netns.clone().unwrap_or_default();
            errors.extend(in_pod(context, &identity, namespace, &path).err());
        }
        Ok(None) => {}
        Err(error) => errors.push(error),
    }
    for interface in candidates(context) {
        errors.extend(forget(context.settings, &identity.container_id, &interface, errors.is_empty()));
    }
    first(errors)
}

/// What ADD may have called the interface. DEL need not know whether it was chained: its configuration may have no
/// `prevResult`.
fn candidates(context: &Context<'_>) -> Vec<String> {
    let chained = context.network.chained_name.clone().unwrap_or_else(|| names::CHAINED_INTERFACE.to_owned());
    vec![context.call.ifname.clone(), chained]
}

fn in_pod(
    context: &Context<'_>,
    identity: &Identity,
    namespace: Namespace,
    path: &std::path::Path,
) -> Result<(), Error> {
    let mut scene = Scene::open(namespace, path)?;
    let ended = end(context, identity, &mut scene);
    let left = scene.leave();
    ended.and(left)
}

fn end(context: &Context<'_>, identity: &Identity, scene: &mut Scene) -> Result<(), Error> {
    let folder = attachment::folder(&context.settings.run_directory);
    let mut errors = Vec::new();
    for interface in candidates(context) {
        let pod = scene.pod()?;
        let record = folder.read::<Attachment>(&identity.container_id, &interface).unwrap_or_else(|error| {
            context.log.error(format_args!("{error}"));
            None
        });
        let steps = steps(context, identity, &pod, &interface, record.as_ref());
        if !steps.is_empty() {
            context.log.verbose(format_args!("{interface}: {} steps end it", steps.len()));
            errors.extend(apply::run_all(&steps, &mut Linux::new(&mut scene.sockets)).err());
        }
    }
    first(errors)
}

/// By the table's record; where the table was flushed, by the file's; without either, the link alone, if `prevResult` proves
/// that it is ours.
fn steps(
    context: &Context<'_>,
    identity: &Identity,
    pod: &Pod,
    interface: &str,
    record: Option<&Attachment>,
) -> Vec<Step> {
    if let Some(lines) = pod.attachments.get(interface) {
        return match Notes::parse(lines) {
            Some(notes) if notes.belongs_to(identity) => plan::del::del(pod, interface, &notes),
            Some(_) => Vec::new(),
            // A table of ours without a readable record: its name is all that is known.
            None if interface == identity.ifname => plan::del::del(pod, interface, &Notes::default()),
            None => Vec::new(),
        };
    }
    if let Some(notes) = record.and_then(|record| Notes::parse(&record.notes)) {
        return plan::del::del(pod, interface, &notes);
    }
    let listed = context.network.previous.iter().flat_map(|previous| &previous.interfaces).find(|listed| {
        let sandbox = listed.sandbox.as_deref().is_some_and(|sandbox| !sandbox.is_empty());
        listed.name == interface && sandbox
    });
    let link = pod.links.iter().find(|link| link.name == interface && plan::del::ours(link));
    match (listed, link) {
        (Some(listed), Some(link)) if mac(link) == listed.mac.as_deref().map(str::to_ascii_lowercase) => {
            vec![Step::DeleteLink { index: link.index, name: link.name.clone() }]
        }
        _ => Vec::new(),
    }
}

fn mac(link: &crate::netlink::link::Link) -> Option<String> {
    link.mac.map(aws::metadata::mac_text)
}

/// Gives an attachment's Elastic IP back, and removes its records; that of the attachment only once nothing is left in the
/// pod.
pub(super) fn forget(settings: &Settings, container_id: &str, interface: &str, ended: bool) -> Vec<Error> {
    let mut errors = Vec::new();
    let elastic_ips = elastic_ip::folder(&settings.state_directory);
    errors.extend(release(settings, &elastic_ips, container_id, interface).err());
    if ended {
        errors.extend(attachment::folder(&settings.run_directory).remove(container_id, interface).err());
    }
    errors
}

/// Gives an Elastic IP back, if there is one.
pub(super) fn release(
    settings: &Settings,
    folder: &Folder,
    container_id: &str,
    interface: &str,
) -> Result<(), Error> {
    let Some(record) = folder.read::<ElasticIp>(container_id, interface)? else { return Ok(()) };
    aws::release(&record.state, settings, Instant::now() + aws::PATIENCE)?;
    folder.remove(container_id, interface)
}
