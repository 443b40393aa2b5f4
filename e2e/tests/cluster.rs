//! natgw from its own image, installed with `kubectl apply -k`, on a cluster of real nodes: its Jobs run on them, and
//! packets show where the cluster's traffic leaves when a gateway, natgw or the network fails.
//!
//! Needs root. The clusters of this file live side by side, and leave nothing, also when their owner is killed.

mod env;
mod health;
mod power;
mod story;
mod traces;
