//! Lines of keepalived's notify FIFO. Only a line about the instance has a state, also where another instance's name contains its name.
#![no_main]

use cgw_controller::keeper::vrrp;
use libfuzzer_sys::fuzz_target;

const INSTANCE: &str = "cgw_51";

fuzz_target!(|text: &str| {
    for line in text.lines() {
        if vrrp::parse(line, INSTANCE).is_some() {
            assert!(line.starts_with("INSTANCE \"cgw_51\" "), "{line:?}");
            assert_eq!(vrrp::parse(line, "cgw_5"), None, "{line:?}");
        }
        if !line.contains('"') {
            let named = format!("INSTANCE \"{line}\" MASTER 150");
            assert_eq!(vrrp::parse(&named, INSTANCE).is_some(), line == INSTANCE, "{named:?}");
        }
    }
});
