//! An object as it is kept: as its type, or as compact JSON, which has one allocation instead of one for each text of the object and
//! half a kilobyte for each map, however few entries the map has.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

/// One object in the store.
pub(super) enum Kept<K> {
    Object(Arc<K>),
    Json(Arc<[u8]>),
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        match self {
            Kept::Object(object) => Kept::Object(Arc::clone(object)),
            Kept::Json(json) => Kept::Json(Arc::clone(json)),
        }
    }
}

impl<K> Kept<K> {
    /// Whether both are one allocation.
    pub fn is(&self, other: &Kept<K>) -> bool {
        match (self, other) {
            (Kept::Object(a), Kept::Object(b)) => Arc::ptr_eq(a, b),
            (Kept::Json(a), Kept::Json(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// How a store keeps its objects.
pub(super) struct Packing<K> {
    pack: fn(&K) -> Option<Vec<u8>>,
    unpack: fn(&[u8]) -> Option<K>,
}

impl<K> Clone for Packing<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Packing<K> {}

impl<K> Packing<K> {
    /// As their type.
    pub fn none() -> Packing<K> {
        Packing { pack: |_| None, unpack: |_| None }
    }

    pub fn keep(self, object: K) -> Kept<K> {
        match (self.pack)(&object) {
            Some(json) => Kept::Json(json.into()),
            None => Kept::Object(Arc::new(object)),
        }
    }

    /// Never None: see [`pack`].
    pub fn open(self, kept: &Kept<K>) -> Option<Arc<K>> {
        match kept {
            Kept::Object(object) => Some(Arc::clone(object)),
            Kept::Json(json) => (self.unpack)(json).map(Arc::new),
        }
    }
}

impl<K: Serialize + DeserializeOwned + PartialEq> Packing<K> {
    /// As JSON.
    pub fn json() -> Packing<K> {
        Packing { pack, unpack }
    }
}

/// None if the object would not be read as it was: a type may read more than it writes.
fn pack<K: Serialize + DeserializeOwned + PartialEq>(object: &K) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(object).ok()?;
    (unpack::<K>(&json)? == *object).then_some(json)
}

fn unpack<K: DeserializeOwned>(json: &[u8]) -> Option<K> {
    serde_json::from_slice(json).ok()
}
