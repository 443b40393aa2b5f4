//! Every name on objects, in one place: our own, and those of others, which are read to the letter.

use common::api::deorbit::Kind;
pub use common::api::deorbit::{FINALIZER, KEEP, PROTECT};
use sha2::{Digest as _, Sha256};

/// Program name, field manager prefix, Lease name.
pub const PROGRAM: &str = "deorbiter";
/// `apiVersion` of our kinds.
pub const API_VERSION: &str = "deorbiter.perimeter.dev/v1alpha1";
/// The finalizer of a Deorbit, and its former name: without that one, a Deorbit of an earlier version could not be deleted, and its
/// block would stay.
pub const FINALIZERS: [&str; 2] = [FINALIZER, "deorbiter.perimeter.dev/freeze"];
/// Field manager of our writes.
pub const MANAGER: &str = "deorbiter.perimeter.dev";
/// Label of what deorbiter creates: the UID of its Deorbit.
pub const RUN_LABEL: &str = "deorbiter.perimeter.dev/uid";

/// Annotation of each bound object: the binding that added the finalizer. Another program's finalizer may have the same name.
pub const BOUND_BY_ANNOTATION: &str = "deorbiter.perimeter.dev/bound-by";
/// Finalizer of a DeorbitBinding: it is removed when no object has its finalizer any more.
pub const BINDING_FINALIZER: &str = "deorbiter.perimeter.dev/bound";
/// Label of a Deorbit: UID of the object that it was created for.
pub const TARGET_UID_LABEL: &str = "deorbiter.perimeter.dev/target-uid";
/// Annotation of each bound object: UID of the Deorbit that its binding created. No other Deorbit releases the object.
pub const DEORBIT_UID_ANNOTATION: &str = "deorbiter.perimeter.dev/deorbit-uid";
/// Label of a Deorbit: what created it, `binding` or `cluster-api`.
pub const TRIGGER_LABEL: &str = "deorbiter.perimeter.dev/trigger";
/// Annotation of a Deorbit: the object that it was created for: `kubernikus.sap.cc/v1 Kluster team/prod`.
pub const TARGET_ANNOTATION: &str = "deorbiter.perimeter.dev/target";

/// API group of Cluster API.
pub const CLUSTER_API_GROUP: &str = "cluster.x-k8s.io";
/// Label of a Machine of Cluster API: its Cluster, in the same namespace.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation of a Machine: Cluster API does not delete its server while an annotation with this prefix exists. The value is the binding.
pub const MACHINE_HOOK_ANNOTATION: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/deorbiter";
/// API group of the infrastructure providers of Cluster API.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Service annotation of the cloud controller manager: the load balancer's ID.
pub const LOAD_BALANCER_ID: &str = "loadbalancer.openstack.org/load-balancer-id";
/// Finalizer of the cloud controller manager: the Service has a load balancer, even where its type has changed.
pub const LOAD_BALANCER_CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Service annotation of the cloud controller manager: the floating IP outlives the Service.
pub const KEEP_FLOATING_IP: &str = "loadbalancer.openstack.org/keep-floatingip";
/// Cinder metadata: cluster-api-janitor-openstack keeps this volume, and deorbiter does too.
pub const JANITOR_KEEP: &str = "janitor.capi.azimuth-cloud.com/keep";
/// Cinder metadata of the CSI driver: `--cluster`.
pub const CSI_CLUSTER: &str = "cinder.csi.openstack.org/cluster";
/// The name of Cinder's in-tree provisioner, which StorageClasses of old clusters still have.
pub const IN_TREE_CINDER: &str = "kubernetes.io/cinder";
/// In-tree provisioners of clouds. A CSI driver serves their volumes by now, and PersistentVolumes of old clusters still have their form.
pub const IN_TREE_PROVISIONERS: [&str; 7] = [
    IN_TREE_CINDER,
    "kubernetes.io/aws-ebs",
    "kubernetes.io/gce-pd",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/vsphere-volume",
    "kubernetes.io/portworx-volume",
];
/// Name of the Lease of a cloud controller manager.
pub const CLOUD_CONTROLLER_MANAGER: &str = "cloud-controller-manager";
/// PersistentVolumeClaim annotation: its provisioner.
pub const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
/// PersistentVolumeClaim annotation of older clusters: its class.
pub const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Class of the Ingresses that octavia-ingress-controller serves.
pub const INGRESS_CLASS: &str = "openstack";
/// The same as an annotation of older Ingresses.
pub const INGRESS_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Prefix of the name of a Service's load balancer; one without it was created by a user.
pub const SERVICE_PREFIX: &str = "kube_service_";
/// Description of the floating IPs that the cloud controller manager created.
pub const FLOATING_IP_DESCRIPTION: &str = "Floating IP for Kubernetes external service";
/// Description of the floating IPs that octavia-ingress-controller created.
pub const INGRESS_FLOATING_IP_DESCRIPTION: &str = "Floating IP for Kubernetes ingress";
/// Ingress annotation of octavia-ingress-controller: the address of an existing floating IP. The controller overwrites its
/// description.
pub const INGRESS_FLOATING_IP: &str = "octavia.ingress.kubernetes.io/floatingip";
/// Ingress annotation of octavia-ingress-controller: the floating IP outlives the Ingress.
pub const INGRESS_KEEP_FLOATING_IP: &str = "octavia.ingress.kubernetes.io/keep-floatingip";
/// Namespace of the Leases of the cloud controller manager and of the CSI driver.
pub const LEASES: &str = "kube-system";
/// Namespace whose UID identifies a cluster.
pub const CLUSTER_IDENTITY: &str = "kube-system";

