//! Every change of an existing table changes its fingerprint.

use super::*;

const TABLE: &str = "inet egress_router_net1";

/// Asserts that each of these changes, which nft(8) makes to a complete table, is seen.
fn assert_seen(changes: &'static [&'static str]) {
    isolated(move || {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        for change in changes {
            nftables::install(&mut socket, &ruleset).unwrap();
            let before = fingerprint(&mut socket, &ruleset);
            nft(&[&change.replace("TABLE", TABLE)]);
            assert_ne!(fingerprint(&mut socket, &ruleset), before, "{change}");
            nftables::delete(&mut socket, nftables::Family::Inet, &ruleset.table).unwrap();
        }
    });
}

/// The same for a rule: `verb`, the chain, the comment of the rule, and the rest of nft(8)'s command.
fn assert_rule_seen(changes: &'static [(&'static str, &'static str, &'static str, &'static str)]) {
    isolated(move || {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        for (verb, chain, comment, rest) in changes {
            nftables::install(&mut socket, &ruleset).unwrap();
            let before = fingerprint(&mut socket, &ruleset);
            let page = nft(&["-a", "list", "chain", "inet", "egress_router_net1", chain]);
            let line = page.lines().find(|line| line.contains(&format!("\"{comment}\""))).unwrap();
            let (place, at) =
                (if *verb == "add" { "position" } else { "handle" }, line.rsplit(' ').next().unwrap());
            nft(&[&format!("{verb} rule {TABLE} {chain} {place} {at} {rest}")]);
            assert_ne!(fingerprint(&mut socket, &ruleset), before, "{verb} {chain} {comment} {rest}");
            nftables::delete(&mut socket, nftables::Family::Inet, &ruleset.table).unwrap();
        }
    });
}

#[test]
fn changed_rules_are_seen() {
    assert_rule_seen(&[
        ("delete", "forward", "no forwarding from the attachment", ""),
        ("delete", "allow", "neighbour discovery and MLD", ""),
        ("add", "allow", "neighbour discovery and MLD", "tcp dport 22 accept comment \"mine\""),
        ("replace", "allow", "neighbour discovery and MLD", "accept comment \"neighbour discovery and MLD\""),
        (
            "replace",
            "postrouting_snat",
            "snat to the attachment's address",
            "oifname \"net1\" meta nfproto ipv4 ip saddr != 192.168.50.10 ip saddr != 192.168.50.11 \
             snat ip to 192.168.50.10 random comment \"snat to the attachment's address\"",
        ),
    ]);
    assert_seen(&[
        "flush chain TABLE prerouting_mark",
        "insert rule TABLE output accept",
        "add rule TABLE forward counter accept",
    ]);
}

#[test]
fn changed_sets_chains_and_tables_are_seen() {
    assert_seen(&[
        "delete element TABLE allowed4 { 10.0.0.0/8 }",
        "add element TABLE allowed6 { 2001:db8:2::/48 }",
        "add element TABLE discovery { 128 }",
        "add set TABLE mine { type ipv4_addr; }",
        "add chain TABLE forward { policy drop; }",
        "add chain TABLE mine",
        "add table TABLE { flags dormant; }",
        "flush chain TABLE output; delete chain TABLE output",
    ]);
}

/// Packets must not look like a change.
#[test]
fn other_tables_and_elements_in_another_order_are_no_change() {
    isolated(|| {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        let before = fingerprint(&mut socket, &ruleset);
        nft(&["add table inet other; add chain inet other c; add rule inet other c counter accept"]);
        nft(&[&format!("delete element {TABLE} discovery {{ 135 }}")]);
        nft(&[&format!("add element {TABLE} discovery {{ 135 }}")]);
        assert_eq!(fingerprint(&mut socket, &ruleset), before);
    });
}
