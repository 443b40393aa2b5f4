//! Random worlds with random outages: the laws that the world checks at each act hold, and every run ends.

use common::api::deorbit::Kind;
use proptest::prelude::*;
use serde_json::json;

use super::world::*;
use crate::plan::found::found;
use crate::plan::inventory::merge;

prop_compose! {
    fn worlds()(
        claims in prop::collection::vec((0_u8..6, any::<bool>()), 0..6),
        services in prop::collection::vec(0_u8..5, 0..4),
        (retained, leftovers, freeze, sweep) in (any::<bool>(), any::<bool>(), 0_usize..3, any::<bool>()),
        (start, length, cloud_start, cloud_length) in (0_usize..30, 0_usize..200, 0_usize..30, 0_usize..200),
        (csi_dead, ccm_dead, recreates, stale) in any::<(bool, bool, bool, bool)>(),
        dies in prop::option::of(0_usize..20),
        aborted in prop::option::weighted(0.2, 0_usize..40),
    ) -> World {
        let mut world = World::new(spec(json!({
            "openstack": with_cloud(), "retained": if retained { "Delete" } else { "Keep" }, "sweep": sweep,
            "leftovers": if leftovers { "Delete" } else { "Report" }, "freeze": (["Policy", "Webhook", "None"][freeze]),
            "timeouts": {"hang": "1h", "perObject": "5m", "apiUnavailable": "2m"},
        })));
        for (number, (variant, snapshot)) in claims.into_iter().enumerate() {
            let name = format!("c{number}");
            world.claim(&name);
            let id = format!("vol-{name}");
            match variant {
                1 => world.volume(&name).retain = true,
                2 => world.cluster.claims[number].meta.keep = true,
                3 => world.cinder(&name).keep = true,
                4 => world.cluster.volumes.retain(|volume| volume.id != id),
                5 => world.cinder(&name).status = "error_deleting".into(),
                _ => {}
            }
            if matches!(variant, 2..=4) || (variant == 1 && !retained) {
                world.untouchable.push(id);
            }
            if snapshot && variant != 4 {
                world.snapshot(&format!("s{number}"), &name);
            }
        }
        for (number, variant) in services.into_iter().enumerate() {
            let name = format!("w{number}");
            world.service(&name);
            match variant {
                1 => world.cluster.services[number].class = Some("metallb".into()),
                2 => world.balancer(&name).tags.push("kube_service_other_b_x".into()),
                3 => world.balancer(&name).name = "my-own".into(),
                4 => world.cluster.services[number].keep_floating_ip = true,
                _ => {}
            }
        }
        if stale {
            world.stale_leases();
        }
        world.course = Course {
            csi_dead, ccm_dead, recreates, outage: start..start + length, cloud_outage: cloud_start..cloud_start + cloud_length,
            dies_before_acts: dies,
            aborted,
            ..Course::default()
        };
        world
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_within_the_law(mut world in worlds()) {
        world.finish();
        let blind = world.course.outage.contains(&(world.walk - 1));
        prop_assert!(!world.cluster.freeze.any() || blind, "a freeze is left");
        let cloud = world.cloud.as_ref().unwrap();
        for id in &world.untouchable {
            prop_assert!(cloud.volumes.contains_key(id), "{} is gone", id);
        }
    }

    #[test]
    fn records_are_merged_once_and_for_all(mut world in worlds()) {
        world.course = Course::default();
        for _ in 0..4 {
            world.step();
        }
        let found = found(&Default::default(), &world.run, &world.cluster, world.cloud.as_ref());
        let once = merge(&world.run.records, &found);
        prop_assert_eq!(&merge(&once, &found), &once);
        prop_assert!(once.iter().filter(|one| one.kind == Kind::Volume).count() <= 12);
    }
}
