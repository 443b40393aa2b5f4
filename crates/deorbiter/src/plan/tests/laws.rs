//! Random simulations with random outages: the invariants that are checked at each action hold, and every run ends.

use common::api::deorbit::Kind;
use proptest::prelude::*;
use serde_json::json;

use super::env::*;
use crate::plan::found::found;
use crate::plan::inventory::merge;

prop_compose! {
    fn envs()(
        claims in prop::collection::vec((0_u8..6, any::<bool>()), 0..6),
        services in prop::collection::vec(0_u8..5, 0..4),
        (retained, leftovers, block, discover) in (any::<bool>(), any::<bool>(), 0_usize..3, any::<bool>()),
        (start, length, cloud_start, cloud_length) in (0_usize..30, 0_usize..200, 0_usize..30, 0_usize..200),
        (refused, refused_for, cloud_refused, cloud_refused_for) in (0_usize..30, 0_usize..60, 0_usize..30, 0_usize..60),
        (csi_stopped, ccm_stopped, recreates, stale) in any::<(bool, bool, bool, bool)>(),
        dies in prop::option::of(0_usize..20),
        aborted in prop::option::weighted(0.2, 0_usize..40),
    ) -> TestEnv {
        let mut env = TestEnv::new(spec(json!({
            "openstack": with_cloud(), "retainedVolumes": if retained { "Delete" } else { "Keep" }, "discoverByClusterName": discover,
            "orphanPolicy": if leftovers { "Delete" } else { "Report" }, "creationBlock": (["Policy", "Webhook", "None"][block]),
            "timeouts": {"total": "1h", "perObject": "5m", "apiUnavailable": "2m"},
        })));
        for (number, (variant, snapshot)) in claims.into_iter().enumerate() {
            let name = format!("c{number}");
            env.claim(&name);
            let id = format!("vol-{name}");
            match variant {
                1 => env.volume(&name).retain = true,
                2 => env.cluster.claims[number].meta.keep = true,
                3 => env.cinder(&name).keep = true,
                4 => env.cluster.volumes.retain(|volume| volume.id != id),
                5 => env.cinder(&name).status = "error_deleting".into(),
                _ => {}
            }
            if matches!(variant, 2..=4) || (variant == 1 && !retained) {
                env.untouchable.push(id);
            }
            if snapshot && variant != 4 {
                env.snapshot(&format!("s{number}"), &name);
            }
        }
        for (number, variant) in services.into_iter().enumerate() {
            let name = format!("w{number}");
            env.service(&name);
            match variant {
                1 => env.cluster.services[number].class = Some("metallb".into()),
                2 => env.balancer(&name).tags.push("kube_service_other_b_x".into()),
                3 => env.balancer(&name).name = "my-own".into(),
                4 => env.cluster.services[number].keep_floating_ip = true,
                _ => {}
            }
        }
        if stale {
            env.stale_leases();
        }
        env.course = Course {
            csi_stopped, ccm_stopped, recreates, outage: start..start + length, cloud_outage: cloud_start..cloud_start + cloud_length,
            refused: refused..refused + refused_for,
            cloud_refused: cloud_refused..cloud_refused + cloud_refused_for,
            dies_before_acts: dies,
            aborted,
            ..Course::default()
        };
        env
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_and_keeps_the_invariants(mut env in envs()) {
        env.finish();
        let last = env.reconcile - 1;
        let blind = env.course.outage.contains(&last) || env.course.refused.contains(&last);
        prop_assert!(!env.cluster.block.any() || blind || !env.gone, "a block outlives its Deorbit");
        let cloud = env.cloud.as_ref().unwrap();
        for id in &env.untouchable {
            prop_assert!(cloud.volumes.contains_key(id), "{} is gone", id);
        }
    }

    #[test]
    fn merging_the_same_records_again_changes_nothing(mut env in envs()) {
        env.course = Course::default();
        for _ in 0..4 {
            env.step();
        }
        let found = found(&Default::default(), &env.run, &env.cluster, env.cloud.as_ref());
        let once = merge(&env.run.records, &found, true);
        prop_assert_eq!(&merge(&once, &found, true), &once);
        prop_assert!(once.iter().filter(|one| one.kind == Kind::Volume).count() <= 12);
    }
}
