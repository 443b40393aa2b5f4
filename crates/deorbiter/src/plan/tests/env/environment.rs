//! The controllers of the cluster: what they do between two reconciliations, if they run.

use common::api::deorbit::{Phase, Provider};

use super::TestEnv;
use crate::names;
use crate::observe::snapshot::{Claim, Service, Volume};

impl TestEnv {
    /// Runs the controllers of the cluster once.
    pub(super) fn environment(&mut self) {
        self.cluster.pods.retain(|pod| pod.meta.deleting.is_none());
        // They have no finalizer.
        self.cluster.ingresses.retain(|ingress| ingress.meta.deleting.is_none());
        if self.run.spec.provider == Provider::Any {
            return self.other_controllers();
        }
        if !self.course.csi_stopped {
            self.snapshotter();
        }
        let cluster = &mut self.cluster;
        let held: Vec<String> = cluster.pods.iter().flat_map(|pod| pod.claims.clone()).collect();
        let removed = |one: &Claim| one.meta.deleting.is_some() && !held.contains(&one.meta.name);
        let released: Vec<String> =
            cluster.claims.iter().filter(|one| removed(one)).filter_map(|one| one.volume.clone()).collect();
        cluster.claims.retain(|one| !removed(one));
        for volume in cluster.volumes.iter_mut().filter(|one| released.contains(&one.meta.name)) {
            volume.phase = "Released".into();
        }
        if !self.course.csi_stopped {
            self.provisioner();
        }
        if !self.course.ccm_stopped {
            self.cloud_controller();
        }
        // Its creation began before the block was in force.
        if self.course.recreates && self.made == 0 && self.run.status.phase == Phase::Deleting {
            self.made = 1;
            self.claim("late");
        }
        if self.course.makes == Some(self.run.status.phase) && self.made == 0 {
            self.made = 1;
            self.claim("late");
        }
    }

    fn snapshotter(&mut self) {
        let cluster = &mut self.cluster;
        let deleted = cluster.snapshots.iter().filter(|one| one.meta.deleting.is_some());
        let going: Vec<String> = deleted.filter_map(|one| one.content.clone()).collect();
        for content in cluster.contents.iter().filter(|one| going.contains(&one.meta.name) && !one.retain) {
            if let (Some(cloud), Some(id)) = (&mut self.cloud, &content.id) {
                cloud.snapshots.remove(id);
            }
        }
        cluster.contents.retain(|one| !going.contains(&one.meta.name) || one.retain);
        cluster.snapshots.retain(|one| one.meta.deleting.is_none());
    }

    fn provisioner(&mut self) {
        let snapped: Vec<String> = self
            .cloud
            .iter()
            .flat_map(|cloud| cloud.snapshots.values().map(|one| one.volume.clone()))
            .collect();
        let stuck: Vec<String> = self
            .cloud
            .iter()
            .flat_map(|cloud| cloud.volumes.iter().filter(|(_, one)| one.status == "error_deleting"))
            .map(|(id, _)| id.clone())
            .collect();
        let goes = |one: &Volume| {
            one.phase == "Released" && !one.retain && !snapped.contains(&one.id) && !stuck.contains(&one.id)
        };
        for volume in self.cluster.volumes.iter().filter(|one| goes(one)) {
            assert!(!self.untouchable.contains(&volume.id), "the driver was made to delete {}", volume.id);
            if let Some(cloud) = &mut self.cloud {
                cloud.volumes.remove(&volume.id);
            }
        }
        self.cluster.volumes.retain(|one| !goes(one));
    }

    fn cloud_controller(&mut self) {
        let goes = |one: &Service| one.former || one.meta.deleting.is_some();
        for service in self.cluster.services.iter().filter(|one| goes(one)) {
            let (Some(cloud), Some(id)) = (&mut self.cloud, &service.load_balancer) else { continue };
            let tag = names::service_tag("prod", &service.meta.namespace, &service.meta.name);
            let Some(balancer) = cloud.load_balancers.get_mut(id) else { continue };
            balancer.tags.retain(|one| *one != tag);
            if balancer.tags.is_empty() && balancer.name.starts_with(names::SERVICE_PREFIX) {
                let port = balancer.vip_port_id.clone();
                cloud.load_balancers.remove(id);
                if !service.keep_floating_ip {
                    cloud.floating_ips.retain(|_, ip| ip.port_id != port);
                }
            }
        }
        self.cluster.services.retain(|one| !goes(one));
        if self.course.recreates_routes {
            let removed = self.run.book.routes.iter().filter(|one| one.removed.is_some());
            let recorded: Vec<_> = removed.map(|one| one.route()).collect();
            let routes = self.routes();
            let missing = recorded.into_iter().filter(|one| !routes.all.contains(one)).collect::<Vec<_>>();
            routes.all.extend(missing);
        }
    }
}
