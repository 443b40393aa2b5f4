//! What routegc can do to the world: remove routes.

use std::fmt;

use common::plan::{self, Regarding, Related};
use common::routes::Route;
use common::routes::route::list;
use serde::Serialize;

use super::Reason;

/// One outward act. What makes it repeatable stands in [`mod@common::routes::apply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Action {
    /// Remove one route.
    RemoveRoute {
        /// Which, to the letter.
        route: Route,
        /// Of which router.
        router: String,
        /// Whose policy it is.
        #[serde(skip)]
        regarding: Regarding,
    },
    /// Several that went in one request, and of which one Event tells.
    RemoveRoutes {
        /// Which, to the letter.
        routes: Vec<Route>,
        /// Of which router.
        router: String,
        /// Whose policy it is.
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
