//! GC: what is recorded of this network and not among the attachments that the runtime knows, ends.

use std::collections::{BTreeMap, HashSet};

use crate::apply::{self, Linux};
use crate::cni::{Code, Error};
use crate::config::network;
use crate::plan::{self, Identity, note::Notes};
use crate::record::{Attachment, ElasticIp, Owned as _, Place, attachment, elastic_ip};

use super::scene::Scene;
use super::{Context, del, first};

/// Ends them all, and goes on where one cannot be ended.
///
/// # Errors
/// Code 7 where the runtime does not say what is valid; the first failure, the others in its details.
pub fn gc(context: &Context<'_>) -> Result<(), Error> {
    let valid: HashSet<&network::Attachment> = match &context.network.valid_attachments {
        Some(valid) => valid.iter().collect(),
        None => {
            let message = "cni.dev/valid-attachments is missing: without it, nothing is known to be stale";
            return Err(Error::new(Code::InvalidConfig, message));
        }
    };
    let mut errors = Vec::new();
    let mut stale: BTreeMap<(String, String), (Identity, Option<Place>, Vec<String>)> = BTreeMap::new();
    let (attachments, unread) = attachment::folder(&context.settings.run_directory).all::<Attachment>();
    errors.extend(unread);
    for record in attachments {
        let key = (record.container_id().to_owned(), record.interface().to_owned());
        stale.insert(key, (record.identity(), Some(record.place.clone()), record.notes));
    }
    let (elastic_ips, unread) = elastic_ip::folder(&context.settings.state_directory).all::<ElasticIp>();
    errors.extend(unread);
    for record in elastic_ips {
        let identity = Identity {
            container_id: record.container_id.clone(),
            ifname: record.ifname.clone(),
            network: record.network.clone(),
        };
        let key = (record.container_id, record.interface);
        stale.entry(key).or_insert_with(|| (identity, Some(record.place), Vec::new()));
    }
    stale.retain(|_, (identity, ..)| {
        let attachment = network::Attachment {
            container_id: identity.container_id.clone(),
            ifname: identity.ifname.clone(),
        };
        identity.network == context.network.name && !valid.contains(&attachment)
    });
    for ((container_id, interface), (identity, place, notes)) in stale {
        context
            .log
            .verbose(format_args!("{container_id} {interface}: the runtime does not know it, it ends"));
        let ended = match place.and_then(|place| place.open().map(|namespace| (namespace, place))) {
            Some((namespace, place)) => Scene::open(namespace, &place.path).and_then(|mut scene| {
                let ended = end(&mut scene, &identity, &interface, &notes);
                ended.and(scene.leave())
            }),
            None => Ok(()),
        };
        let whole = ended.is_ok();
        errors.extend(ended.err());
        errors.extend(del::forget(context.settings, &container_id, &interface, whole));
    }
    first(errors)
}

fn end(scene: &mut Scene, identity: &Identity, interface: &str, lines: &[String]) -> Result<(), Error> {
    let pod = scene.pod()?;
    let lines = pod.attachments.get(interface).map_or(lines, Vec::as_slice);
    let Some(notes) = Notes::parse(lines).filter(|notes| notes.belongs_to(identity)) else { return Ok(()) };
    let steps = plan::del::del(&pod, interface, &notes);
    apply::run_all(&steps, &mut Linux::new(&mut scene.sockets))
}
