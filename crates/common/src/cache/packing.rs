//! An object as it is kept: as its type, or as compact JSON, which has one allocation instead of one for each text of the object and
//! half a kilobyte for each map, however few entries the map has.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

/// One object in the store.
pub(super) enum Kept<K> {
    Object(Arc<K>),
    Json(Arc<str>),
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
    pack: fn(&K) -> Option<String>,
    unpack: fn(&str) -> Option<K>,
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

    /// With the object itself, which its caller does not have to decode.
    pub fn keep(self, object: K) -> (Kept<K>, Arc<K>) {
        let object = Arc::new(object);
        let kept = match (self.pack)(&object) {
            Some(json) => Kept::Json(json.into()),
            None => Kept::Object(Arc::clone(&object)),
        };
        (kept, object)
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
fn pack<K: Serialize + DeserializeOwned + PartialEq>(object: &K) -> Option<String> {
    let json = serde_json::to_string(object).ok()?;
    (unpack::<K>(&json)? == *object).then_some(json)
}

/// From text, as kube decodes events: from bytes, each type would be compiled a second time.
fn unpack<K: DeserializeOwned>(json: &str) -> Option<K> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
    use kube::Resource;
    use serde::{Deserialize, Deserializer};

    use super::{
        super::store::{Index, Store},
        *,
    };

    thread_local! {
        static DECODED: Cell<u32> = const { Cell::new(0) };
    }

    fn counted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        DECODED.set(DECODED.get() + 1);
        u32::deserialize(deserializer)
    }

    /// An object that counts how often one of its type is decoded.
    #[derive(Resource, Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[resource(inherit = ConfigMap)]
    struct Counted {
        metadata: ObjectMeta,
        #[serde(deserialize_with = "counted")]
        data: u32,
    }

    /// Once the old object, and once the new one, to see that its JSON has all of it.
    #[test]
    fn a_change_of_a_packed_object_decodes_two_objects() {
        let packing = Packing::<Counted>::json();
        let data = |one: &Counted| vec![one.data.to_string()];
        let mut store =
            Store::new(|a: &Counted, b| a == b, packing, vec![Index::new("data", Box::new(data))]);
        for (version, data, decoded) in [(1, 1, 1), (2, 2, 2), (3, 3, 2)] {
            let metadata = ObjectMeta {
                name: Some("a".to_owned()),
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            };
            let replaced = store.apply(Counted { metadata, data });
            let changes: Vec<_> = replaced.into_iter().flat_map(|one| one.changes(packing)).collect();
            assert_eq!((changes.len(), DECODED.replace(0)), (1, decoded), "{changes:?}");
            assert_eq!(changes[0].object().data, data);
        }
    }
}
