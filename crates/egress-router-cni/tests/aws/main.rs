//! aws-elastic-ip against a strict EC2 and a strict metadata service, and against moto: every crash, every fault, every move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod any_order;
mod crashes;
mod ec2;
mod faults;
mod gate;
mod http;
mod metadata;
mod metadata_service;
mod moto;
mod moves;
mod node;
mod page;
mod refusals;
mod tls;
mod xml;
