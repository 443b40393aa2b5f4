//! The state of a Node's kernel, as its annotations record it, compared with its Jobs.

use super::reason::Reason;
use crate::config::Config;
use crate::names;
use crate::observe::snapshot::{Job, Node};
use crate::task::{Kind, Part, Role, Task};

/// The state of a Node according to natgw's annotations and Jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Setup annotation.
    pub gateway: Option<Part>,
    /// Client annotation.
    pub client: Option<Part>,
    /// Task of the pending annotation, or of a Job that contradicts the annotations.
    pub pending: Option<Task>,
}

/// The annotations that [`Records`] are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// `setupAnnotation` of the settings.
    Setup,
    /// [`names::CLIENT_ANNOTATION`]
    Client,
    /// [`names::PENDING_ANNOTATION`]
    Pending,
}

impl Annotation {
    pub(super) fn invalid(self, config: &Config, value: String) -> Reason {
        let annotation = match self {
            Annotation::Setup => config.setup_annotation.clone(),
            Annotation::Client => names::CLIENT_ANNOTATION.to_owned(),
            Annotation::Pending => names::PENDING_ANNOTATION.to_owned(),
        };
        Reason::InvalidAnnotation { annotation, value }
    }
}

impl Records {
    /// Reads the annotations, and compares them with the Node's Jobs.
    ///
    /// # Errors
    /// The annotation that has a value which natgw never writes, and that value.
    pub fn read(node: &Node, jobs: &[Job]) -> Result<Records, (Annotation, String)> {
        let part = |value: &Option<String>, role, annotation| match value {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(ip) => Ok(Some(Part { role, ip })),
                Err(_) => Err((annotation, text.clone())),
            },
        };
        let gateway = part(&node.setup, Role::Gateway, Annotation::Setup)?;
        let client = part(&node.client, Role::Client, Annotation::Client)?;
        let pending = match &node.pending {
            None => stray(gateway, client, jobs),
            Some(text) => {
                let task = text.parse().ok().filter(|task: &Task| task.kind != Kind::Verify);
                Some(task.ok_or_else(|| (Annotation::Pending, text.clone()))?)
            }
        };
        Ok(Records { gateway, client, pending })
    }

    pub(super) fn recorded(&self, part: Part) -> bool {
        [self.gateway, self.client].contains(&Some(part))
    }
}

/// The task of a Job that contradicts the annotations, such as one created by a process that had just lost its lease:
/// the setup of a part that is not recorded, or the teardown of a recorded part. (A finished teardown of a part that is
/// not recorded is consistent.)
fn stray(gateway: Option<Part>, client: Option<Part>, jobs: &[Job]) -> Option<Task> {
    let recorded = |task: &Task| [gateway, client].contains(&Some(task.part()));
    jobs.iter()
        .filter(|job| !job.terminating)
        .filter_map(|job| job.task)
        .find(|task| if recorded(task) { task.kind.is_teardown() } else { task.kind.is_setup() })
}
