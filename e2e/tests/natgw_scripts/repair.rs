//! Again, at once, half-way, and back: the state that the scripts leave.

use e2e::netns::Iptables;

use super::*;

with_both! {
    defect_20_setup_twice_changes_nothing_and_one_teardown_removes_all
    teardown_succeeds_twice_and_on_a_clean_node
    teardown_removes_rules_that_were_doubled
    teardown_finds_rules_of_the_other_iptables
    setup_comes_first_again_after_another_program_has
    setup_under_load_never_lets_a_packet_through_untranslated
    a_setup_that_failed_halfway_is_repaired_by_the_next
    a_setup_that_failed_halfway_is_removed_by_teardown
    defect_29_an_address_that_the_server_has_by_itself_stays
    defect_40_an_interface_whose_name_contains_that_of_the_public_one_is_another
    scripts_that_overlap_wait_for_one_another
    only_root_can_open_the_lock
    verify_finds_each_difference_and_changes_nothing
}

fn defect_20_setup_twice_changes_nothing_and_one_teardown_removes_all(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    setup(&env.gateway, FIRST);
    let once = node.snapshot().unwrap();
    assert!(once.section("address").any(|line| line.contains(FIRST)));
    // A call from each of three chains; 4 rules for one source in nat, 2 in filter, 2 in mangle; and the three chains.
    assert_eq!(rules(node).len(), 3 + 8 + 3, "{:#?}", rules(node));
    setup(&env.gateway, FIRST);
    assert_eq!(once.changes(&node.snapshot().unwrap()), Vec::<String>::new());
    assert_eq!(node.sh("iptables-save | grep -c -- '-j NATGW-'").unwrap(), "3\n");
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
    assert_eq!(node.sh("cat /proc/sys/net/ipv4/ip_forward").unwrap(), "1\n", "kubelet and CNI need it");
}

