//! Compares the plugin's table with the same table created by nft(8): its listing, and the kernel's expressions.

use super::*;

/// Lists, redirects, both families, several addresses.
pub(super) fn everything() -> Firewall {
    let destinations = Destinations {
        redirects: redirects().redirects,
        fallback_v4: Some("203.0.113.9".parse().unwrap()),
        ..listed(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8:1::/48"])
    };
    let addresses = ["192.168.50.10", "2001:db8:50::10", "192.168.50.11"];
    let forwards = Forwards { v4: true, v6: true };
    Firewall { forwards, ..firewall(&addresses, destinations) }
}

fn redirects() -> Destinations {
    Destinations {
        redirects: vec![
            redirect(80, Protocol::Tcp, "203.0.113.1", Some(8080)),
            redirect(53, Protocol::Udp, "2001:db8:2::1", None),
            redirect(3868, Protocol::Sctp, "2001:db8:2::1", Some(3869)),
        ],
        fallback_v6: Some("2001:db8:2::9".parse().unwrap()),
        ..Destinations::default()
    }
}

/// The plugin's table and the one that nft(8) creates from its listing `golden` have the same listing, the same JSON and the same expressions
/// in the kernel.
fn assert_listed(firewall: Firewall, golden: &'static str) {
    isolated(move || {
        let ours = seen(move || drop(nftables::install(&mut netfilter(), &firewall.ruleset()).unwrap()));
        if std::env::var_os("SHOW_LISTING").is_some() {
            println!("{}", ours.page);
        }
        let nfts = seen(move || {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut file, golden.as_bytes()).unwrap();
            nft(&["-f", file.path().to_str().unwrap()]);
        });
        // Another version of nft may have another format, but the same one for both.
        assert_eq!(ours.page, nfts.page);
        assert_eq!(ours.json, nfts.json);
        assert_eq!(ours.expressions, nfts.expressions);
    });
}

struct Seen {
    page: String,
    json: serde_json::Value,
    expressions: String,
}

/// The listing of nft(8) in a new namespace after `make`.
fn seen(make: impl FnOnce() + Send + 'static) -> Seen {
    let (sender, receiver) = std::sync::mpsc::channel();
    isolated(move || {
        make();
        let mut json: serde_json::Value = serde_json::from_str(&nft(&["-j", "list", "ruleset"])).unwrap();
        for object in json["nftables"].as_array_mut().unwrap() {
            for described in object.as_object_mut().unwrap().values_mut() {
                described.as_object_mut().unwrap().remove("handle");
            }
        }
        let expressions = nft(&["--debug=netlink", "list", "ruleset"]);
        sender.send(Seen { page: nft(&["list", "ruleset"]), json, expressions }).unwrap();
    });
    receiver.recv().unwrap()
}

#[test]
fn an_address_and_no_destinations() {
    assert_listed(firewall(&["192.168.50.10"], Destinations::default()), include_str!("plain.nft"));
}

#[test]
fn a_list_of_both_families() {
    let destinations = listed(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8:1::/48"]);
    let firewall = firewall(&["192.168.50.10", "2001:db8:50::10"], destinations);
    assert_listed(firewall, include_str!("list.nft"));
}

#[test]
fn everything_listed_and_nothing() {
    let all = firewall(&["192.168.50.10"], listed(&["0.0.0.0/0", "::/0"]));
    assert_listed(all, include_str!("all.nft"));
    let end = listed(&["240.0.0.0/4", "10.0.0.0/8", "255.255.255.255/32", "ff00::/8"]);
    assert_listed(firewall(&["192.168.50.10"], end), include_str!("end.nft"));
    let none = Firewall { primary: BTreeMap::new(), ..firewall(&["2001:db8:50::10"], listed(&[])) };
    assert_listed(none, include_str!("nothing.nft"));
}

#[test]
fn redirects_of_both_families() {
    assert_listed(firewall(&["192.168.50.10", "2001:db8:50::10"], redirects()), include_str!("redirect.nft"));
}

#[test]
fn a_list_and_redirects_and_several_addresses() {
    assert_listed(everything(), include_str!("everything.nft"));
}

#[test]
fn there_is_no_redirect_without_an_address_for_snat() {
    let ruleset = firewall(&["192.168.50.10"], redirects()).ruleset();
    let (_, rules) = ruleset.chains.iter().find(|(chain, _)| chain.name == "prerouting_dnat").unwrap();
    assert_eq!(rules.len(), 1, "IPv6 has none");
    let without_primary = Firewall { primary: BTreeMap::new(), ..everything() }.ruleset();
    assert!(
        without_primary.chains.iter().all(|(chain, _)| chain.name != "prerouting_dnat"),
        "nothing arrives on a primary interface that does not exist"
    );
}
