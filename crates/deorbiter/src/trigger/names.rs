//! Every name that the triggers put on objects, in one place.

/// On each object that a binding has taken, with the name of the binding: whose the finalizer is. Another program's finalizer
/// may have the same name.
pub const BOUND_BY_ANNOTATION: &str = "deorbiter.perimeter.dev/bound-by";
/// Finalizer of a DeorbitBinding: it stays until nothing carries its finalizer any more.
pub const BINDING_FINALIZER: &str = "deorbiter.perimeter.dev/bound";
/// Label of a Deorbit: UID of the object for which a trigger made it.
pub const TARGET_UID_LABEL: &str = "deorbiter.perimeter.dev/target-uid";
/// Label of a Deorbit: what made it, `binding` or `cluster-api`.
pub const TRIGGER_LABEL: &str = "deorbiter.perimeter.dev/trigger";
/// Annotation of a Deorbit: the object for which a trigger made it, for people: `kubernikus.sap.cc/v1 Kluster team/prod`.
pub const TARGET_ANNOTATION: &str = "deorbiter.perimeter.dev/target";
/// Field manager of the triggers' writes.
pub const MANAGER: &str = "deorbiter.perimeter.dev";
