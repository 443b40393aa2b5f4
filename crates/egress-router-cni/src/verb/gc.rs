//! GC: what is recorded of this network and not among the attachments that the runtime knows, ends.

use std::collections::{BTreeMap, HashSet};

use crate::apply::{self, Linux};
use crate::cni::{Code, Error};
use crate::config::network;
use crate::plan::{self, Identity, note::Notes};
use crate::record::{Attachment, ElasticIp, Owned as _, Place, attachment, elastic_ip};
use crate::sys;

use super::scene::{Node, Scene};
use super::{Context, del, first};

/// Ends them all, and goes on where one cannot be ended.
///
/// # Errors
/// Code 7 where the runtime does not say what is valid; the first failure, the others in its details.
pub fn gc(context: &Context<'_>) -> Result<(), Error> {
    sys::stay_on_processor();
    let valid: HashSet<&network::Attachment> = match &context.network.valid_attachments {
        Some(valid) => valid.iter().collect(),
        None => {
            let message = "cni.dev/valid-attachments is missing: without it, nothing is known to be stale";
            return Err(Error::new(Code::InvalidConfig, message));
        }
    };
    let mut errors = Vec::new();
    let mut recorded = recorded(context, &mut errors);
    recorded.retain(|_, record| {
        let Identity { container_id, ifname, network } = record.identity.clone();
        network == context.network.name && !valid.contains(&network::Attachment { container_id, ifname })
    });
    let attachments = attachment::folder(&context.settings.run_directory);
    let elastic_ips = elastic_ip::folder(&context.settings.state_directory);
    for ((container_id, interface), record) in recorded {
        context
            .log
            .verbose(format_args!("{container_id} {interface}: the runtime does not know it, it ends"));
        let ended = match record.place.open() {
            Ok(Some(namespace)) => {
                let opened =
                    Node::here().and_then(|node| Scene::open(context, node, namespace, &record.place.path));
                opened.and_then(|mut scene| {
                    let ended = end(&mut scene, &interface, &record);
                    ended.and(scene.leave())
                })
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        let forgotten = ended.and_then(|()| attachments.remove(&container_id, &interface));
        errors.extend(forgotten.err());
        if record.elastic_ip {
            let given_back = del::release(context.settings, &elastic_ips, &container_id, &interface);
            errors.extend(given_back.err());
        }
    }
    first(errors)
}

/// What any record says of one attachment.
struct Recorded {
    identity: Identity,
    place: Place,
    notes: Vec<String>,
    /// Whether it has one to be given back.
    elastic_ip: bool,
}

/// All attachments of the node, by container and interface.
fn recorded(context: &Context<'_>, errors: &mut Vec<Error>) -> BTreeMap<(String, String), Recorded> {
    let (attachments, unread) = attachment::folder(&context.settings.run_directory).all::<Attachment>();
    errors.extend(unread);
    let (elastic_ips, unread) = elastic_ip::folder(&context.settings.state_directory).all::<ElasticIp>();
    errors.extend(unread);
    let mut recorded: BTreeMap<(String, String), Recorded> = BTreeMap::new();
    for record in elastic_ips {
        let identity = Identity {
            container_id: record.container_id.clone(),
            ifname: record.ifname.clone(),
            network: record.network.clone(),
        };
        let key = (record.container_id.clone(), record.interface.clone());
        recorded.insert(key, Recorded { identity, place: record.place, notes: Vec::new(), elastic_ip: true });
    }
    for record in attachments {
        let key = (record.container_id().to_owned(), record.interface().to_owned());
        let elastic_ip = recorded.remove(&key).is_some_and(|recorded| recorded.elastic_ip);
        let identity = record.identity();
        recorded.insert(key, Recorded { identity, place: record.place, notes: record.notes, elastic_ip });
    }
    recorded
}

fn end(scene: &mut Scene, interface: &str, record: &Recorded) -> Result<(), Error> {
    let pod = scene.pod()?;
    let lines = pod.attachments.get(interface).unwrap_or(&record.notes);
    let Some(notes) = Notes::parse(lines).filter(|notes| notes.belongs_to(&record.identity)) else {
        return Ok(());
    };
    let steps = plan::del::del(&pod, interface, &notes);
    apply::run_all(&steps, &mut Linux::new(&mut scene.sockets))
}
