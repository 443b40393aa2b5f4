//! DEL: removes what is left of an attachment, and restores the pod if it keeps running. It is idempotent.

use std::path::PathBuf;
use std::time::Instant;

use crate::apply::{self, Linux};
use crate::aws;
use crate::cni::{Call, Code, Error};
use crate::config::settings::Settings;
use crate::nftables;
use crate::observe::Pod;
use crate::plan::{self, Step};
use crate::record::{self, Attachment, ElasticIp, Folder, attachment, elastic_ip};
use crate::sys::{self, Namespace};

use super::Context;
use super::ipvlan_mode;
use super::namespaces::{self, Namespaces, Node};

/// Removes it in the pod, at EC2, and its records. It continues after a failure.
///
/// # Errors
/// The first failure, with the others in its details. Something is left then, and the runtime retries.
pub fn del(context: &Context<'_>) -> Result<(), Error> {
    sys::stay_on_processor();
    let ended = match in_pod(context) {
        // The runtime has unmounted it but not yet removed the file, or its path belongs to another process, of the node: the pod no
        // longer exists.
        Err(error) if error.code == Code::InvalidNamespace => {
            context.log.verbose(format_args!("{error}: nothing to delete there"));
            forget(context)
        }
        // The first step of ADD is a table, so without nf_tables it has changed nothing.
        Err(error) if !nftables::known() => {
            context
                .log
                .verbose(format_args!("{error}: this kernel has no nf_tables, so ADD has created nothing"));
            forget(context)
        }
        ended => ended,
    };
    Error::first(ended.err().into_iter().chain(release_all(context.settings, context.call)))
}

/// Releases the Elastic IPs of a container's interface, and removes their records. An unreadable one is an error.
fn release_all(settings: &Settings, call: &Call) -> Vec<Error> {
    let folder = elastic_ip::folder(&settings.state_directory);
    let (mut records, unreadable) = folder.of_container::<ElasticIp>(&call.container_id);
    records.retain(|record| record.owner.ifname == call.ifname);
    let released = records
        .iter()
        .map(|record| release(settings, &folder, &record.owner.container_id, &record.owner.interface));
    unreadable
        .into_iter()
        .map(|unreadable| unreadable.error)
        .chain(released.filter_map(Result::err))
        .collect()
}

/// Removes the journals of a container's interface, of any name in the pod, and the reserved modes. An unreadable journal does not block the
/// deletion of the pod.
fn forget(context: &Context<'_>) -> Result<(), Error> {
    let (run_directory, call) = (&context.settings.run_directory, context.call);
    let folder = attachment::folder(run_directory);
    let (mut journals, unreadable) = folder.of_container::<Attachment>(&call.container_id);
    for unreadable in unreadable {
        context.log.error(format_args!("{}", unreadable.error));
    }
    journals.retain(|journal| journal.owner.ifname == call.ifname);
    let mut errors = Vec::new();
    // The one with this name, also if it could not be read.
    for interface in journals.iter().map(|journal| &journal.owner.interface).chain([&call.ifname]) {
        errors.extend(folder.remove(&call.container_id, interface).err());
        errors.extend(ipvlan_mode::release(run_directory, &call.container_id, interface).err());
    }
    Error::first(errors)
}

/// Removes it in the pod, if the pod exists, and its journal.
fn in_pod(context: &Context<'_>) -> Result<(), Error> {
    let Some((node, namespace, path)) = find(context)? else { return forget(context) };
    let mut namespaces = Namespaces::open(context, node, namespace, &path, &context.call.container_id)?;
    // The next call in the pod must not find the journal: it would keep what only this attachment needed.
    let ended = end(context, &mut namespaces).and_then(|()| forget(context));
    Error::first([ended, namespaces.leave()].into_iter().filter_map(Result::err))
}

/// The pod's namespace and its path. A runtime that does not know them any more gives none: then it is the recorded one, if that still exists.
fn find(context: &Context<'_>) -> Result<Option<(Node, Namespace, PathBuf)>, Error> {
    let call = context.call;
    if let Some(path) = &call.netns {
        let found = namespaces::find(call)?;
        return Ok(found.map(|(node, namespace)| (node, namespace, path.clone())));
    }
    let folder = attachment::folder(&context.settings.run_directory);
    let journals = record::readable(folder.of_container::<Attachment>(&call.container_id))?;
    for Attachment { owner, .. } in journals.into_iter().filter(|journal| journal.owner.ifname == call.ifname)
    {
        if let Some(namespace) = owner.netns.open()? {
            return Ok(Some((Node::here()?, namespace, owner.netns.path)));
        }
    }
    Ok(None)
}

