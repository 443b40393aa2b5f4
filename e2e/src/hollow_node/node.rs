//! The objects that a kubelet writes for its Node: registration, status, Lease.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// A kubelet reports its status at least this often (nodeStatusReportFrequency).
const REPORT_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// The duration in a kubelet's Lease. The controller manager uses its own grace period.
const LEASE_SECONDS: i32 = 40;

/// The conditions that a kubelet owns, and what they are on a healthy machine.
const HEALTHY: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
];

/// The machine under the Node.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) provider_id: Option<String>,
    pub(super) internal_ip: IpAddr,
    pub(super) external_ip: Option<IpAddr>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) boot_id: String,
    pub(super) ready: bool,
}

impl Machine {
    /// The Node as a kubelet registers it.
    pub(super) fn registration(&self, now: Timestamp) -> Value {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
        ]);
        labels.extend(self.labels.clone());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": labels, "annotations": self.annotations },
            "spec": { "providerID": self.provider_id },
            "status": self.status(None, now),
        })
    }

    /// The status to report, or `None` if the server has it with a recent heartbeat.
    pub(super) fn report(&self, node: &Node, now: Timestamp) -> Option<Value> {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let boot_id = status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.as_str());
        let current = boot_id == Some(&self.boot_id)
            && self.conditions().iter().all(|(kind, status, _)| {
                let reported = conditions.iter().find(|condition| condition.type_ == *kind);
                reported.is_some_and(|reported| {
                    let heard = reported.last_heartbeat_time.as_ref();
                    reported.status == *status
                        && heard.is_some_and(|Time(at)| now.duration_since(*at) < REPORT_EVERY)
                })
            });
        (!current).then(|| self.status(Some(conditions), now))
    }

    /// The heartbeat.
    pub(super) fn lease(&self, node_uid: &str, now: Timestamp) -> Lease {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        };
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }

    fn status(&self, before: Option<&[NodeCondition]>, now: Timestamp) -> Value {
        let conditions: Vec<_> = self
            .conditions()
            .into_iter()
            .map(|(kind, status, reason)| {
                let before =
                    before.unwrap_or_default().iter().find(|c| c.type_ == kind && c.status == status);
                let since = before.and_then(|c| c.last_transition_time.clone()).unwrap_or(Time(now));
                json!({
                    "type": kind, "status": status, "reason": reason, "message": "hollow node",
                    "lastHeartbeatTime": Time(now), "lastTransitionTime": since,
                })
            })
            .collect();
        let resources = json!({ "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "40Gi" });
        let mut addresses = vec![json!({ "type": "InternalIP", "address": self.internal_ip })];
        addresses.extend(self.external_ip.map(|ip| json!({ "type": "ExternalIP", "address": ip })));
        addresses.push(json!({ "type": "Hostname", "address": self.name }));
        json!({
            "conditions": conditions,
            "addresses": addresses,
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {
                "bootID": self.boot_id, "machineID": self.name, "systemUUID": self.name,
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "hollow", "kernelVersion": "hollow",
                "containerRuntimeVersion": "hollow://0", "kubeletVersion": "hollow", "kubeProxyVersion": "",
            },
        })
    }

    fn conditions(&self) -> [(&'static str, &'static str, &'static str); 4] {
        let ready = if self.ready {
            ("Ready", "True", "KubeletReady")
        } else {
            ("Ready", "False", "KubeletNotReady")
        };
        let [memory, disk, pid] = HEALTHY;
        [memory, disk, pid, ready]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            name: "a".into(),
            provider_id: Some("hcloud://1".into()),
            internal_ip: [10, 0, 0, 2].into(),
            external_ip: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            boot_id: "boot-1".into(),
            ready: true,
        }
    }

    #[test]
    fn status_is_reported_when_it_has_changed_or_is_old() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut machine = machine();
        let mut node: Node = serde_json::from_value(machine.registration(now)).unwrap();
        assert_eq!(machine.report(&node, now), None);
        assert!(machine.report(&node, now + REPORT_EVERY).is_some());

        let reported = &mut node.status.as_mut().unwrap().conditions.as_mut().unwrap()[3];
        reported.status = "Unknown".into();
        let later = now + SignedDuration::from_secs(30);
        let report = machine.report(&node, later).unwrap();
        assert_eq!(report["conditions"][3]["lastTransitionTime"], json!(Time(later)));
        assert_eq!(report["conditions"][0]["lastTransitionTime"], json!(Time(now)));

        let node: Node = serde_json::from_value(machine.registration(now)).unwrap();
        machine.boot_id = "boot-2".into();
        assert_eq!(machine.report(&node, now).unwrap()["nodeInfo"]["bootID"], "boot-2");
    }
}
