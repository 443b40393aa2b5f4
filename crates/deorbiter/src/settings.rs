//! Settings that apply to every Deorbit of this process, and the scope of one run: the drivers and classes that it handles.

use std::collections::BTreeSet;

use clap::Args;
use common::api::deorbit::Provider;

use crate::names;

/// The volumes and load balancers of a cluster that are OpenStack's, by CSI driver and by load balancer class.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CSI driver whose volumes are Cinder's; may be repeated, or joined with ','
    #[arg(long = "cinder-driver", env = "PERIMETER_CINDER_DRIVER", value_name = "NAME", value_delimiter = ',',
        default_value = DRIVER)]
    pub drivers: Vec<String>,
    /// loadBalancerClass of Services whose load balancers are Octavia's, in addition to those without a class; may be repeated
    #[arg(
        long = "load-balancer-class",
        env = "PERIMETER_LOAD_BALANCER_CLASS",
        value_name = "CLASS",
        value_delimiter = ','
    )]
    pub load_balancer_classes: Vec<String>,
}

/// The name of Cinder's CSI driver.
pub const DRIVER: &str = "cinder.csi.openstack.org";

impl Default for Settings {
    fn default() -> Self {
        Settings { drivers: vec![DRIVER.to_owned()], load_balancer_classes: Vec::new() }
    }
}

/// The CSI drivers, provisioners and load balancer classes that a run handles.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Those of OpenStack.
    OpenStack(&'a Settings),
    /// All of them.
    Any {
        /// Names of the cluster's CSI drivers: a provisioner is in scope only if it is one of them.
        drivers: &'a BTreeSet<String>,
    },
}

impl<'a> Scope<'a> {
    /// That of a provider, in a cluster with these CSI drivers.
    #[must_use]
    pub fn new(settings: &'a Settings, provider: Provider, drivers: &'a BTreeSet<String>) -> Scope<'a> {
        match provider {
            Provider::OpenStack => Scope::OpenStack(settings),
            Provider::Any => Scope::Any { drivers },
        }
    }

    /// Whether volumes and snapshots of this CSI driver are in scope.
    #[must_use]
    pub fn has_driver(self, driver: &str) -> bool {
        match self {
            Scope::OpenStack(_) => self.has_provisioner(driver),
            Scope::Any { .. } => !driver.is_empty(),
        }
    }

    /// Whether claims of this provisioner get volumes that are in scope. Other provisioners make volumes without a driver, as directories of
    /// Nodes and of NFS servers.
    #[must_use]
    pub fn has_provisioner(self, provisioner: &str) -> bool {
        match self {
            Scope::OpenStack(settings) => {
                provisioner == names::IN_TREE_CINDER || settings.drivers.iter().any(|one| one == provisioner)
            }
            Scope::Any { drivers } => {
                names::IN_TREE_PROVISIONERS.contains(&provisioner) || drivers.contains(provisioner)
            }
        }
    }

    /// Whether Services of this class are in scope.
    #[must_use]
    pub fn has_class(self, class: Option<&str>) -> bool {
        match self {
            Scope::OpenStack(settings) => {
                class.is_none_or(|class| settings.load_balancer_classes.iter().any(|one| one == class))
            }
            Scope::Any { .. } => true,
        }
    }

    /// The ID of a volume or a snapshot: two drivers may have the same one.
    #[must_use]
    pub fn id(self, driver: &str, handle: String) -> String {
        match self {
            Scope::OpenStack(_) => handle,
            Scope::Any { .. } => format!("{driver}/{handle}"),
        }
    }

    /// Whether a Lease of this name is that of a controller that deletes resources in the cloud. Sidecars of a CSI driver name theirs
    /// after it, with dashes.
    #[must_use]
    pub fn has_lease(self, name: &str) -> bool {
        let is_of = |driver: &String| name.ends_with(&driver.replace(['.', '/'], "-"));
        name == names::CLOUD_CONTROLLER_MANAGER
            || match self {
                Scope::OpenStack(settings) => settings.drivers.iter().any(is_of),
                Scope::Any { drivers } => drivers.iter().any(is_of),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_provider_counts_every_csi_driver_and_class_and_no_other_provisioner() {
        let (settings, drivers) = (Settings::default(), BTreeSet::from(["ebs.csi.aws.com".to_owned()]));
        let openstack = Scope::new(&settings, Provider::OpenStack, &drivers);
        let any = Scope::new(&settings, Provider::Any, &drivers);
        for (name, [as_driver, as_provisioner, as_any_driver, as_any_provisioner]) in [
            (DRIVER, [true, true, true, false]),
            ("kubernetes.io/cinder", [true, true, true, true]),
            ("kubernetes.io/aws-ebs", [false, false, true, true]),
            ("ebs.csi.aws.com", [false, false, true, true]),
            ("rancher.io/local-path", [false, false, true, false]),
            ("", [false, false, false, false]),
        ] {
            assert_eq!(openstack.has_driver(name), as_driver, "{name}");
            assert_eq!(openstack.has_provisioner(name), as_provisioner, "{name}");
            assert_eq!(any.has_driver(name), as_any_driver, "{name}");
            assert_eq!(any.has_provisioner(name), as_any_provisioner, "{name}");
        }
        let class = Some("service.k8s.aws/nlb");
        assert!(openstack.has_class(None) && !openstack.has_class(class) && any.has_class(class));
        assert_eq!(any.id("a.example", "v-1".into()), "a.example/v-1");
        assert_eq!(openstack.id(DRIVER, "v-1".into()), "v-1");
        for (lease, is_openstack, is_any) in [
            ("cloud-controller-manager", true, true),
            ("external-attacher-leader-cinder-csi-openstack-org", true, false),
            ("external-attacher-leader-ebs-csi-aws-com", false, true),
            ("kube-scheduler", false, false),
        ] {
            assert_eq!((openstack.has_lease(lease), any.has_lease(lease)), (is_openstack, is_any), "{lease}");
        }
    }
}
