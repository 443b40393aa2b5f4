//! egress-router as a runtime calls it, proven with packets: who outside sees whom, what of the cluster is still reached, and
//! that a namespace is afterwards as it was before, to the byte.
//!
//! The lab is made of namespaces of its own: root is needed only where the kernel forbids users to make them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "egress_router/lab.rs"]
mod lab;
