//! The feature table, row by row, and those defects of the original that a plan can show.

use std::collections::BTreeSet;
use std::time::Duration;

use common::api::deorbit::{Kind, OrphanPolicy, Phase};
use common::plan::Reason as _;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{Block, BlockStorage, Cluster, Pod, Version};
use crate::plan::Act;
use crate::settings::Settings;

#[test]
fn claims_snapshots_and_services_are_deleted_and_verified() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.snapshot("daily", "data");
    env.service("web");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    let cloud = env.cloud.as_ref().unwrap();
    assert!(cloud.volumes.is_empty() && cloud.snapshots.is_empty() && cloud.load_balancers.is_empty());
    assert_eq!((env.did("by a ValidatingAdmissionPolicy"), env.did("lift the block")), (1, 0));
    assert!(env.run.records.iter().any(|one| one.kind == Kind::FloatingIP));
}

#[test]
fn d1_another_driver_s_claim_is_left_alone_even_with_cinder_s_class() {
    let mut env = proven(json!({}));
    env.claim("data").volume = Some("nfs-1".into());
    env.cluster.volumes.clear();
    env.untouchable = vec!["uid-data".into()];
    env.finish();
    assert_eq!((env.cluster.claims.len(), env.run.records.len()), (1, 0));
}

#[test]
fn d3_retained_volumes_are_kept_with_their_claims_and_not_waited_for() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.volume("data").retain = true;
    env.untouchable = vec!["vol-data".into()];
    env.finish();
    assert_eq!((env.run.status.phase, env.cluster.claims.len()), (Phase::Succeeded, 1));
}

#[test]
fn retained_volumes_are_deleted_where_the_spec_says_so() {
    let mut env = proven(json!({"retainedVolumes": "Delete"}));
    env.claim("data");
    env.volume("data").retain = true;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert!(env.cloud.unwrap().volumes.is_empty());
}

#[test]
fn d4_pods_that_hold_claims_go_unless_they_are_kept_out() {
    for (choice, deleted) in [("Delete", 1), ("None", 0)] {
        let mut env = proven(json!({"podDeletion": choice, "timeouts": {"total": "1h"}}));
        env.claim("data");
        for claim in ["data", "other"] {
            let meta = meta("a", &format!("pod-{claim}"));
            env.cluster.pods.push(Pod { meta, claims: vec![claim.into()], unscheduled: false });
        }
        env.untouchable = vec!["uid-pod-other".into()];
        env.finish();
        assert_eq!(env.did("delete Pod"), deleted);
        assert_eq!(
            (env.run.status.phase, env.run.status.debris_count),
            (Phase::Succeeded, 1 - deleted as i64)
        );
    }
}

#[test]
fn d5_recreated_objects_are_recorded_and_deleted_again() {
    let mut env = proven(json!({"creationBlock": "None"}));
    env.course.recreates = true;
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.run.records.iter().filter(|one| one.kind == Kind::Volume).count(), 2);
    assert!(env.cloud.unwrap().volumes.is_empty());
}

#[test]
fn d6_a_volume_that_is_provisioned_after_its_claim_is_gone_is_found() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    env.claim("data").volume = None;
    let volume = env.cluster.volumes.pop().unwrap();
    let cinder = env.cloud.as_mut().unwrap().volumes.remove(&volume.id).unwrap();
    while !env.cluster.claims.is_empty() {
        env.step();
    }
    let late = BlockStorage { name: "pvc-uid-data".into(), ..cinder };
    env.cloud.as_mut().unwrap().volumes.insert(volume.id, late);
    env.finish();
    assert!(env.cloud.as_ref().unwrap().volumes.is_empty(), "{:?}", env.acts);
    assert_eq!(env.did("in OpenStack"), 1);
}

#[test]
fn an_unbound_claim_is_deleted_only_in_the_version_that_was_observed() {
    let mut env = proven(json!({}));
    env.unbound_claim("data");
    env.until(Phase::Deleting);
    let decision = crate::plan::plan(&Settings::default(), &env.snapshot_now(), env.now);
    let Act::DeleteObject { object, .. } = &decision.plan.steps[0].action.act else {
        panic!("{:?}", decision.plan)
    };
    assert_eq!(object.version.as_str(), "1");
}

