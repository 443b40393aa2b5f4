//! Bodies of the HTTP API and of the status servers. A body that is read is the same after it was written and read again, and no VIP in it
//! is an address that a node or a pod may have for itself.
#![no_main]

use cgw_controller::api::Vip;
use cgw_controller::api::http::{KeeperStatus, MasterNotify, MasterStatus, Outcome, VipRequest, VipView};
use cgw_controller::controller::plan::master;
use libfuzzer_sys::fuzz_target;
use serde_json::{from_slice, to_vec};

fn check(vip: Vip) {
    let address = vip.address();
    assert!(!address.is_loopback() && !address.is_unspecified() && !address.is_multicast(), "{vip}");
    assert_eq!(Vip::of_key(&vip.key()), Ok(vip));
}

fuzz_target!(|body: &[u8]| {
    let _ = from_slice::<MasterStatus>(body);
    let _ = from_slice::<Outcome>(body);
    let _ = from_slice::<VipView>(body);
    if let Ok(request) = from_slice::<VipRequest>(body) {
        check(request.vip);
        assert_eq!(from_slice::<VipRequest>(&to_vec(&request).unwrap()).unwrap(), request);
    }
    if let Ok(notify) = from_slice::<MasterNotify>(body) {
        notify.vips.iter().copied().for_each(check);
        let written = from_slice::<MasterNotify>(&to_vec(&notify).unwrap()).unwrap();
        assert_eq!(
            (written.vips, written.node_ip, written.tun_mac),
            (notify.vips, notify.node_ip, notify.tun_mac)
        );
        if let Some(epoch) = notify.since.and_then(master::epoch) {
            assert!(epoch.0 < 9_000_000_000_000_000, "{epoch}");
        }
    }
    if let Ok(status) = from_slice::<KeeperStatus>(body) {
        let elected = master::elect(&[status.clone(), status], None);
        assert!(elected.is_none_or(|master| master::elect(&[], Some(master)).is_none()));
    }
});
