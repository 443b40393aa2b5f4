//! A record is read from a table as it was written.
#![no_main]

use egress_router_cni::nftables::comment;
use egress_router_cni::plan::table_record::TableRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines: Vec<&str> = text.lines().collect();
    if let Some(record) = TableRecord::parse(&lines) {
        let written = record.lines();
        assert_eq!(TableRecord::parse(&written).as_ref(), Some(&record));
    }
    assert_eq!(comment::joined(comment::split(text)), [text]);
});