#[test]
fn d7_an_outage_counts_from_its_first_failure() {
    let timeouts = json!({"total": "24h", "apiUnavailable": "10m", "perObject": "12h"});
    let mut env = proven(json!({"timeouts": timeouts}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    env.now += Duration::from_secs(6 * 3600);
    env.course.outage = env.reconcile..env.reconcile + 1;
    env.step();
    assert_eq!(env.run.status.phase, Phase::Deleting, "one failure after six hours is no outage");
    env.step();
    assert_eq!(env.run.book.unreachable_since, None);
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.run.status.debris[0].id.as_deref(), Some("vol-data"));
}

#[test]
fn d8_a_target_that_was_never_reached_ends_with_a_report() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.outage = 0..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.run.status.debris[0].kind, "Cluster");
    assert_eq!(env.condition("Complete").1, "CompletedWithDebris");
}

#[test]
fn a_run_that_ends_before_the_first_delete_lists_what_was_found() {
    let mut env = proven(json!({"timeouts": {"total": "1h"}}));
    env.claim("data");
    env.course.cloud_outage = 0..usize::MAX;
    env.finish_blind();
    assert_eq!(env.deletes(), 0);
    let debris = &env.run.status.debris;
    assert!(debris.iter().any(|one| one.id.as_deref() == Some("vol-data")), "{debris:?}");
}

#[test]
fn with_the_target_gone_leftovers_are_deleted_by_their_ids() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert!(env.cloud.as_ref().unwrap().volumes.is_empty());
}

#[test]
fn stopped_controllers_are_not_waited_for_where_leftovers_are_deleted() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    (env.course.csi_stopped, env.course.ccm_stopped) = (true, true);
    env.stale_leases();
    env.claim("data");
    env.snapshot("daily", "data");
    env.service("web");
    env.finish();
    let status = &env.run.status;
    assert_eq!(status.phase, Phase::Succeeded);
    assert!(
        status.completion_time.unwrap().duration_since(env.run.book.deleting_since.unwrap()).as_secs() < 60
    );
    assert_eq!(env.did("in OpenStack"), 4, "{:#?}", env.acts);
}

/// All Events are on one Deorbit.
#[test]
fn each_stopped_controller_and_the_debris_have_events_of_their_own() {
    let mut env = proven(json!({"timeouts": {"perObject": "1m", "total": "5m"}}));
    (env.course.csi_stopped, env.course.ccm_stopped) = (true, true);
    env.stale_leases();
    let mut csi = env.cluster.providers[0].clone();
    csi.name = "cinder-csi-openstack-org".into();
    env.cluster.providers.push(csi);
    env.claim("data");
    let mut about = BTreeSet::new();
    while !env.run.status.phase.is_final() {
        let problems = env.step().plan.problems;
        about.extend(problems.iter().filter_map(|one| one.because.related()).map(|one| (one.kind, one.name)));
    }
    let about: Vec<_> = about.iter().map(|(kind, name)| (kind.as_str(), name.as_str())).collect();
    assert_eq!(
        about,
        [
            ("Lease", "cinder-csi-openstack-org"),
            ("Lease", "cloud-controller-manager"),
            ("Volume", "vol-data")
        ]
    );
}

#[test]
fn d11_without_credentials_load_balancers_are_given_time_after_the_last_service() {
    let mut env = TestEnv::new(spec(json!({})));
    env.service("web");
    let began = loop {
        env.step();
        if env.run.status.phase == Phase::Verifying {
            break env.run.book.phase_since.unwrap();
        }
    };
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert!(env.run.status.completion_time.unwrap().duration_since(began).as_secs() >= 120);
}

