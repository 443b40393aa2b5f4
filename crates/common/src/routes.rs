//! A router's routes into the pod networks, and which of them lead to nobody any more.
//!
//! ```text
//!   observe   the router, then every port of its networks, then Nova as a witness (and Nodes)  ->  Snapshot
//!   plan      pure: judge -> confirm -> contest -> threshold                                   ->  Decision
//!   apply     looks at all of it again, then removes all at once; the answer is compared
//! ```
//!
//! What must never happen: a route is removed whose next hop lives, whose next hop cannot be seen, or that is not in a pod
//! network; or a route that somebody else adds meanwhile is lost. What cannot be seen whole is not judged at all.
//!
//! * [`route`]: a route to the letter, and what it means. [`policy`]: whose routes are judged, how carefully.
//! * [`mod@observe`] and [`mod@apply`]: the only reader and the only writer.
//! * [`snapshot`]: what was seen. [`mod@plan`]: what follows from it: [`plan::classify`], [`plan::confirm`], [`plan::threshold`].

pub mod apply;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod route;
pub mod snapshot;

pub use self::apply::{Applied, RemovalError, StillDesired, apply};
pub use self::observe::{NodeSource, ObserveError, observe};
pub use self::plan::{Decision, plan};
pub use self::policy::Policy;
pub use self::route::Route;
pub use self::snapshot::Snapshot;
