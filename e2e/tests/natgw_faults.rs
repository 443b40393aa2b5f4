//! natgw under faults that come again and again, or last: refused, cut off, told late or not at all by either server, it
//! comes to the same end as undisturbed, and at no time is the route, a role label or an annotation wrong on the way. Deaths,
//! and one fault at each call, are the sweep's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "natgw_faults/api_server.rs"]
mod api_server;
#[path = "natgw_faults/cloud.rs"]
mod cloud;
#[path = "natgw_faults/outages.rs"]
mod outages;
#[path = "natgw_faults/scene.rs"]
mod scene;
#[path = "natgw_faults/stale_cache.rs"]
mod stale_cache;
#[path = "natgw_faults/story.rs"]
mod story;
#[path = "natgw_faults/witness.rs"]
mod witness;
