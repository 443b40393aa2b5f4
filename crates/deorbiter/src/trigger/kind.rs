//! Kinds that are known only when a binding names them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The same text, for as long as the process lives: Events name kinds by such texts. There are as many as bindings have ever
/// named kinds, which is a handful.
#[must_use]
pub fn lasting(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = known.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(text);
    text
}