#[test]
fn a_service_whose_type_changed_is_recorded_until_its_load_balancer_is_gone() {
    for (leftovers, debris) in [("Delete", 0), ("Report", 2)] {
        let mut env =
            proven(json!({"orphanPolicy": leftovers, "timeouts": {"perObject": "1m", "total": "10m"}}));
        env.course.ccm_stopped = true;
        env.stale_leases();
        env.service("web").former = true;
        env.until(Phase::Deleting);
        let decision = crate::plan::plan(&Settings::default(), &env.snapshot_now(), env.now);
        let Act::DeleteObject { object, .. } = &decision.plan.steps[0].action.act else {
            panic!("{:?}", decision.plan)
        };
        assert_eq!(object.version.as_str(), "1", "one that has lost it is not deleted");
        env.finish();
        let (status, cloud) = (&env.run.status, env.cloud.as_ref().unwrap());
        assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, debris), "{:?}", status.debris);
        assert_eq!(cloud.load_balancers.is_empty(), leftovers == "Delete");
        let record = env.run.records.iter().find(|one| one.id.as_deref() == Some("lb-web")).unwrap();
        assert_eq!((record.kind, record.kept.as_ref()), (Kind::LoadBalancer, None));
    }
}

#[test]
fn a_service_that_loses_its_load_balancer_in_the_run_is_kept_and_the_end_is_verified() {
    let mut env = proven(json!({}));
    env.course.ccm_stopped = true;
    env.service("web").former = true;
    env.course.refuses = Some("uid-web".into());
    for _ in 0..8 {
        env.step();
    }
    assert_eq!(env.run.status.phase, Phase::Deleting);
    // The cloud controller manager runs again: load balancer and finalizer are removed, the Service stays.
    env.course.ccm_stopped = false;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
}

#[test]
fn keep_annotation_and_setting_count_for_a_service_whose_type_changed() {
    for (change, keep) in [(json!({}), true), (json!({"resources": {"services": "Keep"}}), false)] {
        let mut env = proven(change);
        env.course.ccm_stopped = true;
        let service = env.service("web");
        (service.former, service.meta.keep) = (true, keep);
        env.untouchable = ["uid-web", "lb-web", "fip-web"].map(str::to_owned).to_vec();
        env.finish();
        assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0), "{:?}", env.acts);
        assert!(env.run.records[0].kept.is_some());
    }
}

#[test]
fn d12_foreign_classes_shared_and_user_made_load_balancers() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    env.service("metal").class = Some("metallb".into());
    env.service("shared");
    env.balancer("shared").tags.push("kube_service_other_b_api".into());
    env.service("mine");
    env.balancer("mine").name = "my-own".into();
    env.untouchable = vec!["uid-metal".into(), "lb-metal".into()];
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
    let left: Vec<&str> = env.cloud.as_ref().unwrap().load_balancers.keys().map(String::as_str).collect();
    assert_eq!(left, ["lb-metal", "lb-mine", "lb-shared"]);
    assert_eq!(env.did("in OpenStack"), 0);
}

#[test]
fn a_load_balancer_of_another_cluster_with_the_same_service_name_is_kept_without_a_cluster_name() {
    let mut env = proven(json!({"orphanPolicy": "Delete", "clusterName": "", "timeouts": {"total": "1h"}}));
    env.course.ccm_stopped = true;
    env.stale_leases();
    env.service("web");
    env.balancer("web").tags.push("kube_service_other_a_web".into());
    env.finish();
    assert_eq!(env.did("in OpenStack"), 0, "{:?}", env.acts);
    assert_eq!(env.cloud.as_ref().unwrap().load_balancers.len(), 1);
}

#[test]
fn floating_ips_with_the_keep_annotation_are_kept() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    env.service("web").keep_floating_ip = true;
    env.untouchable = vec!["fip-web".into()];
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.cloud.as_ref().unwrap().floating_ips.len(), 1);
}

#[test]
fn keep_annotations_count_on_every_object() {
    for place in ["claim", "volume", "cinder", "snapshot"] {
        let mut env = proven(json!({"orphanPolicy": "Delete"}));
        env.claim("data");
        match place {
            "claim" => env.cluster.claims[0].meta.keep = true,
            "volume" => env.volume("data").meta.keep = true,
            "cinder" => env.cinder("data").keep = true,
            _ => {
                env.snapshot("daily", "data");
                env.cluster.snapshots[0].meta.keep = true;
            }
        }
        env.untouchable = vec!["vol-data".into(), "snap-daily".into()];
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{place}");
    }
}

