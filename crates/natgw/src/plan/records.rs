//! The state of a Node's kernel, as its annotations record it, compared with its Jobs.

use super::reason::Reason;
use crate::config::Config;
use crate::names;
use crate::observe::snapshot::{Job, Node, Snapshot};
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

impl Records {
    /// Reads the annotations, and compares them with the Node's Jobs.
    ///
    /// # Errors
    /// [`Reason::InvalidAnnotation`]: an annotation has a value which natgw never writes.
    pub fn read(config: &Config, snapshot: &Snapshot, node: &Node) -> Result<Records, Reason> {
        let invalid = |annotation: &str, value: &str| Reason::InvalidAnnotation {
            annotation: annotation.to_owned(),
            value: value.to_owned(),
        };
        let part = |value: &Option<String>, role, annotation: &str| match value {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(ip) => Ok(Some(Part { role, ip })),
                Err(_) => Err(invalid(annotation, text)),
            },
        };
        let gateway = part(&node.setup, Role::Gateway, &config.setup_annotation)?;
        let client = part(&node.client, Role::Client, names::CLIENT_ANNOTATION)?;
        let pending = match &node.pending {
            None => stray(gateway, client, snapshot.jobs_of(&node.name)),
            Some(text) => {
                let task = text.parse().ok().filter(|task: &Task| task.kind != Kind::Verify);
                Some(task.ok_or_else(|| invalid(names::PENDING_ANNOTATION, text))?)
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
