//! Every change of an existing table is reported.

use super::*;

const TABLE: &str = "inet egress_router_net1";

/// Asserts the differences after each of these changes, which nft(8) makes to a complete table.
fn assert_named(change: &'static [&'static str], expected: &'static [&'static str]) {
    isolated(move || {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        for line in change {
            nft(&[&line.replace("TABLE", TABLE)]);
        }
        assert_eq!(nftables::differences(&mut socket, &ruleset).unwrap(), expected, "{change:?}");
    });
}

/// The handle of the rule of `chain` whose comment is `comment`.
fn handle(chain: &str, comment: &str) -> String {
    let page = nft(&["-a", "list", "chain", "inet", "egress_router_net1", chain]);
    let line = page.lines().find(|line| line.contains(&format!("\"{comment}\""))).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn assert_rule_named(
    chain: &'static str,
    comment: &'static str,
    verb: &'static str,
    expected: &'static [&'static str],
) {
    isolated(move || {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        let (verb, rest) = verb.split_once(' ').unwrap_or((verb, ""));
        let at = handle(chain, comment);
        let place = if verb == "add" { "position" } else { "handle" };
        nft(&[&format!("{verb} rule {TABLE} {chain} {place} {at} {rest}")]);
        assert_eq!(nftables::differences(&mut socket, &ruleset).unwrap(), expected, "{verb} {rest}");
    });
}

#[test]
fn a_missing_rule_is_reported() {
    assert_rule_named(
        "forward",
        "no forwarding from the attachment",
        "delete",
        &["chain forward: the rule \"no forwarding from the attachment\" is missing or out of place"],
    );
    assert_rule_named(
        "allow",
        "neighbour discovery and MLD",
        "delete",
        &["chain allow: the rule \"neighbour discovery and MLD\" is missing or out of place"],
    );
    assert_rule_named(
        "record",
        "slot=1",
        "delete",
        &["chain record: the rule \"slot=1\" is missing or out of place"],
    );
    assert_named(
        &["flush chain TABLE prerouting_mark"],
        &[
            "chain prerouting_mark: the rule \"original direction from the primary interface\" is missing or out of place",
            "chain prerouting_mark: the rule \"reply direction to the primary interface\" is missing or out of place",
        ],
    );
}

#[test]
fn a_foreign_rule_is_reported() {
    assert_named(&["insert rule TABLE output accept"], &["chain output: rule 1 (immediate) is unexpected"]);
    assert_named(
        &["add rule TABLE forward counter accept"],
        &["chain forward: rule 9 (counter immediate) is unexpected"],
    );
    assert_rule_named(
        "allow",
        "neighbour discovery and MLD",
        "add tcp dport 22 accept comment \"mine\"",
        &["chain allow: rule 6 (\"mine\") is unexpected"],
    );
}

#[test]
fn a_changed_rule_is_reported() {
    assert_rule_named(
        "allow",
        "neighbour discovery and MLD",
        "replace accept comment \"neighbour discovery and MLD\"",
        &["chain allow: the rule \"neighbour discovery and MLD\" was modified"],
    );
    assert_rule_named(
        "postrouting_snat",
        "snat to the attachment's address",
        "replace oifname \"net1\" meta nfproto ipv4 ip saddr != 192.168.50.10 ip saddr != 192.168.50.11 \
         snat ip to 192.168.50.12 comment \"snat to the attachment's address\"",
        &["chain postrouting_snat: the rule \"snat to the attachment's address\" was modified"],
    );
    assert_rule_named(
        "postrouting_snat",
        "snat to the attachment's address",
        "replace oifname \"net1\" meta nfproto ipv4 ip saddr != 192.168.50.10 ip saddr != 192.168.50.11 \
         snat ip to 192.168.50.10 random comment \"snat to the attachment's address\"",
        &["chain postrouting_snat: the rule \"snat to the attachment's address\" was modified"],
    );
    assert_rule_named(
        "allow",
        "neighbour discovery and MLD",
        "replace reject with icmpx admin-prohibited",
        &[
            "chain allow: the rule \"neighbour discovery and MLD\" is missing or out of place",
            "chain allow: rule 5 (reject) is unexpected",
        ],
    );
}

#[test]
fn a_changed_order_is_reported() {
    isolated(|| {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        let at = handle("forward", "no forwarding from the attachment");
        nft(&[&format!("delete rule {TABLE} forward handle {at}")]);
        nft(&[&format!(
            "insert rule {TABLE} forward iifname \"net1\" drop comment \"no forwarding from the attachment\""
        )]);
        assert_eq!(nftables::differences(&mut socket, &ruleset).unwrap().len(), 2);
    });
}

#[test]
fn sets_that_differ() {
    assert_named(
        &["delete element TABLE allowed4 { 10.0.0.0/8 }"],
        &["set allowed4: 2 elements are missing, 0 are unexpected"],
    );
    assert_named(
        &["add element TABLE allowed6 { 2001:db8:2::/48 }"],
        &["set allowed6: 0 elements are missing, 2 are unexpected"],
    );
    assert_named(
        &["add element TABLE discovery { 128 }"],
        &["set discovery: 0 elements are missing, 1 are unexpected"],
    );
    assert_named(&["add set TABLE mine { type ipv4_addr; }"], &["set mine is unexpected"]);
}

#[test]
fn changed_chains_and_tables_are_reported() {
    assert_named(&["add chain TABLE forward { policy drop; }"], &["chain forward has the policy drop"]);
    assert_named(&["add chain TABLE mine"], &["chain mine is unexpected"]);
    assert_named(&["add table TABLE { flags dormant; }"], &["table egress_router_net1 is dormant"]);
    assert_named(
        &["flush chain TABLE output", "delete chain TABLE output"],
        &[
            "chain output is missing",
            "chain output: the rule \"apply the allow-list\" is missing or out of place",
        ],
    );
    assert_named(
        &[
            "flush chain TABLE output_mark",
            "delete chain TABLE output_mark",
            "add chain TABLE output_mark { type route hook output priority 0; }",
        ],
        &[
            "chain output_mark has another type, hook or priority",
            "chain output_mark: the rule \"older than the attachment\" is missing or out of place",
            "chain output_mark: the rule \"older than the attachment\" is missing or out of place",
            "chain output_mark: the rule \"reply direction to the primary interface\" is missing or out of place",
        ],
    );
}
