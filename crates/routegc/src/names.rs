//! Every name of ours that is not in the schema.

/// The controller.
pub const CONTROLLER: &str = "routegc";

/// ConfigMap in which the single-cluster mode keeps what a RouteGC's status would hold; the router's ID follows.
pub const STATE_PREFIX: &str = "routegc-";

/// Its key.
pub const STATE_KEY: &str = "status.json";
