//! The journal of an attachment: lost, unreadable, of another version, or of another container.

use e2e::egress_router::UPLINK;

use super::undo::{JOURNALS, RENAME, injected, plugin, strict_scene};
use super::*;

#[test]
fn an_add_that_cannot_write_its_journal_changes_nothing() {
    let scene = Scene::new();
    let plugin = plugin(&scene);
    for at in [1, 2] {
        let plugin = injected(&plugin, RENAME, "error=ENOSPC", at);
        let refusal = plugin.refused().unwrap();
        assert_eq!(refusal.error_code(), Some(5), "{refusal:#?}");
        scene.restored();
    }
}

/// A file system that the kernel has remounted after an error. The pod whose ADD failed must not stay for ever.
#[test]
fn del_without_a_journal_succeeds_in_a_read_only_folder() {
    let scene = Scene::new();
    let plugin = plugin(&scene);
    let result = plugin.add().unwrap();
    plugin.del(Some(&result)).unwrap();
    let folder = "/run/egress-router";
    let read_only = format!("mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}");
    scene.env.node.sh(&read_only).unwrap();
    let refusal = plugin.refused().unwrap();
    assert_eq!(refusal.error_code(), Some(5), "{refusal:#?}");
    plugin.del(None).unwrap();
    scene.restored();
}

#[test]
fn without_its_journal_only_the_interface_with_a_table_of_its_name_is_deleted() {
    // Lost, and unreadable.
    for lose in [format!("rm -r {JOURNALS}"), format!("echo '{{' >{JOURNALS}/pod@net1.json")] {
        let scene = Scene::new();
        let plugin = plugin(&scene);
        let (node, pod) = (&scene.env.node, &scene.pod.inside);
        plugin.add().unwrap();
        node.sh(&lose).unwrap();
        // The runtime calls DEL after an ADD that failed.
        let refusal = plugin.refused().unwrap();
        assert!(refusal.words().contains("net1 already"), "{refusal:#?}");
        plugin.del(None).unwrap();
        let left = "ip -o link show net1 2>/dev/null || true; nft list tables";
        assert_eq!(pod.sh(left).unwrap(), "", "{lose}");
        let journals = format!("find {JOURNALS} -type f 2>/dev/null || true");
        assert_eq!(node.sh(&journals).unwrap(), "", "{lose}");
        // Routes are not restored. A new attachment works nevertheless.
        assert_eq!(pod.sh("ip route show default; ip -6 route show default").unwrap(), "", "{lose}");
        let result = plugin.add().unwrap();
        for family in 0..2 {
            scene.outside_sees(OWN[family]);
        }
        plugin.check_succeeds(&result).unwrap();
        plugin.del(Some(&result)).unwrap();
        assert_eq!((pod.sh(left).unwrap(), node.sh(&journals).unwrap()), (String::new(), String::new()));
    }
}

#[test]
fn attachments_of_other_plugins_and_containers_stay() {
    let scene = Scene::new();
    let plugin = plugin(&scene);
    let (node, pod) = (&scene.env.node, &scene.pod.inside);
    // Another plugin's interface has the name.
    let netns = &scene.pod.netns;
    node.sh(&format!("ip link add net1 link {UPLINK} netns {netns} type macvlan mode bridge")).unwrap();
    let refusal = plugin.refused().unwrap();
    assert!(refusal.words().contains("net1 already"), "{refusal:#?}");
    plugin.del(None).unwrap();
    pod.sh("ip link show net1 && ip link del net1").unwrap();
    scene.restored();
    // Another container has an attachment with this name in this namespace.
    let result = plugin.add().unwrap();
    plugin.clone().env("CNI_CONTAINERID", "another").del(Some(&result)).unwrap();
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

/// After a downgrade, or an upgrade.
#[test]
fn del_works_with_the_journal_of_another_version() {
    let scene = strict_scene();
    let plugin = plugin(&scene);
    let result = plugin.add().unwrap();
    let file = format!("{JOURNALS}/pod@net1.json");
    let mut journal: Value =
        serde_json::from_str(&scene.env.node.sh(&format!("cat {file}")).unwrap()).unwrap();
    fn extend(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.values_mut().for_each(extend);
                object.insert("ofALaterVersion".to_owned(), json!([1]));
            }
            Value::Array(values) => values.iter_mut().for_each(extend),
            _ => {}
        }
    }
    extend(&mut journal["netns"]);
    journal["undo"]["defaults"].as_array_mut().unwrap().iter_mut().for_each(extend);
    journal["undo"]["ofALaterVersion"] = json!(1);
    journal["ofALaterVersion"] = json!(1);
    journal["made"] = json!({"ofALaterVersion": 1});
    scene.env.node.write(&file, "0600", &journal.to_string()).unwrap();
    // CHECK does not know this version, and CHECK is not a reason to delete the pod.
    let check = plugin.check(&result).unwrap().refusal().unwrap();
    assert!(check.words().contains("pod@net1.json"), "{check:#?}");
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}
