//! The blocks of `nft list table` of the table with all matches and statements.

/// Head and lines of each block.
pub const LISTED: [(&str, &str); 11] = [
    (
        "set networks",
        r"type ipv4_addr
        flags interval
        elements = { 10.244.0.0/16 }",
    ),
    (
        "set clients",
        r"type ipv4_addr . inet_proto . inet_service
        flags interval
        elements = { 10.1.0.0/16 . tcp . 80,
             10.0.0.7 . tcp . 80-90 }",
    ),
    (
        "map marks",
        r"type ipv4_addr : mark
        elements = { 10.0.0.5 : 0x00000020 }",
    ),
    (
        "map sources",
        r"type ipv4_addr : ipv4_addr
        elements = { 10.0.0.6 : 10.0.0.7 }",
    ),
    // nft(8) has no name for the type of an index.
    (
        "map backends",
        r"type 0 : ipv4_addr . inet_service
        elements = { 0 : 10.0.0.0 . 8080, 1 : 10.0.0.1 . 8080 }",
    ),
    (
        "chain match",
        r#"comment "matches"
        type filter hook forward priority filter - 1; policy accept;
        iifname "eth0" oifname "vx0" accept
        iifname != "eth0" drop
        tcp dport 443 counter packets 0 bytes 0
        tcp flags syn / syn,rst counter packets 0 bytes 0
        ct state invalid,untracked counter packets 0 bytes 0
        ct direction reply counter packets 0 bytes 0
        ct status snat counter packets 0 bytes 0
        ct mark & 0x0000ff00 == 0x00000020 counter packets 0 bytes 0
        fib daddr type local counter packets 0 bytes 0
        ip saddr @networks jump inner
        ip saddr != @networks goto inner
        ct original ip daddr @hosts return
        ip daddr . ip protocol . th dport vmap @services
        ip saddr . ip protocol . th dport @clients counter packets 0 bytes 0
        reject with tcp reset comment "the last rule""#,
    ),
    (
        "chain change",
        r"type filter hook postrouting priority mangle; policy accept;
        meta mark set meta mark & 0xffff01ff | 0x00000100
        meta mark set 0x00000007
        ct mark set ct mark & 0xffff01ff | 0x00000100
        ct mark set 0x00000007
        tcp flags syn / syn,rst tcp option maxseg size set rt mtu",
    ),
    ("chain reroute", "type route hook output priority mangle; policy accept;"),
    (
        "chain snat",
        r"type nat hook postrouting priority srcnat; policy accept;
        snat to ip saddr map @sources",
    ),
    (
        "chain dnat",
        r"type nat hook prerouting priority dstnat; policy accept;
        dnat ip to jhash ip saddr . tcp sport mod 2 seed 0x7 map @backends",
    ),
    ("chain input", "type filter hook input priority filter; policy accept;"),
];
