//! The preview of a dry run: the deletes of a real run, and everything that it keeps.

use common::api::deorbit::{Kind, Phase};
use common::plan::Reason as _;
use common::routes::Route;
use serde_json::json;

use super::env::*;
use crate::names;
use crate::observe::snapshot::{BlockStorage, Pod, Routes};
use crate::plan::preview;
use crate::settings::Settings;

#[test]
fn a_dry_run_shows_exactly_the_deletes_of_a_real_one() {
    let build = |dry: bool| {
        let mut env = deleting_credential(json!({"dryRun": dry}));
        env.claim("data");
        env.claim("kept").meta.keep = true;
        env.snapshot("daily", "data");
        env.service("web");
        env.cluster.pods.push(Pod {
            meta: meta("a", "pod"),
            claims: vec!["data".into()],
            unscheduled: false,
        });
        env
    };
    let mut dry = build(true);
    let preview = preview::preview(&Settings::default(), &dry.snapshot_now(), dry.now);
    dry.finish();
    assert_eq!((dry.run.status.phase, dry.deletes(), dry.did("refuse")), (Phase::Planned, 0, 0));
    let planned = dry.run.status.conditions.iter().find(|one| one.kind == "Planned").unwrap();
    assert!(planned.message.contains("last the application credential cred, "), "{planned:?}");
    let mut real = build(false);
    real.finish();
    let deletes: Vec<_> = real.acts.iter().filter(|act| act.starts_with("delete")).cloned().collect();
    assert_eq!(preview.steps.iter().map(ToString::to_string).collect::<Vec<_>>(), deletes);
    assert_eq!(dry.run.records, real.run.records);
    let count = |code: &str| preview.problems.iter().filter(|one| one.because.code() == code).count();
    assert_eq!(count("Kept"), 1, "what is kept is reported");
    assert_eq!(
        (count("DeletedWithOwner"), preview.problems.len()),
        (1, 2),
        "so is the floating IP: {preview}"
    );
}

#[test]
fn a_preview_lists_what_is_deleted_without_a_step_of_its_own() {
    let mut env =
        proven(json!({"discoverByClusterName": true, "orphanPolicy": "Delete", "retainedVolumes": "Delete",
        "resources": {"routes": {"routerID": "r1", "podCIDRs": ["10.0.0.0/8"]}}}));
    // A claim that is gone already: its volume is deleted by the policy.
    env.claim("released");
    env.cluster.claims.clear();
    env.cluster.volumes[0].claim = Some("uid-gone".into());
    let cloud = env.cloud.as_mut().unwrap();
    let lost = BlockStorage { name: "pvc-x".into(), cluster: Some("prod".into()), ..BlockStorage::default() };
    cloud.volumes.insert("lost".into(), lost);
    let mut snapshot = env.snapshot_now();
    if let Some(Ok(cloud)) = &mut snapshot.cloud {
        cloud.whole = true;
        cloud.routes = Some(Err("no such router".into()));
    }
    let preview = preview::preview(&Settings::default(), &snapshot, env.now);
    assert!(preview.steps.is_empty(), "{preview}");
    let text = preview.to_string();
    for words in ["vol-released of PersistentVolume", "lost (pvc-x): no object names it", "no such router"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_preview_finds_what_drivers_name_after_an_object_without_an_id() {
    let mut env = proven(json!({"discoverByClusterName": true, "orphanPolicy": "Delete"}));
    env.claim("data");
    env.snapshot("young", "data");
    env.cluster.contents[0].id = None;
    env.cluster.snapshots[0].meta.keep = true;
    let name = names::made_for(Kind::Snapshot, "uid-young");
    let young = env.cloud.as_mut().unwrap().snapshots.get_mut("snap-young").unwrap();
    (young.name, young.cluster) = (name, Some("prod".into()));
    let mut snapshot = env.snapshot_now();
    if let Some(Ok(cloud)) = &mut snapshot.cloud {
        cloud.whole = true;
    }
    let text = preview::preview(&Settings::default(), &snapshot, env.now).to_string();
    assert!(text.contains("snap-young of VolumeSnapshot a/young: "), "{text}");
    assert!(!text.contains("no object names it"), "{text}");
}

#[test]
fn a_preview_keeps_the_routes_to_the_nodes_of_a_cluster_that_survives() {
    let asked = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let route = |last: u8| Route::new(format!("10.244.{last}.0/24"), format!("10.0.0.{last}"));
    for (survives, removed) in [(true, vec![6]), (false, vec![5, 6])] {
        let mut env = proven(json!({"resources": asked, "clusterSurvives": survives}));
        env.node("n5", "10.0.0.5", true);
        let mut snapshot = env.snapshot_now();
        if let Some(Ok(cloud)) = &mut snapshot.cloud {
            let observed =
                Routes { all: vec![route(5), route(6)], stale: vec![route(6)], ..Routes::default() };
            cloud.routes = Some(Ok(observed));
        }
        let preview = preview::preview(&Settings::default(), &snapshot, env.now);
        let steps: Vec<_> = preview.steps.iter().map(ToString::to_string).collect();
        assert_eq!(steps.len(), 1, "{preview}");
        let listed: Vec<u8> =
            [5, 6].into_iter().filter(|&one| steps[0].contains(&route(one).to_string())).collect();
        assert_eq!(listed, removed, "{preview}");
        let kept = preview.problems.iter().filter(|one| one.because.code() == "Kept").count();
        assert_eq!(kept, usize::from(survives), "{preview}");
    }
}
