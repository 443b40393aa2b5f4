//! The only writer: runs a plan's steps in order, and undoes what it did, in reverse, when one fails.

mod advertised;
mod description;
mod link;
mod linux;
mod sysctl;
#[cfg(test)]
mod tests;

pub use description::Applying;
pub use linux::Linux;

use crate::cni::Error;
use crate::plan::Step;

/// Where steps are done and undone.
pub trait Kernel {
    /// Does one step, whole or not at all.
    ///
    /// # Errors
    /// Which step failed on which object; the kernel's words are the details.
    fn apply(&mut self, step: &Step) -> Result<(), Error>;

    /// Does the first of `steps`, and those behind it that can be asked for at one go. Returns the answer to each of them, in
    /// their order; one that comes behind a failure may have been done all the same.
    fn apply_first(&mut self, steps: &[Step]) -> Vec<Result<(), Error>> {
        steps.first().map(|step| self.apply(step)).into_iter().collect()
    }

    /// Takes back one step that [`Self::apply`] has done, and after which nothing else was done that is not rolled back already.
    ///
    /// # Errors
    /// What stays, and why.
    fn rollback(&mut self, step: &Step) -> Result<(), Error>;
}

/// All of `steps`, or none of them: stops at the first that fails, and undoes those before it, in reverse.
///
/// # Errors
/// That of the step that failed. What could not be undone is named in its details.
pub fn run(steps: &[Step], kernel: &mut impl Kernel) -> Result<(), Error> {
    let mut done: Vec<&Step> = Vec::with_capacity(steps.len());
    let mut left = steps;
    while !left.is_empty() {
        let replies = kernel.apply_first(left);
        let (asked, later) = left.split_at_checked(replies.len()).unwrap_or((left, &[]));
        let mut failed = None;
        for (step, reply) in asked.iter().zip(replies) {
            match reply {
                Ok(()) => done.push(step),
                // Those behind it may have failed because of it.
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        if let Some(error) = failed {
            return Err(with(error, "not rolled back", rolled_back(done, kernel)));
        }
        left = later;
    }
    Ok(())
}

/// Takes back all of `steps`, which [`run`] has done, in reverse, and goes on where one cannot be.
///
/// # Errors
/// The first that stays; others are in its details.
pub fn rollback(steps: &[Step], kernel: &mut impl Kernel) -> Result<(), Error> {
    all(rolled_back(steps.iter().collect(), kernel))
}

/// As many of `steps` as can be done, in order, as DEL and GC need it. [`Step::DeleteFirewall`] is skipped where an earlier step
/// failed: the table is the allow-list of a link that could not be deleted, and the record for the next DEL.
///
/// # Errors
/// The first that failed; others are in its details.
pub fn run_all(steps: &[Step], kernel: &mut impl Kernel) -> Result<(), Error> {
    let mut errors = Vec::new();
    for step in steps {
        let needed = matches!(step, Step::DeleteFirewall { .. }) && !errors.is_empty();
        if !needed {
            errors.extend(kernel.apply(step).err());
        }
    }
    all(errors)
}

fn rolled_back(done: Vec<&Step>, kernel: &mut impl Kernel) -> Vec<Error> {
    let mut left = Vec::new();
    for step in done.into_iter().rev() {
        // The record goes only when nothing is left that DEL would need it for.
        let needed = matches!(step, Step::Firewall(_)) && !left.is_empty();
        if !needed {
            left.extend(kernel.rollback(step).err());
        }
    }
    left
}

fn all(errors: Vec<Error>) -> Result<(), Error> {
    let mut errors = errors.into_iter();
    match errors.next() {
        Some(first) => Err(with(first, "and", errors.collect())),
        None => Ok(()),
    }
}

fn with(mut error: Error, word: &str, others: Vec<Error>) -> Error {
    for other in others {
        let separator = if error.details.is_empty() { "" } else { "; " };
        error.details = format!("{}{separator}{word}: {other}", error.details);
    }
    error
}