#[test]
fn error_deleting_is_reported_at_once_and_only_the_total_limit_ends_the_wait() {
    let mut env = proven(json!({"timeouts": {"total": "1h"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.cinder("data").status = "error_deleting".into();
    env.until(Phase::Verifying);
    let begun = env.run.book.deleting_since.unwrap();
    let decision = env.step();
    assert!(decision.plan.problems.iter().any(|one| one.because.to_string().contains("error_deleting")));
    assert!(env.now.duration_since(begun).as_secs() < 60);
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1));
    assert!(status.debris[0].reason.contains("error_deleting"));
    assert!(status.completion_time.unwrap().duration_since(begun).as_secs() >= 3500);
}

#[test]
fn a_run_whose_target_is_gone_does_not_wait_for_a_volume_in_error_deleting() {
    let timeouts = json!({"apiUnavailable": "2m", "perObject": "5m", "total": "10h"});
    let mut env = proven(json!({"orphanPolicy": "Delete", "timeouts": timeouts}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.cinder("data").status = "error_deleting".into();
    env.until(Phase::Deleting);
    env.course.outage = env.reconcile..usize::MAX;
    let begun = env.now;
    env.finish_blind();
    assert!(env.now.duration_since(begun).as_secs() < 3600, "{:?}", env.run.status);
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{status:?}");
    assert!(status.debris[0].reason.contains("error_deleting"), "{status:?}");
}

/// S6
#[test]
fn an_object_that_takes_too_long_is_reported_and_releases_nothing() {
    for end in ["Release", "Block"] {
        let timeouts = json!({"perObject": "5m", "total": "3h"});
        let mut env = proven(json!({"onTimeout": end, "timeouts": timeouts}));
        env.course.csi_stopped = true;
        env.claim("data");
        let mut reported = 0;
        while env.run.book.clock.is_none_or(|begun| env.now.duration_since(begun).as_secs() < 2 * 3600) {
            let decision = env.step();
            reported += usize::from(decision.plan.problems.iter().any(|one| one.because.code() == "Overdue"));
            assert!(!env.run.status.phase.is_final(), "{:?}", env.run.status);
        }
        assert!(reported > 10 && env.run.status.overdue == 1, "{reported}");
        env.finish();
        let phase = if end == "Block" { Phase::Failed } else { Phase::Succeeded };
        assert_eq!((env.run.status.phase, env.run.status.debris_count), (phase, 1));
    }
}

#[test]
fn block_ends_in_failed_and_a_changed_spec_restarts_the_run() {
    let mut env = proven(json!({"onTimeout": "Block", "timeouts": {"perObject": "1m", "total": "10m"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Failed);
    assert!(env.cluster.block.any(), "nothing new while the cluster waits for you");
    // Another change does not delete more.
    env.run.spec.ttl_seconds_after_finished = Some(1 << 24);
    env.run.generation = Some(2);
    env.step();
    assert_eq!(env.run.status.phase, Phase::Failed);
    env.run.spec.orphan_policy = OrphanPolicy::Delete;
    env.run.generation = Some(3);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
}

#[test]
fn an_aborted_run_lifts_its_block_even_if_its_status_does_not_have_it() {
    for policy in [true, false] {
        let mut env = proven(json!({}));
        env.claim("data");
        env.run.held = true;
        let seen = |is: bool| is.then(Version::default);
        env.cluster.block =
            Block { policies: true, policy: seen(policy), webhook: seen(!policy), ..Block::default() };
        env.course.aborted = Some(0);
        env.finish();
        assert!(env.gone && !env.cluster.block.any());
        assert_eq!(env.deletes(), 0);
    }
}

#[test]
fn a_cluster_without_admission_policies_gets_the_webhook() {
    let mut env = proven(json!({}));
    env.cluster.block.policies = false;
    env.claim("data");
    for _ in 0..5 {
        env.step();
    }
    assert!(env.cluster.block.webhook.is_some());
}

#[test]
fn protection_stops_everything() {
    let mut env = proven(json!({}));
    env.run.protected = true;
    env.claim("data");
    for _ in 0..10 {
        env.step();
    }
    assert!(env.acts.is_empty());
}

#[test]
fn an_empty_cluster_is_done_at_once() {
    let mut env = proven(json!({}));
    let block = Block { policies: true, ..Block::default() };
    env.cluster = Cluster { uid: Some("target".into()), block, ..Cluster::default() };
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
}
