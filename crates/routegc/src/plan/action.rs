//! What routegc can do to the world: one thing.

use std::fmt;

use common::plan::{self, Regarding};
use common::routes::Route;
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
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Action::RemoveRoute { route, router, .. } = self;
        write!(f, "remove route {route} from router {router}")
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        "RemoveRoute"
    }

    fn regarding(&self) -> Regarding {
        let Action::RemoveRoute { regarding, .. } = self;
        regarding.clone()
    }
}
