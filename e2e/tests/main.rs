//! The integration tests: one program, so that everything is linked once and tests share what is slow to start.
//!
//! A module is what is tested; `cargo test -p e2e natgw::` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod apinetlet;
mod cgw_cluster;
mod cgw_controller;
mod cgw_keeper;
mod cgw_roles;
mod cluster;
mod common_apply;
mod common_cluster;
mod control_plane;
mod deorbiter;
mod deorbiter_sweep;
mod deorbiter_triggers;
mod egress_router;
mod egress_router_cluster;
mod egress_router_kernel;
mod fault_proxy;
mod hetzner;
mod image;
mod leader_election;
mod manifests;
mod monitoring;
mod natgw;
mod natgw_scripts;
mod natgw_sweep;
mod openstack;
mod openstack_all;
mod openstack_client;
mod openstack_providers;
mod rights;
mod routegc;
mod routegc_sweep;
mod traces;
