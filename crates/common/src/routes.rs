//! A router's routes into the pod networks, and which of them are orphaned.
//!
//! ```text
//!   observe   the router, then every port of its networks, then Nova's servers (and Nodes)  ->  Snapshot
//!   plan      pure: classify -> confirm -> contest -> threshold                             ->  Decision
//!   apply     rechecks the routes, removes all of them with one request, compares the response
//! ```
//!
//! Safety: a route is never removed if its next hop exists, if it is not visible whether it exists, or if the route is not in a
//! pod network. A route that another client adds in the meantime is never lost. Nothing is decided on incomplete data.
//!
//! * [`route`]: a route as text and its meaning. [`policy`]: which routes may be removed, and the safety limits.
//! * [`mod@observe`] and [`mod@apply`]: the only reader and the only writer.
//! * [`snapshot`]: the observed state. [`mod@plan`]: the decision: [`plan::classify`], [`plan::confirm`], [`plan::threshold`].

pub mod apply;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod route;
pub mod snapshot;

pub use self::apply::{Applied, RemovalError, StillDesired, apply, remove};
pub use self::observe::{NodeSource, ObserveError, observe};
pub use self::plan::{Decision, plan};
pub use self::policy::Policy;
pub use self::route::Route;
pub use self::snapshot::Snapshot;
