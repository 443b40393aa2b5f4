//! Any response of EC2 and the metadata service: no panic, and only valid values are used.
#![no_main]

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use egress_router_cni::aws::credentials::Credentials;
use egress_router_cni::aws::ec2::{Ec2, Endpoint};
use egress_router_cni::aws::metadata::Metadata;
use egress_router_cni::http::retry::RetryBudget;
use egress_router_cni::http::{Cause, NoResponse, Request, Response, Transport};
use libfuzzer_sys::fuzz_target;

/// Sends the same response to every request, up to a number of requests, because paging could loop.
struct Says<'a>(u16, &'a [u8], Cell<u32>);

impl Transport for Says<'_> {
    fn send(&self, _: &Request<'_>) -> Result<Response, NoResponse> {
        self.2.set(self.2.get() + 1);
        if self.2.get() > 8 {
            return Err(NoResponse { why: "enough".into(), cause: Cause::Invalid });
        }
        Ok(Response { status: self.0, body: self.1.to_vec() })
    }
}

fuzz_target!(|input: (u16, &[u8])| {
    let (status, body) = input;
    // Most inputs should have a successful status.
    let status = if status < 60_000 { 200 } else { status % 600 };
    // Shorter than the first pause, so that there are no retries.
    let deadline = || Instant::now() + Duration::from_millis(40);
    let says = || Says(status, body, Cell::new(0));
    let ec2 = |says: &Says<'_>, call: &dyn Fn(&Ec2<'_>)| {
        let credentials = Credentials { key: "k".into(), secret: "s".into(), session: None };
        let endpoint = Endpoint::parse("https://ec2.invalid").expect("an endpoint");
        call(&Ec2::new(says, endpoint, "r".into(), credentials, RetryBudget::until(deadline())));
    };
    let public = Ipv4Addr::new(203, 0, 113, 9);
    ec2(&says(), &|ec2| drop(ec2.address(public)));
    ec2(&says(), &|ec2| {
        if let Ok(taken) = ec2.on_interface("eni-1") {
            assert!(taken.addresses.iter().all(|private| taken.contains(private.address)));
        }
    });
    ec2(&says(), &|ec2| drop(ec2.in_subnet("subnet-1")));
    ec2(&says(), &|ec2| drop(ec2.assign("eni-1", public)));
    ec2(&says(), &|ec2| drop(ec2.associate("eipalloc-1", "eni-1", public, true)));
    ec2(&says(), &|ec2| drop(ec2.disassociate("eipassoc-1")));

    let says = says();
    let metadata = Metadata::new(&says, "http://metadata.invalid", deadline());
    if let Ok(interface) = metadata.interface(None) {
        assert!(interface.block.contains(&interface.block.network()));
        let _ = interface.gateway();
    }
    let _ = Credentials::of_instance(&metadata);
});
