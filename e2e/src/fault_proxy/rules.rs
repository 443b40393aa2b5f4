//! The rules in force.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::sync::watch;

use super::call::Call;
use super::fault::{Fate, Fault};
use super::held;
use super::matcher::Matcher;

/// Names a rule of one proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

struct Rule {
    id: RuleId,
    matcher: Matcher,
    fault: Fault,
    matched: u64,
    applied: u64,
}

impl Rule {
    fn try_apply(&mut self) -> bool {
        let applies = self.matcher.applies(self.matched, self.applied);
        self.matched += 1;
        self.applied += u64::from(applies);
        applies
    }
}

#[derive(Default)]
struct Book {
    last: u64,
    rules: Vec<Rule>,
}

/// All rules of a proxy.
pub(super) struct Rules {
    book: Mutex<Book>,
    changed: watch::Sender<()>,
}

impl Rules {
    pub(super) fn new() -> Rules {
        Rules { book: Mutex::new(Book::default()), changed: watch::Sender::new(()) }
    }

    pub(super) fn add(&self, matcher: Matcher, fault: Fault) -> RuleId {
        let mut book = held(&self.book);
        book.last += 1;
        let id = RuleId(book.last);
        book.rules.push(Rule { id, matcher, fault, matched: 0, applied: 0 });
        id
    }

    pub(super) fn remove(&self, id: RuleId) -> bool {
        let removed = {
            let mut book = held(&self.book);
            let before = book.rules.len();
            book.rules.retain(|rule| rule.id != id);
            before != book.rules.len()
        };
        self.changed.send_replace(());
        removed
    }

    pub(super) fn clear(&self) {
        held(&self.book).rules.clear();
        self.changed.send_replace(());
    }

    pub(super) fn applied(&self, id: RuleId) -> u64 {
        held(&self.book).rules.iter().find(|rule| rule.id == id).map_or(0, |rule| rule.applied)
    }

    pub(super) async fn wait_applied(&self, id: RuleId, times: u64, timeout: Duration) -> anyhow::Result<()> {
        let mut changed = self.changed.subscribe();
        let reached = changed.wait_for(|()| self.applied(id) >= times);
        let outcome = tokio::time::timeout(timeout, reached).await;
        outcome.map(|_| ()).with_context(|| {
            format!("the rule was applied {} times within {timeout:?}, not {times}", self.applied(id))
        })
    }

    /// Resolves once the rule is gone.
    pub(super) async fn removed(&self, id: RuleId) {
        let mut changed = self.changed.subscribe();
        // Fails only when the sender is gone, and it lives in self.
        let _ = changed.wait_for(|()| !held(&self.book).rules.iter().any(|rule| rule.id == id)).await;
    }

    /// The faults of a request, in order, up to the first that is final.
    pub(super) fn of_request(&self, call: &Call) -> Vec<(RuleId, Fault)> {
        let mut faults = Vec::new();
        for rule in &mut held(&self.book).rules {
            let of_request = !matches!(rule.fault, Fault::Event(..));
            if of_request && rule.matcher.matches(call) && rule.try_apply() {
                faults.push((rule.id, rule.fault.clone()));
                if rule.fault.is_final() {
                    break;
                }
            }
        }
        if !faults.is_empty() {
            self.changed.send_replace(());
        }
        faults
    }

    /// Whether any rule is about the events of this watch: else they need not be read.
    pub(super) fn watch_events(&self, call: &Call) -> bool {
        let about = |rule: &Rule| matches!(rule.fault, Fault::Event(..)) && rule.matcher.matches(call);
        held(&self.book).rules.iter().any(about)
    }

    /// The fate of an event and the ID of its rule, by the first rule that applies. None: it is forwarded.
    pub(super) fn of_event(&self, call: &Call, event: &Value) -> Option<(RuleId, Fate)> {
        let found = held(&self.book).rules.iter_mut().find_map(|rule| match &rule.fault {
            Fault::Event(fate, filter) if rule.matcher.matches(call) && filter.picks(event) => {
                let fate = *fate;
                rule.try_apply().then_some((rule.id, fate))
            }
            _ => None,
        });
        if found.is_some() {
            self.changed.send_replace(());
        }
        found
    }
}
