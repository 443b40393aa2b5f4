//! Annotations of the stores and of tenants' Services as any client may write them: a JSON object of texts. Each keeper and binding is read or
//! reported, and one that is read has one key.
#![no_main]

use std::collections::BTreeMap;

use cgw_controller::api::service::Carried;
use cgw_controller::api::stores::{self, Bind, Provider};
use cgw_controller::names::{BIND_PREFIX, HOST_PREFIX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    let Ok(annotations) = serde_json::from_slice::<BTreeMap<String, String>>(json) else { return };
    let entries = |prefix: &str| {
        annotations.iter().filter(|(key, text)| key.starts_with(prefix) && !text.is_empty()).count()
    };
    let (hosts, errors) = stores::hosts(&annotations);
    assert_eq!(hosts.len() + errors.len(), entries(HOST_PREFIX));
    for host in hosts {
        assert!(annotations.contains_key(&host.key()), "{host:?}");
    }
    let (binds, errors) = stores::binds(&annotations);
    assert_eq!(binds.len() + errors.len(), entries(BIND_PREFIX));
    for (vip, bind) in binds {
        assert!(annotations.contains_key(&Bind::key(vip)), "{vip}");
        let text = serde_json::to_string(&bind).unwrap();
        assert_eq!(stores::binds(&BTreeMap::from([(Bind::key(vip), text)])).0, BTreeMap::from([(vip, bind)]));
    }
    // An entry that is read back as another one would be written each time.
    for provider in annotations.values().filter_map(|text| Provider::read(text)) {
        let text = serde_json::to_string(&provider).unwrap();
        assert_eq!(Provider::read(&text), Some(provider));
    }
    if let Ok(Some(carried)) = Carried::read(&annotations) {
        let written = carried.annotations().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(Carried::read(&written), Ok(Some(carried)));
    }
});
