//! Settings that apply to every Deorbit of this process.

/// The volumes and load balancers of a cluster that are OpenStack's, by CSI driver and by load balancer class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CSI drivers and provisioners whose volumes are Cinder's.
    pub drivers: Vec<String>,
    /// `spec.loadBalancerClass` of Services whose load balancers are Octavia's; a Service without a class always is.
    pub load_balancer_classes: Vec<String>,
}

/// The name of Cinder's CSI driver.
pub const DRIVER: &str = "cinder.csi.openstack.org";

impl Default for Settings {
    fn default() -> Self {
        Settings { drivers: vec![DRIVER.to_owned()], load_balancer_classes: Vec::new() }
    }
}

impl Settings {
    /// Whether volumes of this driver are Cinder's.
    #[must_use]
    pub fn is_cinder(&self, driver: &str) -> bool {
        self.drivers.iter().any(|one| one == driver) || driver == crate::names::IN_TREE_PROVISIONER
    }

    /// Whether Services of this class are served by Octavia.
    #[must_use]
    pub fn is_octavia(&self, class: Option<&str>) -> bool {
        class.is_none_or(|class| self.load_balancer_classes.iter().any(|one| one == class))
    }
}
