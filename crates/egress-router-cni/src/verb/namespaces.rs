//! The namespaces of an operation: that of the node, in which the program was started, and that of the pod.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use common::netlink::socket::{Protocol, Socket, Sockets};

use crate::cni::{Call, Code, Error, ToCni};
use crate::lock::Lock;
use crate::observe::{self, Pod};
use crate::record::{self, Attachment, Folder, PodNetns, attachment};
use crate::sys::Namespace;

use super::Context;

/// Timeout of the pod's lock: longer than a call that releases an Elastic IP and acquires one, shorter than a runtime waits.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The node's namespace and the pod's, with sockets in both. The thread is in the pod's from [`Self::open`] on, but for what
/// [`Self::on_node`] runs.
pub struct Namespaces {
    node: Namespace,
    /// The pod's.
    pub namespace: Namespace,
    /// Its identity in records.
    pub netns: PodNetns,
    /// Sockets of the node.
    pub host: Socket,
    /// Sockets of the pod.
    pub sockets: Sockets,
    lock: Option<Lock>,
    /// The folder of the node's journals.
    pub folder: Folder,
    /// The journals of the container's attachments in this namespace, as they were when the pod lock was acquired. One that is
    /// not a journal is as a lost one.
    pub journals: Vec<Attachment>,
}

/// The node, which is the calling thread's namespace.
pub struct Node {
    namespace: Namespace,
    socket: Socket,
}

impl Node {
    /// With a socket in it.
    ///
    /// # Errors
    /// Code 100 where the kernel refuses.
    pub fn here() -> Result<Self, Error> {
        let socket =
            Socket::open(Protocol::Route).map_err(|error| error.to_cni("cannot open a netlink socket"))?;
        let namespace = socket
            .namespace()
            .map_err(|error| error.to_cni("cannot open the node's network namespace"))?
            .into();
        Ok(Self { namespace, socket })
    }
}

/// The pod's namespace, and the node. None if it does not exist, or none was given.
///
/// # Errors
/// Code 8: it is the node's own, and `CNI_NETNS_OVERRIDE` is not set. Code 5: it exists but cannot be opened.
pub fn find(call: &Call) -> Result<Option<(Node, Namespace)>, Error> {
    let Some(path) = &call.netns else { return Ok(None) };
    let namespace = match Namespace::open(path) {
        Ok(namespace) => namespace,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            let message = format!("cannot open CNI_NETNS {}", path.display());
            return Err(Error::new(Code::Io, message).details(error));
        }
    };
    let node = Node::here()?;
    let same = namespace
        .same(&node.namespace)
        .map_err(|error| Error::new(Code::InvalidNamespace, "cannot read CNI_NETNS").details(error));
    if !call.netns_override && same? {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!(
                "CNI_NETNS {} is the namespace of the node itself: it must be a pod's (CNI_NETNS_OVERRIDE=true allows it)",
                path.display()
            ),
        ));
    }
    Ok(Some((node, namespace)))
}

impl Namespaces {
    /// For ADD and CHECK.
    ///
    /// # Errors
    /// Code 8: it does not exist, is not a network namespace, or is the node's. Code 100: the kernel refuses.
    pub fn of_call(context: &Context<'_>) -> Result<Self, Error> {
        let call = context.call;
        let path = call.netns.as_deref().unwrap_or(Path::new(""));
        let (node, namespace) = find(call)?.ok_or_else(|| {
            Error::new(Code::InvalidNamespace, format!("CNI_NETNS {} does not exist", path.display()))
        })?;
        Self::open(context, node, namespace, path, &call.container_id)
    }

    /// With an open namespace, the one of a container, after waiting for other calls in it.
    ///
    /// # Errors
    /// As [`Self::of_call`]; code 11: another call in the pod does not end; code 5: a journal cannot be read.
    pub fn open(
        context: &Context<'_>,
        node: Node,
        namespace: Namespace,
        path: &Path,
        container_id: &str,
    ) -> Result<Self, Error> {
        let Node { namespace: node, socket: host } = node;
        let identity = namespace.identity().map_err(|error| {
            Error::new(Code::InvalidNamespace, format!("cannot read {}", path.display())).details(error)
        })?;
        let lock = Lock::of_pod(&context.settings.run_directory, identity, Instant::now() + LOCK_TIMEOUT)?;
        let folder = attachment::folder(&context.settings.run_directory);
        let mut journals = record::readable(folder.of_container::<Attachment>(container_id))?;
        // Paths are reused.
        journals.retain(|journal| journal.owner.netns.identity == identity);
        namespace.enter().map_err(|error| {
            let message = format!("{} cannot be entered as a network namespace", path.display());
            let is_none = error.raw_os_error() == Some(libc::EINVAL);
            let code = if is_none { Code::InvalidNamespace } else { Code::Kernel };
            Error::new(code, message).details(error)
        })?;
        let sockets = Sockets::open().map_err(|error| {
            error.to_cni("cannot open the rtnetlink and nf_tables sockets in the pod's network namespace")
        });
        if sockets.is_err() {
            let _ = node.enter();
        }
        let netns = PodNetns { path: path.to_owned(), identity };
        Ok(Self { node, namespace, netns, host, sockets: sockets?, lock, folder, journals })
    }

    /// Whether the pod lock is held.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether an attachment of any container is recorded with this interface in this namespace.
    ///
    /// # Errors
    /// Code 5: a journal cannot be read.
    pub fn is_recorded(&self, interface: &str) -> Result<bool, Error> {
        let journals = record::readable(self.folder.all::<Attachment>())?;
        let is = |journal: &Attachment| {
            journal.owner.netns.identity == self.netns.identity && journal.owner.interface == interface
        };
        Ok(journals.iter().any(is))
    }

    /// Reads the pod's state. Its attachments are those of the journals.
    ///
    /// # Errors
    /// Code 100, or 11 if it keeps changing.
    pub fn pod(&mut self) -> Result<Pod, Error> {
        let attachments = self.journals.iter();
        let attachments =
            attachments.map(|journal| (journal.owner.interface.clone(), journal.undo.clone())).collect();
        observe::pod(&mut self.sockets, attachments)
    }

    /// Runs `work`, which needs the node's network, in the node's network namespace.
    ///
    /// # Errors
    /// The error of `work`; code 100 if the namespace cannot be changed.
    pub fn on_node<T>(&mut self, work: impl FnOnce(&mut Socket) -> Result<T, Error>) -> Result<T, Error> {
        let moved = |error: std::io::Error| {
            let message = "cannot switch between the network namespaces of node and pod";
            Error::new(Code::Kernel, message).details(error)
        };
        self.node.enter().map_err(moved)?;
        let result = work(&mut self.host);
        self.namespace.enter().map_err(moved)?;
        result
    }

    /// Returns to the node's namespace, for the next pod.
    ///
    /// # Errors
    /// Code 100 if the namespace cannot be changed.
    pub fn leave(self) -> Result<(), Error> {
        self.node.enter().map_err(|error| {
            Error::new(Code::Kernel, "cannot return to the node's network namespace").details(error)
        })
    }
}
