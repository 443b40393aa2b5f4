//! Keystone and Neutron: the behaviour that the controllers rely on, tested with the real services.
//!
//! If a release changes this behaviour, these tests fail before a controller does.

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
