//! The actions of routegc: it removes routes.

use std::fmt;

use common::plan::{self, Regarding, Related};
use common::routes::Route;
use common::routes::route::list;
use serde::Serialize;

use super::Reason;

/// One action. [`mod@common::routes::apply`] describes why it is idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Action {
    /// Remove one route.
    RemoveRoute {
        /// The route exactly as Neutron has it.
        route: Route,
        /// The router.
        router: String,
        /// The object of the policy.
        #[serde(skip)]
        regarding: Regarding,
    },
    /// Several routes that one request removed, for one Event.
    RemoveRoutes {
        /// The route exactly as Neutron has it.
        routes: Vec<Route>,
        /// The router.
        router: String,
        /// The object of the policy.
        #[serde(skip)]
        regarding: Regarding,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::RemoveRoute { route, router, .. } => {
                write!(f, "remove route {route} from router {router}")
            }
            Action::RemoveRoutes { routes, router, .. } => {
                write!(f, "remove {} routes from router {router}: {}", routes.len(), list(routes))
            }
        }
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        match self {
            Action::RemoveRoute { .. } => "RemoveRoute",
            Action::RemoveRoutes { .. } => "RemoveRoutes",
        }
    }

    fn regarding(&self) -> Regarding {
        let (Action::RemoveRoute { regarding, .. } | Action::RemoveRoutes { regarding, .. }) = self;
        regarding.clone()
    }

    fn related(&self) -> Option<Related> {
        match self {
            Action::RemoveRoute { route, .. } => Some(related(route)),
            Action::RemoveRoutes { routes, .. } => routes.first().map(related),
        }
    }
}

/// A route, as Events name it.
pub(super) fn related(route: &Route) -> Related {
    Related { kind: "Route".to_owned(), namespace: None, name: route.to_string() }
}
