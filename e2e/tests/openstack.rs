//! Keystone and Neutron of both releases: what the controllers rely on, asked of the services themselves.
//!
//! Each fact here was once a mistake that somebody could have made. If a release changes one, this says so before a
//! controller does.

mod lists;
mod login;
mod owner;
mod routes;

use e2e::openstack::{OpenStack, Parts, Release};

/// Runs a test on each release.
async fn on_each_release(test: impl AsyncFn(Release, OpenStack)) {
    for &release in Release::tested() {
        test(release, OpenStack::shared(Parts::KeystoneNeutron, release).await.unwrap()).await;
    }
}
