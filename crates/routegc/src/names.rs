//! Constant names that are not in the schema.

/// The controller.
pub const CONTROLLER: &str = "routegc";

/// Prefix of the ConfigMap with the status of a policy of flags; the router's ID follows.
pub const STATE_PREFIX: &str = "routegc-";

/// Its key.
pub const STATE_KEY: &str = "status.json";
