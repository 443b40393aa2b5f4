//! routegc: removes router routes whose next hop no longer exists.
