//! GC: removes the recorded attachments of this network that are not in the runtime's list.

use std::collections::{BTreeMap, HashSet};

use crate::apply::{self, Linux};
use crate::cni::Error;
use crate::log::Log;
use crate::record::{Attachment, ElasticIp, Owner, attachment, elastic_ip};
use crate::sys;

use super::namespaces::{Namespaces, Node};
use super::{Context, del, ipvlan_mode};

/// Removes them all. It continues after a failure.
///
/// # Errors
/// Code 7 if the runtime does not list the valid attachments; the first failure, with the others in its details.
pub fn gc(context: &Context<'_>) -> Result<(), Error> {
    sys::stay_on_processor();
    let Some(valid) = &context.network.valid_attachments else {
        let message =
            "cni.dev/valid-attachments is missing: without it, GC cannot tell which attachments are stale";
        return Err(Error::invalid_config(message));
    };
    let valid: HashSet<_> = valid.iter().map(|(id, ifname)| (id.as_str(), ifname.as_str())).collect();
    let mut errors = Vec::new();
    let mut recorded = recorded(context, &mut errors);
    recorded.retain(|_, (owner, _)| {
        owner.network == context.network.name
            && !valid.contains(&(owner.container_id.as_str(), owner.ifname.as_str()))
    });
    let attachments = attachment::folder(&context.settings.run_directory);
    let elastic_ips = elastic_ip::folder(&context.settings.state_directory);
    for (Owner { container_id, interface, netns, .. }, has_elastic_ip) in recorded.into_values() {
        context
            .log
            .verbose(format_args!("{container_id} {interface}: not in valid-attachments, deleting it"));
        let forget = || {
            attachments.remove(&container_id, &interface)?;
            ipvlan_mode::release(&context.settings.run_directory, &container_id, &interface)
        };
        let ended = match netns.open() {
            Ok(Some(namespace)) => {
                let opened = Node::here()
                    .and_then(|node| Namespaces::open(context, node, namespace, &netns.path, &container_id));
                opened.and_then(|mut namespaces| {
                    // Under the pod's lock, as in DEL.
                    let ended = end(&mut namespaces, &interface, context.log).and_then(|()| forget());
                    ended.and(namespaces.leave())
                })
            }
            Ok(None) => forget(),
            Err(error) => Err(error),
        };
        errors.extend(ended.err());
        if has_elastic_ip {
            let given_back = del::release(context.settings, &elastic_ips, &container_id, &interface);
            errors.extend(given_back.err());
        }
    }
    Error::first(errors)
}

/// All attachments of the node, by container and interface, and whether each has an Elastic IP to release. An unreadable record is an error
/// only if it is of this network: otherwise one broken file would fail the GC of every network.
fn recorded(context: &Context<'_>, errors: &mut Vec<Error>) -> BTreeMap<(String, String), (Owner, bool)> {
    let (attachments, unread) = attachment::folder(&context.settings.run_directory).all::<Attachment>();
    let (elastic_ips, more) = elastic_ip::folder(&context.settings.state_directory).all::<ElasticIp>();
    for unreadable in unread.into_iter().chain(more) {
        if unreadable.network.as_ref() == Some(&context.network.name) {
            errors.push(unreadable.error);
        } else {
            context.log.error(format_args!("{}", unreadable.error));
        }
    }
    let key = |owner: &Owner| (owner.container_id.clone(), owner.interface.clone());
    let mut recorded: BTreeMap<_, _> =
        elastic_ips.into_iter().map(|record| (key(&record.owner), (record.owner, true))).collect();
    for Attachment { owner, .. } in attachments {
        let key = key(&owner);
        let has_elastic_ip = recorded.contains_key(&key);
        recorded.insert(key, (owner, has_elastic_ip));
    }
    recorded
}

/// Another call may have ended meanwhile: the journal is the one that was read under the pod's lock.
fn end(namespaces: &mut Namespaces, interface: &str, log: &Log) -> Result<(), Error> {
    let pod = namespaces.pod()?;
    let journal = namespaces.journals.iter().find(|journal| journal.owner.interface == interface);
    let steps = del::steps(namespaces, &pod, interface, journal)?;
    apply::run_all(&steps, &mut Linux::new(&mut namespaces.sockets), log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Call, Code};
    use crate::config::network::Network;
    use crate::config::settings::Settings;

    fn collect(run: &std::path::Path, network: &str) -> Result<(), Error> {
        let call = Call::from_env(|name| (name == "CNI_COMMAND").then(|| "GC".into()))?.unwrap();
        let config = serde_json::json!({
            "cniVersion": "1.1.0", "name": network, "type": "egress-router", "cni.dev/valid-attachments": [],
        });
        let network = Network::parse(config.to_string().as_bytes(), &call)?;
        let settings =
            Settings { run_directory: run.into(), state_directory: run.join("state"), ..Settings::default() };
        let log = Log::open(None, Some("panic"));
        gc(&Context { call: &call, network: &network, settings: &settings, log: &log })
    }

    /// Every GC would fail, of all networks, until an administrator removes the file.
    #[test]
    fn an_unreadable_record_of_another_network_is_no_failure() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("attachments");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("c1@net1.json"), r#"{"network": "other", "containerId": 7}"#).unwrap();
        std::fs::write(folder.join("c2@net1.json"), "{").unwrap();
        assert_eq!(collect(run.path(), "egress"), Ok(()));
        let error = collect(run.path(), "other").unwrap_err();
        assert_eq!(error.code, Code::Decode);
        assert!(error.message.contains("c1@net1.json"), "{error}");
    }
}
