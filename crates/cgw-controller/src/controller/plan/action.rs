//! The writes of the controller: each is one request to the API server, with one log line, one Event and one metric.

use std::fmt;

use common::cache::ObjectKey;
use common::plan::{self, Regarding};
use serde::{Serialize, Serializer};

use super::Port;
use crate::api::Vip;
use crate::api::service::Carried;
use crate::api::stores::{Bind, Owner};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write the record of a VIP, if no record has changed since it was observed.
    Record {
        /// The VIP.
        vip: Vip,
        /// The record.
        bind: Bind,
    },
    /// Remove the record of a VIP, if no record has changed since it was observed.
    Erase {
        /// The VIP.
        vip: Vip,
        /// The record that is removed.
        bind: Bind,
    },
    /// Write the annotations of a bound Service, if it has not changed.
    Carry {
        /// The Service.
        service: ObjectKey,
        /// Its UID.
        uid: String,
        /// The annotations.
        carried: Carried,
        /// It did not carry the VIP before.
        is_new: bool,
    },
    /// Remove the annotations of a bound Service, if it has not changed.
    Release {
        /// The VIP.
        vip: Vip,
        /// The Service.
        service: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Add the VIP where Kubernetes shows it, if the Service has not changed.
    Publish {
        /// The VIP.
        vip: Vip,
        /// The Service.
        service: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Remove the VIP from there, if the Service has not changed.
    Retract {
        /// The VIP.
        vip: Vip,
        /// The Service.
        service: ObjectKey,
        /// Its UID.
        uid: String,
    },
}

impl Write {
    /// The VIP.
    #[must_use]
    pub fn vip(&self) -> Vip {
        match self {
            Write::Carry { carried, .. } => carried.vip,
            Write::Record { vip, .. }
            | Write::Erase { vip, .. }
            | Write::Release { vip, .. }
            | Write::Publish { vip, .. }
            | Write::Retract { vip, .. } => *vip,
        }
    }

    /// The Service that is written. None: the store.
    #[must_use]
    pub fn service(&self) -> Option<&ObjectKey> {
        match self {
            Write::Record { .. } | Write::Erase { .. } => None,
            Write::Carry { service, .. }
            | Write::Release { service, .. }
            | Write::Publish { service, .. }
            | Write::Retract { service, .. } => Some(service),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Write::Record { vip, bind } if bind.unbinding => {
                write!(f, "record that {vip} is being unbound from {}", bind.owner)
            }
            Write::Record { vip, bind } => write!(f, "record {vip} for {} ({})", bind.owner, bind.tun_id),
            Write::Erase { vip, bind } => write!(f, "remove the record of {vip} for {}", bind.owner),
            Write::Carry { service, carried, is_new, .. } => {
                let verb = if *is_new { "bind" } else { "update" };
                write!(f, "{verb} Service {service}: VIP {}, ", carried.vip)?;
                match &carried.gateway {
                    Some(gateway) => write!(f, "gateway {}", gateway.node_ip),
                    None => f.write_str("no gateway"),
                }
            }
            Write::Release { vip, service, .. } => write!(f, "unbind Service {service} from VIP {vip}"),
            Write::Publish { vip, service, .. } => write!(f, "add {vip} to the ingress of Service {service}"),
            Write::Retract { vip, service, .. } => {
                write!(f, "remove {vip} from the ingress of Service {service}")
            }
        }
    }
}

impl Serialize for Write {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A Service: Events of its writes and problems appear there.
#[must_use]
pub(super) fn service(name: &ObjectKey, uid: Option<&str>) -> Regarding {
    Regarding {
        api_version: "v1",
        kind: "Service",
        namespace: Some(name.namespace().to_owned()),
        name: name.name().to_owned(),
        uid: uid.map(str::to_owned),
    }
}

/// The object of a binding: Events of its record appear there.
#[must_use]
pub(super) fn regarding(owner: &Owner) -> Regarding {
    match owner {
        Owner::Namespace { namespace } => Regarding {
            api_version: "v1",
            kind: "Namespace",
            namespace: None,
            name: namespace.clone(),
            uid: None,
        },
        Owner::Service { namespace, service: name } => service(&ObjectKey::new(namespace, name), None),
    }
}

impl plan::Action for Write {
    type Reason = Cause;

    fn name(&self) -> &'static str {
        match self {
            Write::Record { bind, .. } if bind.unbinding => "RecordUnbind",
            Write::Record { .. } => "RecordBinding",
            Write::Erase { .. } => "RemoveBinding",
            Write::Carry { is_new: true, .. } => "BindService",
            Write::Carry { .. } => "UpdateGateway",
            Write::Release { .. } => "UnbindService",
            Write::Publish { .. } => "AddIngress",
            Write::Retract { .. } => "RemoveIngress",
        }
    }

    fn regarding(&self) -> Regarding {
        match self {
            Write::Record { bind, .. } | Write::Erase { bind, .. } => regarding(&bind.owner),
            Write::Carry { service: name, uid, .. }
            | Write::Release { service: name, uid, .. }
            | Write::Publish { service: name, uid, .. }
            | Write::Retract { service: name, uid, .. } => service(name, Some(uid)),
        }
    }
}

/// Why a write is made, or a problem that no write fixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client of the HTTP API.
    Requested {
        /// Its user name.
        user: String,
    },
    /// A keeper reported that the gateway changed.
    Notified {
        /// Main address of the gateway's node.
        node: String,
    },
    /// The status servers report another master than the annotations.
    Polled,
    /// A request was not finished, or another client changed the annotations.
    Repaired,
    /// The Service of a binding does not exist.
    ServiceMissing(Vip, ObjectKey),
    /// The namespace of a binding does not exist, or is being deleted.
    NamespaceMissing(Vip, String),
    /// The Service of a binding carries another VIP.
    OtherVip(Vip, Vip),
    /// Two Services of one VIP have the same port.
    PortConflict(Vip, ObjectKey, Port),
    /// No gateway is MASTER.
    NoMaster(Vip),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Requested { user } => write!(f, "requested by {user}"),
            Cause::Notified { node } => write!(f, "the keeper on {node} reported that it is MASTER"),
            Cause::Polled => f.write_str("the status servers report this master"),
            Cause::Repaired => f.write_str("the annotations and the record of the binding differed"),
            Cause::ServiceMissing(vip, service) => write!(
                f,
                "VIP {vip} is bound to Service {service}, which does not exist; create the Service, or DELETE /vip/{vip}/{service}"
            ),
            Cause::NamespaceMissing(vip, namespace) => write!(
                f,
                "VIP {vip} is bound to namespace {namespace}, which does not exist or is being deleted; DELETE /vip/{vip}/{namespace}, \
                 or Services of the next namespace of this name may have the VIP"
            ),
            Cause::OtherVip(vip, other) => write!(
                f,
                "VIP {vip} is bound to this Service, which carries VIP {other}; remove one of the two bindings"
            ),
            Cause::PortConflict(vip, other, port) => write!(
                f,
                "port {port} of VIP {vip} is also a port of Service {other}; change the port, or unbind one of the two"
            ),
            Cause::NoMaster(vip) => write!(
                f,
                "no keeper of VIP {vip} reports that it is MASTER: the pods of this Service may not be able to leave the cluster"
            ),
        }
    }
}

impl plan::Reason for Cause {
    fn code(&self) -> &'static str {
        match self {
            Cause::Requested { .. } => "Requested",
            Cause::Notified { .. } => "MasterNotified",
            Cause::Polled => "MasterPolled",
            Cause::Repaired => "Repaired",
            Cause::ServiceMissing(..) => "ServiceMissing",
            Cause::NamespaceMissing(..) => "NamespaceMissing",
            Cause::OtherVip(..) => "OtherVip",
            Cause::PortConflict(..) => "PortConflict",
            Cause::NoMaster(..) => "NoMaster",
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
