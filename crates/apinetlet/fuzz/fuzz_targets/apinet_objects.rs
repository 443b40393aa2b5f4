//! Objects of the apinet cluster as any program may write them. What names their source object is read or not there, and a name that was
//! written in either layout is read again.
#![no_main]

use apinetlet::api::{apinet, source};
use apinetlet::names::{Flavor, Kind};
use apinetlet::origin::{Keys, Layout};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    let _ = serde_json::from_slice::<source::NetworkInterface>(json);
    let _ = serde_json::from_slice::<source::LoadBalancer>(json);
    let _ = serde_json::from_slice::<apinet::LoadBalancer>(json);
    let Ok(interface) = serde_json::from_slice::<apinet::NetworkInterface>(json) else { return };
    for (flavor, kind) in [(Flavor::Ironcore, Kind::NetworkInterface), (Flavor::Onmetal, Kind::Network)] {
        let keys = Keys::of(flavor, kind);
        let Some(origin) = keys.read(&interface.metadata) else { continue };
        for layout in [Layout::Labels, Layout::Annotated] {
            let written = keys.write(&origin, layout);
            let metadata = ObjectMeta {
                labels: Some(written.labels),
                annotations: Some(written.annotations),
                ..ObjectMeta::default()
            };
            assert_eq!(keys.read(&metadata), Some(origin.clone()), "{layout:?}");
        }
    }
});