fn teardown_succeeds_twice_and_on_a_clean_node(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    teardown(&env.gateway, FIRST);
    assert_eq!(before.changes(&node.snapshot().unwrap()), Vec::<String>::new(), "not even a switch");
    setup(&env.gateway, FIRST);
    teardown(&env.gateway, FIRST);
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
    // It needs nothing but the address.
    setup(&env.gateway, FIRST);
    run(node, TEARDOWN, &[("FLOATING_IP", FIRST)]);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

fn teardown_removes_rules_that_were_doubled(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    setup(&env.gateway, FIRST);
    let double = "
        chain=$(iptables -t nat -S | sed -n 's/^-N \\(NATGW-.*\\)/\\1/p')
        for _ in 1 2; do
          iptables -t nat -A POSTROUTING -j $chain; iptables -A FORWARD -j $chain; iptables -t mangle -A FORWARD -j $chain
        done";
    node.sh(double).unwrap();
    assert_eq!(node.sh("iptables-save | grep -c -- '-j NATGW-'").unwrap(), "9\n");
    setup(&env.gateway, FIRST);
    assert_eq!(node.sh("iptables-save | grep -c -- '-j NATGW-'").unwrap(), "3\n");
    env.client_is_seen_as(FIRST);
    node.sh(double).unwrap();
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

fn teardown_finds_rules_of_the_other_iptables(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    setup(&env.gateway, FIRST);
    let other = if kind == Iptables::Nft { Iptables::Legacy } else { Iptables::Nft };
    if other == Iptables::Legacy && !legacy_is_claimed("teardown after a change of the alternative") {
        return;
    }
    node.use_iptables(other).unwrap();
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

fn setup_comes_first_again_after_another_program_has(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    setup(&env.gateway, FIRST);
    node.sh("iptables -t nat -I POSTROUTING -o eth0 -j MASQUERADE; iptables -I FORWARD -o eth0 -j DROP")
        .unwrap();
    env.client_is_cut_off();
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    assert_eq!(node.sh("iptables-save | grep -c -- '-j NATGW-'").unwrap(), "3\n");
}

fn setup_under_load_never_lets_a_packet_through_untranslated(kind: Iptables) {
    let env = TestEnv::new(kind);
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    // The Internet counts what comes with a private source: one such packet would be a connection that never works.
    let internet = &env.network.internet;
    internet.sh("iptables-nft -t raw -A PREROUTING -s 10.0.0.0/8").unwrap();
    for _ in 0..3 {
        let running = env.gateway.node.start_script(SETUP, &environment(&env.gateway, FIRST)).unwrap();
        let load = "for i in {1..40}; do echo >/dev/udp/203.0.113.9/$((9000 + i)); done";
        for _ in 0..5 {
            env.client.node.sh(load).unwrap();
            // A lost packet is sent again after one second, and would not be seen to be lost. The response may take longer under load.
            let seen =
                env.client.node.run(["socat", "-T50", "-u", "TCP4:203.0.113.9:80,connect-timeout=1", "-"]);
            let seen = seen.unwrap();
            assert_eq!(seen.stdout.trim(), FIRST, "{seen:#?}");
        }
        assert!(running.wait().unwrap().success());
    }
    let counted = internet.sh("iptables-nft -t raw -vnxL PREROUTING | tail -1").unwrap();
    assert_eq!(counted.split_whitespace().next(), Some("0"), "{counted}");
}

/// Makes iptables-restore of the node fail for the table filter, as it does when another program holds the lock for long.
fn break_filter(node: &Node) {
    let restore = node.sh("readlink -f /usr/local/sbin/iptables-restore").unwrap();
    let text = format!(
        "#!/bin/bash\ntext=$(cat)\n[[ $text != '*filter'* ]] || {{ echo 'Another app is currently holding the xtables lock' >&2; exit 4; }}\n\
         exec -a iptables-restore {} \"$@\" <<<\"$text\"\n",
        restore.trim()
    );
    node.sh("rm /usr/local/sbin/iptables-restore").unwrap();
    node.write("/usr/local/sbin/iptables-restore", "755", &text).unwrap();
}

fn failed_halfway(env: &TestEnv) {
    break_filter(&env.gateway.node);
    let output = env.gateway.node.script(SETUP, &environment(&env.gateway, FIRST)).unwrap();
    assert_eq!(output.code, Some(1), "{output:#?}");
    for words in
        ["failed while filling chain NATGW-C6336409 in table filter", "run setup again", "xtables lock"]
    {
        assert!(output.stderr.contains(words), "{output:#?}");
    }
    assert!(!rules(&env.gateway.node).is_empty(), "it was half-way");
    env.gateway.node.use_iptables(env.kind).unwrap();
}

fn a_setup_that_failed_halfway_is_repaired_by_the_next(kind: Iptables) {
    let env = TestEnv::new(kind);
    failed_halfway(&env);
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);
    assert_eq!(rules(&env.gateway.node).len(), 3 + 8 + 3);
    // Setup also restores parts that an administrator may have removed.
    for damage in [
        format!("ip addr del {FIRST}/32 dev eth0"),
        "iptables -F FORWARD".to_owned(),
        "iptables -t nat -F".to_owned(),
        "echo 0 >/proc/sys/net/ipv4/ip_forward".to_owned(),
    ] {
        env.gateway.node.sh(&damage).unwrap();
        setup(&env.gateway, FIRST);
        env.client_is_seen_as(FIRST);
    }
}

fn a_setup_that_failed_halfway_is_removed_by_teardown(kind: Iptables) {
    let env = TestEnv::new(kind);
    let before = env.gateway.node.snapshot().unwrap();
    failed_halfway(&env);
    teardown(&env.gateway, FIRST);
    assert_eq!(left_over(&env.gateway.node, &before), Vec::<String>::new());
}

fn defect_29_an_address_that_the_server_has_by_itself_stays(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    node.sh(&format!("ip addr add {FIRST}/32 dev eth0")).unwrap();
    let before = node.snapshot().unwrap();
    for _ in 0..2 {
        let output = setup(&env.gateway, FIRST);
        assert!(output.stdout.contains("by another configuration"), "{output:#?}");
    }
    env.client_is_seen_as(FIRST);
    // Another floating IP of the same server is natgw's own.
    setup(&env.gateway, SECOND);
    teardown(&env.gateway, SECOND);
    for _ in 0..2 {
        let output = teardown(&env.gateway, FIRST);
        assert!(output.stderr.contains("own address"), "{output:#?}");
    }
    assert_eq!(left_over(node, &before), Vec::<String>::new());
    assert!(node.sh("ip -4 addr show eth0").unwrap().contains(&format!("inet {FIRST}/32")));
}

fn defect_40_an_interface_whose_name_contains_that_of_the_public_one_is_another(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    node.sh("ip link add eth0-fip type veth peer name fip-peer").unwrap();
    node.sh(&format!("ip addr add {FIRST}/32 dev eth0-fip")).unwrap();
    let output = setup(&env.gateway, FIRST);
    assert!(!output.stdout.contains("by another configuration"), "{output:#?}");
    assert!(node.sh("ip -4 addr show dev eth0").unwrap().contains(&format!("inet {FIRST}/32")));
    env.client_is_seen_as(FIRST);
    node.sh(&format!("ip addr del {FIRST}/32 dev eth0")).unwrap();
    let (code, errors) = verify(&env.gateway);
    assert!(
        code == Some(5) && errors.contains(&format!("eth0 does not have the address {FIRST}")),
        "{errors}"
    );
}

fn scripts_that_overlap_wait_for_one_another(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let before = node.snapshot().unwrap();
    let locker = "exec 9>/run/natgw.lock; flock 9; echo locked; mkfifo /run/go; read -r _ </run/go";
    let holder = node.start_process(["bash", "-c", locker]).unwrap();
    holder.wait_for("locked").unwrap();
    let both: Vec<_> = [FIRST, FIRST, SECOND]
        .iter()
        .map(|ip| node.start_script(SETUP, &environment(&env.gateway, ip)).unwrap())
        .collect();
    for process in &both {
        process.wait_for("waiting for another natgw script").unwrap();
    }
    assert_eq!(
        before.changes(&node.snapshot().unwrap()),
        Vec::<String>::new(),
        "they wait before they touch anything"
    );
    node.sh("echo go >/run/go").unwrap();
    for process in both {
        let output = process.wait().unwrap();
        assert!(output.success(), "{output:#?}");
    }
    assert_eq!(rules(node).len(), 2 * (3 + 8 + 3));
    let last = [
        node.start_script(TEARDOWN, &[("FLOATING_IP", FIRST)]),
        node.start_script(TEARDOWN, &[("FLOATING_IP", SECOND)]),
    ];
    for process in last {
        assert!(process.unwrap().wait().unwrap().success());
    }
    assert_eq!(left_over(node, &before), Vec::<String>::new());
}

/// An agent that reads the Node's files as another user must not be able to hold the lock.
fn only_root_can_open_the_lock(kind: Iptables) {
    let env = TestEnv::new(kind);
    for (server, script) in [
        (&env.gateway, SETUP),
        (&env.gateway, TEARDOWN),
        (&env.client, CLIENT_SETUP),
        (&env.client, CLIENT_TEARDOWN),
    ] {
        run(&server.node, script, &environment(server, FIRST));
        let mode = server.node.sh("stat -c %a /run/natgw.lock; rm /run/natgw.lock").unwrap();
        assert_eq!(mode, "600\n", "{script:.60}");
    }
}

/// Runs the setup script as a verification, which changes nothing. Returns its exit code and its errors.
fn verify(server: &Server) -> (Option<i32>, String) {
    let mut environment = environment(server, FIRST);
    environment.retain(|(name, _)| *name != "JOB_TYPE");
    environment.extend([("JOB_TYPE", "verify"), ("SNAT_SOURCES", "10.0.0.0/16 10.244.0.0/16")]);
    let before = server.node.snapshot().unwrap();
    let output = server.node.script(SETUP, &environment).unwrap();
    assert_eq!(before.changes(&server.node.snapshot().unwrap()), Vec::<String>::new());
    (output.code, output.stderr)
}

fn verify_finds_each_difference_and_changes_nothing(kind: Iptables) {
    let env = TestEnv::new(kind);
    let node = &env.gateway.node;
    let (code, found) = verify(&env.gateway);
    assert_eq!(code, Some(5));
    for part in ["eth0 does not have the address 198.51.100.9", "forwarding is off", "does not call chain"] {
        assert!(found.contains(part), "{found}");
    }
    let mut environment = environment(&env.gateway, FIRST);
    environment.push(("SNAT_SOURCES", "10.0.0.0/16 10.244.0.0/16"));
    let repair = || run(node, SETUP, &environment);
    repair();
    assert_eq!(verify(&env.gateway), (Some(0), String::new()));
    // The place of the call is not compared.
    node.sh("iptables -t nat -I POSTROUTING -s 192.0.2.0/24 -j RETURN").unwrap();
    assert_eq!(verify(&env.gateway).0, Some(0));
    for (damage, part) in [
        ("ip addr del 198.51.100.9/32 dev eth0", "eth0 does not have the address 198.51.100.9"),
        ("echo 0 >/proc/sys/net/ipv4/ip_forward", "forwarding is off"),
        ("echo 1 >/proc/sys/net/ipv4/conf/ens10/rp_filter", "rp_filter of ens10 is strict"),
        ("iptables -F FORWARD", "FORWARD of table filter does not call chain NATGW-C6336409"),
        ("iptables -t nat -F", "chain NATGW-C6336409 of table nat has 0 rules instead of 8"),
        ("iptables -t mangle -F; iptables -t mangle -X", "FORWARD of table mangle does not call chain"),
        (
            "iptables -t nat -D NATGW-C6336409 8; iptables -t nat -A NATGW-C6336409 -j RETURN",
            "lacks the rule -s 10.244.0.0/16 -o eth0 -j SNAT --to-source 198.51.100.9",
        ),
        (
            "iptables -A NATGW-C6336409 -j DROP",
            "chain NATGW-C6336409 of table filter has 5 rules instead of 4",
        ),
    ] {
        node.sh(damage).unwrap();
        let (code, found) = verify(&env.gateway);
        assert_eq!(code, Some(5), "{damage}");
        assert!(found.contains(part), "{damage}: {found}");
        // The log of the setup names what it repairs.
        let log = repair().stdout;
        assert!(log.contains("to be set up") && log.contains(part), "{damage}: {log}");
        assert_eq!(verify(&env.gateway), (Some(0), String::new()), "{damage}");
    }
    assert!(!repair().stdout.contains("to be set up"));
    env.client_is_seen_as(FIRST);
    // A difference that could not be looked for is no difference: a rule cannot be compared, or the rules cannot be listed a second time.
    let cases = [
        "[[ $* != *'-t nat -C'* ]] || exit 4",
        "[[ $* != *'-t filter -S' ]] || { [[ ! -e /run/once ]] || exit 4; touch /run/once; }",
    ];
    for case in cases.into_iter().filter(|_| kind == Iptables::Nft) {
        node.sh("rm -f /usr/local/sbin/iptables /run/once").unwrap();
        let wrapper = format!("#!/bin/bash\n{case}\nexec iptables-nft \"$@\"\n");
        node.write("/usr/local/sbin/iptables", "755", &wrapper).unwrap();
        let (code, error) = verify(&env.gateway);
        assert_eq!(code, Some(1), "{case}: {error}");
        assert!(error.contains("failed while comparing"), "{case}: {error}");
    }
}
