//! natgw under faults that come again and again, or last: refused, cut off, told late or not at all by either server, it
//! comes to the same end as undisturbed, and at no time is the route, a role label or an annotation wrong on the way. Deaths,
//! and one fault at each call, are the sweep's.

mod api_server;
mod cloud;
mod outages;
mod scene;
mod stale_cache;
mod story;
mod witness;
