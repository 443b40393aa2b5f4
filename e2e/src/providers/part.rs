//! The programs, and how each is started.

use anyhow::{Result, ensure};

use super::{INGRESS_CONFIG, POD_CIDR, Providers};
use crate::program::{Launch, Program, free_port};

/// A program that acts on the cloud for the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    /// openstack-cloud-controller-manager: Nodes, routes, load balancers.
    CloudController,
    /// cinder-csi-plugin: volumes and snapshots, called by the side-cars.
    CinderCsi,
    /// csi-provisioner: calls it for claims.
    Provisioner,
    /// csi-attacher: calls it for attachments.
    Attacher,
    /// csi-snapshotter: calls it for the contents of snapshots.
    Snapshotter,
    /// snapshot-controller: creates contents of snapshots.
    SnapshotController,
    /// octavia-ingress-controller: load balancers of Ingresses.
    IngressController,
}

impl Provider {
    /// The providers that a cluster on OpenStack usually has, in the order in which they can be started: all but
    /// [`Self::IngressController`].
    pub const USUAL: [Self; 6] = [
        Self::CloudController,
        Self::CinderCsi,
        Self::Provisioner,
        Self::Attacher,
        Self::Snapshotter,
        Self::SnapshotController,
    ];

    fn file(self) -> &'static str {
        match self {
            Self::CloudController => "openstack-cloud-controller-manager",
            Self::CinderCsi => "cinder-csi-plugin",
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Snapshotter => "csi-snapshotter",
            Self::SnapshotController => "snapshot-controller",
            Self::IngressController => "octavia-ingress-controller",
        }
    }
}

impl Providers {
    /// How to start it.
    pub(super) fn launch(&self, provider: Provider) -> Result<Launch> {
        let path = self.assets.join(provider.file());
        ensure!(path.is_file(), "{} is not there: scripts/assets.sh providers builds it", path.display());
        let kubeconfig = self.kubeconfig.display();
        let (cloud_conf, cluster) = (self.dir.file("cloud.conf"), &self.cluster);
        let socket = self.dir.file("csi.sock");
        let launch = Program::at(path).arg("--v=2");
        let cloud = [format!("--cloud-config={}", cloud_conf.display())];
        let sidecar = [
            format!("--csi-address={}", socket.display()),
            format!("--kubeconfig={kubeconfig}"),
            "--timeout=3m".to_owned(),
        ];
        // The kinds of group snapshots do not exist; waiting for them takes half a minute.
        let no_groups = "--feature-gates=CSIVolumeGroupSnapshot=false";
        Ok(match provider {
            Provider::CloudController => launch.args(cloud).args([
                "--cloud-provider=openstack".to_owned(),
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={}", free_port()?),
                format!("--cert-dir={}", self.dir.file("certificates").display()),
                "--leader-elect=false".to_owned(),
                format!("--cluster-name={cluster}"),
                format!("--cluster-cidr={POD_CIDR}"),
                "--allocate-node-cidrs=true".to_owned(),
                "--configure-cloud-routes=true".to_owned(),
                // Its first reconciliation comes before Nodes are initialised, and the next one period later.
                "--route-reconciliation-period=2s".to_owned(),
            ]),
            Provider::CinderCsi => launch.args(cloud).args([
                format!("--endpoint=unix://{}", socket.display()),
                format!("--cluster={cluster}"),
                "--provide-node-service=false".to_owned(),
                "--with-topology=false".to_owned(),
            ]),
            Provider::Provisioner => {
                launch.args(sidecar).args(["--default-fstype=ext4", "--extra-create-metadata=true"])
            }
            Provider::Attacher => launch.args(sidecar),
            Provider::Snapshotter => launch.args(sidecar).args([no_groups, "--extra-create-metadata=true"]),
            Provider::SnapshotController => {
                launch.args([format!("--kubeconfig={kubeconfig}"), no_groups.to_owned()])
            }
            Provider::IngressController => {
                launch.arg(format!("--config={}", self.dir.file(INGRESS_CONFIG).display()))
            }
        })
    }
}