/// Whether an annotation of this value protects its object.
#[must_use]
pub fn protects(value: &str) -> bool {
    !value.is_empty() && value != "false"
}

/// Name of all objects of a block: it contains the Deorbit's UID, so that another process finds it.
#[must_use]
pub fn block(uid: &str) -> String {
    format!("deorbiter-{uid}.perimeter.dev")
}

/// Greatest length of the name of an object, in bytes.
const LONGEST_NAME: usize = 253;
/// Hexadecimal digits that distinguish objects of one name. Two hashes collide with a probability of one in 2^(4 * HASH_DIGITS), and then
/// the Deorbit of the other object is refused, not used.
const HASH_DIGITS: usize = 10;

/// Name of an object's Deorbit: `<name of the object>-<hash of its UID>`, truncated where it would be too long. It depends only on the
/// object, and differs for another object of the same name.
#[must_use]
pub fn deorbit(target: &str, uid: &str) -> String {
    let digest = Sha256::digest(uid.as_bytes());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).take(HASH_DIGITS / 2).collect();
    // Names are ASCII. A truncated one may end with a dot or a dash, and a dash cannot follow a dot.
    let head: String = target.chars().take(LONGEST_NAME - 1 - HASH_DIGITS).collect();
    format!("{}-{hash}", head.trim_end_matches(['.', '-']))
}

/// Whether a cluster's name identifies it: the cloud controller manager calls every cluster without a configured name
/// `kubernetes`.
#[must_use]
pub fn is_distinctive(cluster: &str) -> bool {
    !matches!(cluster, "" | "kubernetes")
}

/// Name of the volume or snapshot that a driver creates for the claim or VolumeSnapshot with this UID.
#[must_use]
pub fn made_for(kind: Kind, uid: &str) -> String {
    let prefix = if kind == Kind::Volume { "pvc" } else { "snapshot" };
    format!("{prefix}-{uid}")
}

/// Name of a load balancer of a Service, and the tag of a Service that shares one.
#[must_use]
pub fn service_tag(cluster: &str, namespace: &str, name: &str) -> String {
    cut(format!("{SERVICE_PREFIX}{cluster}_{namespace}_{name}"))
}

/// Name of a load balancer of a Service as the former in-tree provider named it.
#[must_use]
pub fn legacy_load_balancer(uid: &str) -> String {
    format!("a{}", uid.replace('-', ""))
}

/// Name of a load balancer of an Ingress, and of its security group.
#[must_use]
pub fn ingress_load_balancer(cluster: &str, namespace: &str, name: &str) -> String {
    cut(format!("kube_ingress_{cluster}_{namespace}_{name}"))
}

/// Name of the security group of a Service.
#[must_use]
pub fn security_group(uid: &str, namespace: &str, name: &str) -> String {
    cut(format!("lb-sg-{uid}-{namespace}-{name}"))
}

/// OpenStack's names end at 255 bytes.
fn cut(mut name: String) -> String {
    let mut end = name.len().min(255);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_deorbit_is_stable_short_enough_and_of_one_object() {
        assert_eq!(deorbit("prod", "a"), deorbit("prod", "a"));
        assert_ne!(deorbit("prod", "a"), deorbit("prod", "b"));
        assert!(deorbit("prod", "a").starts_with("prod-"));
        assert_eq!(deorbit("prod", "a").len(), "prod-".len() + HASH_DIGITS);
        let long = deorbit(&"x.".repeat(126), "a");
        assert!(long.len() <= LONGEST_NAME && !long.contains(".-"), "{long}");
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        let name = service_tag(&"ü".repeat(200), "n", "s");
        assert!(name.len() <= 255 && name.ends_with('ü'), "{name}");
        assert_eq!(service_tag("prod", "n", "s"), "kube_service_prod_n_s");
    }
}
