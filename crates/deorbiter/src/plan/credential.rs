//! The application credential of the login, with `applicationCredential: Delete`: the last that is deleted, when everything else is gone and
//! verified. Its ID is recorded before. From then on only the login is tried: if the credential does not exist any more, it was deleted.

use std::time::Duration;

use common::api::deorbit::{Debris, Phase};
use common::conditions::Status;

use super::action::CREDENTIAL;
use super::presence::NOT_PROVEN;
use super::reason::Reason;
use super::{Act, LATER, Planner, SOON, conditions};
use crate::observe::snapshot::{Run, Unread, key};

/// Why it stays, if another Deorbit needs it: the last one deletes it.
pub(super) fn still_needed(run: &Run) -> Option<String> {
    let other = &run.same_login.as_ref()?.deorbit;
    Some(format!("it is still needed: Deorbit {other} logs in with the same Secret"))
}

impl Planner<'_> {
    /// At the end of a run that succeeds: records it and deletes it. None: it stays, and is added to what is left.
    pub(super) fn delete_credential(&mut self, debris: &mut Vec<Debris>) -> Option<Duration> {
        if debris.is_empty() && self.waits_for_another() {
            return Some(SOON);
        }
        let one = self.cloud().and_then(|cloud| cloud.credential.clone());
        match (self.why_kept(debris.is_empty()), one) {
            (None, Some(one)) => {
                self.book.credential = Some(one.id.clone());
                self.book.phase_since = Some(self.now);
                let act = Act::DeleteApplicationCredential { id: one.id, user: one.user };
                self.step(act, Reason::NothingLeft);
                Some(Duration::ZERO)
            }
            (why, one) => {
                debris.push(self.credential_left(one.map(|one| one.id), why.unwrap_or_default()));
                None
            }
        }
    }

    /// Two that end at the same time must not leave the credential to each other: one of them waits for the end of the other. Before it
    /// yields, each shows for some time that it ends, so that the other one has observed it.
    fn waits_for_another(&self) -> bool {
        let run = &self.snapshot.run;
        let Some(other) = run.same_login.as_ref().filter(|_| !self.book.over) else { return false };
        let limit = if other.yields { run.spec.timeouts.api_unavailable.duration() } else { LATER };
        !self.in_phase_for(limit)
    }

    /// Why it stays, if it does.
    fn why_kept(&self, is_clean: bool) -> Option<String> {
        let (_, verified, _, message) = conditions::verified(self, 0);
        match verified {
            _ if let Some(why) = still_needed(&self.snapshot.run) => Some(why),
            _ if !is_clean => Some("something else is left, which it may be needed for".to_owned()),
            _ if self.book.over || self.readable().is_none() => Some("the run reached a limit".to_owned()),
            _ if !self.book.proof.any() => Some(NOT_PROVEN.to_owned()),
            Status::True => None,
            _ => Some(message),
        }
    }

    /// The work after that, until it is gone. Nothing is wrong with the cluster if it stays: the run ends after a while, and lists it.
    pub(super) fn credential_deleted(&mut self, id: &str) -> Option<Duration> {
        self.resumed();
        let needed = still_needed(&self.snapshot.run);
        let is_left = self.snapshot.run.same_login.as_ref().is_some_and(|other| !other.yields);
        let is_late =
            is_left || self.in_phase_for(self.snapshot.run.spec.timeouts.api_unavailable.duration());
        let why = match &self.snapshot.cloud {
            Some(Err(Unread::CredentialGone(_))) => return self.finish(Phase::Succeeded, Vec::new()),
            _ if let Some(why) = needed => why,
            Some(Err(why)) => why.to_string(),
            Some(Ok(cloud)) => match &cloud.credential {
                Some(one) if one.id == id => {
                    if !is_late {
                        let act =
                            Act::DeleteApplicationCredential { id: id.to_owned(), user: one.user.clone() };
                        self.step(act, Reason::NothingLeft);
                    }
                    let failure = self.snapshot.failures.get(&key("Cloud", id)).cloned();
                    failure.unwrap_or_else(|| "Keystone still accepts it".to_owned())
                }
                _ => "the Secret has another login now".to_owned(),
            },
            None => "OpenStack is not read".to_owned(),
        };
        if !is_late {
            return Some(SOON);
        }
        let left = self.credential_left(Some(id.to_owned()), why);
        self.finish(Phase::Succeeded, vec![left])
    }

    fn credential_left(&self, id: Option<String>, reason: String) -> Debris {
        let run = &self.snapshot.run;
        let secret = run.spec.openstack.as_ref().map(|openstack| openstack.identity_ref.name.clone());
        let (kind, name) = (CREDENTIAL.to_owned(), secret.unwrap_or_default());
        Debris { kind, id, name, namespace: run.namespace.clone(), reason }
    }
}
