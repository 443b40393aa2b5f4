//! deorbiter: before a cluster dies: deletes what it made in the cloud, and proves that it is gone.

pub mod trigger;