/// There is usually one attachment, with any name in the pod. DEL needs no `prevResult` to find a chained one.
fn end(context: &Context<'_>, namespaces: &mut Namespaces) -> Result<(), Error> {
    let (ifname, mut errors) = (&context.call.ifname, Vec::new());
    let mut journals = namespaces.journals.clone();
    journals.retain(|journal| journal.owner.ifname == *ifname);
    let mut left: Vec<_> = journals.iter().map(|journal| (&journal.owner.interface, Some(journal))).collect();
    if left.is_empty() {
        left.push((ifname, None));
    }
    for (interface, journal) in left {
        let pod = namespaces.pod()?;
        let steps = steps(namespaces, &pod, interface, journal)?;
        if !steps.is_empty() {
            context.log.verbose(format_args!("{interface}: deleting it in {} steps", steps.len()));
            errors
                .extend(apply::run_all(&steps, &mut Linux::new(&mut namespaces.sockets), context.log).err());
        }
        // Its file exists until the last step.
        namespaces.journals.retain(|journal| journal.owner.interface != *interface);
    }
    Error::first(errors)
}

/// The steps that remove what is left of an attachment. `journal` is of this namespace. Without one (the disk is lost), the interface is
/// known by its name only, and a recorded attachment of another container keeps it.
///
/// # Errors
/// Code 5: whether another container has it cannot be read.
pub(super) fn steps(
    namespaces: &Namespaces,
    pod: &Pod,
    interface: &str,
    journal: Option<&Attachment>,
) -> Result<Vec<Step>, Error> {
    let Some(journal) = journal else {
        let steps = plan::del::unrecorded(pod, interface);
        // All journals of the node are read only in this case.
        let keep = !steps.is_empty() && namespaces.is_recorded(interface)?;
        return Ok(if keep { Vec::new() } else { steps });
    };
    let mut steps = Vec::new();
    if journal.made.is_none() && namespaces.is_alone() {
        steps.extend(plan::del::temporary(pod).map(plan::del::delete_link));
    }
    steps.extend(plan::del::del(pod, interface, &journal.undo));
    Ok(steps)
}

/// Releases an Elastic IP and removes its record, which no other call uses meanwhile: a released private address is free for the next pod,
/// and a second call that has read the record would take it away. Other Elastic IPs are released at the same time. Does nothing if there is
/// no record any more.
pub(super) fn release(
    settings: &Settings,
    folder: &Folder,
    container_id: &str,
    interface: &str,
) -> Result<(), Error> {
    let deadline = Instant::now() + aws::TIMEOUT;
    let Some(locked) = folder.lock::<ElasticIp>(container_id, interface, deadline)? else { return Ok(()) };
    aws::over_network(settings, |cloud| aws::release(cloud, &locked.record.state, deadline))?;
    folder.remove(container_id, interface)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::config::settings::Aws;
    use crate::record::{Owner, PodNetns};

    #[test]
    fn an_elastic_ip_that_another_call_released_is_not_released_again() {
        let directory = tempfile::tempdir().unwrap();
        let folder = elastic_ip::folder(directory.path());
        let record = ElasticIp {
            owner: Owner {
                container_id: "c".into(),
                ifname: "net1".into(),
                network: "n".into(),
                interface: "net1".into(),
                netns: PodNetns { path: "/proc/none".into(), identity: (1, 2) },
            },
            state: aws::State {
                instance: "i-1".into(),
                interface: "eni-1".into(),
                mac: [2, 0, 0, 0, 0, 1],
                public: [203, 0, 113, 9].into(),
                allocation: "eipalloc-1".into(),
                private: "10.0.0.50/24".parse().unwrap(),
                gateway: [10, 0, 0, 1].into(),
                stage: aws::Stage::Associating,
            },
        };
        folder.write(&record).unwrap();
        // No server listens there: a request fails.
        let nowhere = Some("http://127.0.0.1:1".to_owned());
        let aws = Aws { ec2_endpoint: nowhere.clone(), metadata_endpoint: nowhere, ..Aws::default() };
        let settings = Settings { aws, ..Settings::default() };
        let lock = folder.lock::<ElasticIp>("c", "net1", Instant::now()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let (folder, settings) = (&folder, &settings);
            scope.spawn(move || sender.send(release(settings, folder, "c", "net1")).unwrap());
            let early = receiver.recv_timeout(Duration::from_millis(100));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it waits for its turn");
            folder.remove("c", "net1").unwrap();
            drop(lock);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(300)), Ok(Ok(())));
        });
    }
}
