//! natgw from its own image, installed with `kubectl apply -k`, on a cluster of real nodes: its Jobs run on them, and
//! packets prove where the cluster's traffic leaves, whatever happens to a gateway, to natgw and to the way between them.
//!
//! Needs root. The clusters of this file live side by side, and leave nothing, also when their owner is killed.

mod env;
mod power;
mod story;
mod traces;
