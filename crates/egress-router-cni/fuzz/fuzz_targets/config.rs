//! Every input is a configuration or an error that names a field; and DEL accepts every configuration that ADD accepts.
#![no_main]

use egress_router_cni::cni::args::Args;
use egress_router_cni::cni::{Call, Command};
use egress_router_cni::config::network::{Network, Source};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stdin: &[u8]| {
    let mut call = Call {
        command: Command::Add,
        container_id: "c".to_owned(),
        netns: None,
        ifname: "net1".to_owned(),
        args: Args::default(),
        netns_override: false,
    };
    let added = Network::parse(stdin, &call);
    if let Err(error) = &added {
        assert!(!error.message.is_empty());
    }
    if let Ok(Network { source: Source::Ip(ip), .. }) = &added {
        assert!(!ip.addresses.is_empty());
        assert!(
            ip.destinations.redirects.iter().all(|redirect| redirect.port > 0 && redirect.to_port != Some(0))
        );
    }
    for command in Command::ALL {
        call.command = command;
        let other = Network::parse(stdin, &call);
        if command == Command::Del && added.is_ok() {
            assert_eq!(other.expect("DEL").source, Source::Unread);
        }
    }
});
