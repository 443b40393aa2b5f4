//! The only writer: runs a plan's steps in order. If one fails, it rolls back those before it, in reverse order.

mod advertised;
mod description;
mod link;
mod linux;
mod sysctl;
#[cfg(test)]
mod tests;

pub use description::applying;
pub use linux::Linux;

use crate::cni::Error;
use crate::log::Log;
use crate::plan::Step;

/// Executes steps and rolls them back.
pub trait Kernel {
    /// Executes one step, completely or not at all.
    ///
    /// # Errors
    /// The step and object that failed, with the kernel's message as details.
    fn apply(&mut self, step: &Step) -> Result<(), Error>;

    /// Executes the first of `steps`, together with the following ones that can be sent in one batch. Returns the result of each of them in
    /// order. A step after a failed one may have been executed.
    fn apply_first(&mut self, steps: &[Step]) -> Vec<Result<(), Error>> {
        steps.first().map(|step| self.apply(step)).into_iter().collect()
    }

    /// Rolls back one step that [`Self::apply`] has executed. All later steps must be rolled back already.
    ///
    /// # Errors
    /// What could not be rolled back, and why.
    fn rollback(&mut self, step: &Step) -> Result<(), Error>;
}

/// A failed step, after the rollback of those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step's error.
    pub error: Error,
    /// The failures of the rollback.
    pub left: Vec<Error>,
}

impl From<Failure> for Error {
    /// The step's error. Its details name what could not be rolled back.
    fn from(failure: Failure) -> Self {
        failure.left.iter().fold(failure.error, |error, left| error.with("not rolled back", left))
    }
}

/// Executes all of `steps`, or none: it stops at the first failure, and rolls back the steps before it in reverse order.
///
/// # Errors
/// The failed step, and what could not be rolled back.
pub fn run(steps: &[Step], kernel: &mut impl Kernel) -> Result<(), Failure> {
    let mut done: Vec<&Step> = Vec::with_capacity(steps.len());
    let mut left = steps;
    while !left.is_empty() {
        let replies = kernel.apply_first(left);
        let (asked, later) = left.split_at_checked(replies.len()).unwrap_or((left, &[]));
        let mut failed = None;
        for (step, reply) in asked.iter().zip(replies) {
            match reply {
                Ok(()) => done.push(step),
                // Later ones may have failed because of it.
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        if let Some(error) = failed {
            return Err(Failure { error, left: rolled_back(done, kernel) });
        }
        left = later;
    }
    Ok(())
}

/// Rolls back all of `steps`, which [`run`] has executed, in reverse order. It continues after a failure.
///
/// # Errors
/// The first failure, with the others in its details.
pub fn rollback(steps: &[Step], kernel: &mut impl Kernel) -> Result<(), Error> {
    Error::first(rolled_back(steps.iter().collect(), kernel))
}

/// The kernel refuses a route for these reasons if its device is down or has no address in the gateway's network, or if its nexthop object
/// does not exist.
const UNUSABLE: [i32; 6] =
    [libc::ENETDOWN, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENODEV, libc::EINVAL, libc::EACCES];

/// Executes as many of `steps` as possible, in order, for DEL and GC. A link that cannot be deleted is set down instead, which is not done
/// before each deletion, because it takes the kernel as long again. [`Step::DeleteFirewall`] is skipped after a failure: the table is the
/// allow-list of that link. A route that cannot be restored, because the pod has changed what it needs, is logged and is
/// no failure: it would fail at each retry, and the pod could never be deleted.
///
/// # Errors
/// The first failure, with the others in its details.
pub fn run_all(steps: &[Step], kernel: &mut impl Kernel, log: &Log) -> Result<(), Error> {
    let mut errors = Vec::new();
    for step in steps {
        let needed = matches!(step, Step::DeleteFirewall { .. }) && !errors.is_empty();
        if needed {
            continue;
        }
        let Err(error) = kernel.apply(step) else { continue };
        let is_route = matches!(step, Step::AddRoute(_) | Step::AppendRoute(_) | Step::ReplaceRoute { .. });
        if is_route && error.errno.is_some_and(|errno| UNUSABLE.contains(&errno)) {
            log.error(format_args!("a route of the pod is not restored: {error}"));
        } else {
            errors.push(error);
        }
        if let Step::DeleteLink { index, name } = step {
            errors.extend(kernel.apply(&Step::SetDown { index: *index, name: name.clone() }).err());
        }
    }
    Error::first(errors)
}

fn rolled_back(done: Vec<&Step>, kernel: &mut impl Kernel) -> Vec<Error> {
    let mut left = Vec::new();
    for step in done.into_iter().rev() {
        // The tables are the allow-list of a link that could not be deleted.
        let needed = matches!(step, Step::Firewall(_) | Step::FrameFilter(_)) && !left.is_empty();
        if !needed {
            left.extend(kernel.rollback(step).err());
        }
    }
    left
}
