//! The cached objects and their indexes: a pure type.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    sync::Arc,
};

use kube::Resource;

use super::{
    Change, ObjectKey,
    packing::{Kept, Packing},
};

type Values<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Objects by one or several values that are computed from each.
pub(super) struct Index<K> {
    name: &'static str,
    values: Values<K>,
    /// One set for all values: most values have one object, for which a set of its own would be large.
    entries: BTreeSet<(Box<str>, ObjectKey)>,
}

impl<K> Index<K> {
    pub fn new(name: &'static str, values: Values<K>) -> Self {
        Index { name, values, entries: BTreeSet::new() }
    }

    fn add(&mut self, key: &ObjectKey, object: &K) {
        let values = (self.values)(object);
        self.entries.extend(values.into_iter().map(|value| (value.into(), key.clone())));
    }

    fn remove(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.values)(object) {
            self.entries.remove(&(value.into(), key.clone()));
        }
    }

    /// The keys of the objects with this value, in order.
    fn keys(&self, value: &str) -> impl Iterator<Item = &ObjectKey> {
        let first: (Box<str>, ObjectKey) = (value.into(), ObjectKey::new("", ""));
        self.entries.range(first..).take_while(move |(of, _)| **of == *value).map(|(_, key)| key)
    }
}

/// An object before and after a change.
pub(super) struct Replaced<K> {
    old: Option<Kept<K>>,
    new: Option<Kept<K>>,
}

impl<K: Resource> Replaced<K> {
    /// The changes that handlers get: a recreated object is two.
    pub fn changes(self, packing: Packing<K>) -> impl Iterator<Item = Change<K>> {
        let open = |kept: Option<Kept<K>>| packing.open(&kept?);
        let changes = match (open(self.old), open(self.new)) {
            (Some(old), Some(new)) if old.meta().uid == new.meta().uid => {
                [Some(Change::Updated { old, new }), None]
            }
            (old, new) => [old.map(Change::Deleted), new.map(Change::Added)],
        };
        changes.into_iter().flatten()
    }
}

pub(super) struct Store<K> {
    packing: Packing<K>,
    objects: HashMap<ObjectKey, Kept<K>>,
    indexes: Vec<Index<K>>,
    /// The objects of a list that is not complete yet.
    listed: HashMap<ObjectKey, Kept<K>>,
    /// The newest version among them. The list is not older; kube does not report its own version.
    newest_listed: u64,
    /// The objects of [`Store::write`] that the watch has not delivered yet. What it delivers of them meanwhile may be older.
    written: HashSet<ObjectKey>,
    /// The newest version that the watch has delivered since the last list began, or that this list had.
    delivered: u64,
    /// How many lists have begun.
    lists: u64,
    is_equal: fn(&K, &K) -> bool,
}

impl<K> Store<K> {
    pub fn new(is_equal: fn(&K, &K) -> bool, packing: Packing<K>, indexes: Vec<Index<K>>) -> Self {
        Store {
            packing,
            objects: HashMap::new(),
            indexes,
            listed: HashMap::new(),
            newest_listed: 0,
            written: HashSet::new(),
            delivered: 0,
            lists: 0,
            is_equal,
        }
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.packing.open(self.objects.get(key)?)
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        self.objects.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let index = self.indexes.iter().find(|one| one.name == index);
        let keys = index.into_iter().flat_map(|index| index.keys(value));
        keys.filter_map(|key| self.get(key)).collect()
    }
}

impl<K: Resource + Clone> Store<K> {
    /// How many lists have begun.
    pub fn lists(&self) -> u64 {
        self.lists
    }

    /// A list begins; one that was not completed is forgotten. It contains every write that was before it.
    pub fn list_begins(&mut self) {
        self.listed.clear();
        self.newest_listed = 0;
        self.written.clear();
        self.delivered = 0;
        self.lists += 1;
    }

    /// One object of the list. What is cached stays visible until the list is complete.
    pub fn list_has(&mut self, object: K) {
        let key = ObjectKey::of(&object);
        self.newest_listed = self.newest_listed.max(version(&object).unwrap_or_default());
        // An unchanged object is kept once, not twice, while the list arrives.
        let object = match (self.objects.get(&key), self.get(&key)) {
            (Some(kept), Some(old)) if is_version(&*old, &object) => kept.clone(),
            _ => self.packing.keep(object).0,
        };
        self.listed.insert(key, object);
    }

    /// The list is complete: what it does not have is gone.
    pub fn list_ends(&mut self) -> Vec<Replaced<K>> {
        let mut listed = mem::take(&mut self.listed);
        self.delivered = self.delivered.max(self.newest_listed);
        // The list may be from before these writes.
        for key in &self.written {
            let object = listed.get(key).and_then(|object| self.packing.open(object));
            match (self.get(key), object) {
                (Some(written), Some(object)) if !is_newer(&*written, &*object) => {}
                // It is from after the write: another client has deleted the object.
                (Some(written), None) if version(&*written) < Some(self.newest_listed) => {}
                (Some(_), _) => {
                    let written = self.objects.get(key).cloned();
                    listed.extend(written.map(|written| (key.clone(), written)));
                }
                (None, _) => {}
            }
        }
        let gone: Vec<ObjectKey> =
            self.objects.keys().filter(|key| !listed.contains_key(key)).cloned().collect();
        let mut changes: Vec<Replaced<K>> =
            gone.iter().filter_map(|key| Some(self.remove(key, &*self.get(key)?))).collect();
        for (key, kept) in listed {
            let old = self.objects.get(&key).cloned();
            if old.as_ref().is_some_and(|old| old.is(&kept)) {
                continue;
            }
            let (before, Some(new)) = (self.get(&key), self.packing.open(&kept)) else { continue };
            self.reindex(&key, before.as_deref(), &new);
            self.objects.insert(key, kept.clone());
            // Only an object that was there is copied for the comparison: the first list has them all for the first time.
            let is_same = before.is_some_and(|before| self.is_same(&before, &mut Arc::unwrap_or_clone(new)));
            // Both stay packed: a list can have a hundred thousand.
            changes.extend((!is_same).then_some(Replaced { old, new: Some(kept) }));
        }
        changes
    }

    /// The watch delivers an object.
    pub fn apply(&mut self, object: K) -> Option<Replaced<K>> {
        let key = ObjectKey::of(&object);
        let old = self.get(&key);
        self.delivered = self.delivered.max(version(&object).unwrap_or_default());
        if self.is_before_write(&key, old.as_deref(), &object) {
            return None;
        }
        self.put(key, old, object)
    }

    /// The watch delivers a deletion, with the last state of the object.
    pub fn delete(&mut self, object: &K) -> Option<Replaced<K>> {
        let key = ObjectKey::of(object);
        let old = self.get(&key);
        self.delivered = self.delivered.max(version(object).unwrap_or_default());
        if self.is_before_write(&key, old.as_deref(), object) {
            return None;
        }
        Some(self.remove(&key, &*old?))
    }

    /// The response to a write of this process, which was sent when so many lists had begun. It is ignored if the watch or a later
    /// list may have delivered what came after it, even its deletion.
    pub fn write(&mut self, lists: u64, object: K) -> Option<Replaced<K>> {
        let key = ObjectKey::of(&object);
        let is_delivered = version(&object).is_none_or(|version| version <= self.delivered);
        let old = self.get(&key);
        let is_outdated = old.as_ref().is_some_and(|old| !is_newer(&object, &**old));
        if lists != self.lists || is_delivered || is_outdated {
            return None;
        }
        self.written.insert(key.clone());
        self.put(key, old, object)
    }

    /// The object was deleted by this process.
    pub fn write_deletion(&mut self, object: &K) -> Option<Replaced<K>> {
        let key = ObjectKey::of(object);
        let old = self.get(&key)?;
        if old.meta().uid != object.meta().uid {
            return None;
        }
        self.written.remove(&key);
        Some(self.remove(&key, &old))
    }

    /// Whether a delivered object is older than the cached one, which this process has written. The first delivered object that is
    /// not ends this.
    fn is_before_write(&mut self, key: &ObjectKey, cached: Option<&K>, delivered: &K) -> bool {
        let is_before =
            self.written.contains(key) && cached.is_some_and(|written| is_newer(written, delivered));
        if !is_before {
            self.written.remove(key);
        }
        is_before
    }

    /// `old`: the cached object. Handlers get both as they are here, and nothing is decoded for them.
    fn put(&mut self, key: ObjectKey, old: Option<Arc<K>>, mut object: K) -> Option<Replaced<K>> {
        self.reindex(&key, old.as_deref(), &object);
        let is_same = old.as_deref().is_some_and(|old| self.is_same(old, &mut object));
        let (kept, new) = self.packing.keep(object);
        self.objects.insert(key, kept);
        (!is_same).then(|| Replaced { old: old.map(Kept::Object), new: Some(Kept::Object(new)) })
    }

    fn remove(&mut self, key: &ObjectKey, old: &K) -> Replaced<K> {
        self.indexes.iter_mut().for_each(|index| index.remove(key, old));
        Replaced { old: self.objects.remove(key), new: None }
    }

    /// Replaces an object in the indexes.
    fn reindex(&mut self, key: &ObjectKey, old: Option<&K>, new: &K) {
        if let Some(old) = old {
            self.indexes.iter_mut().for_each(|index| index.remove(key, old));
        }
        self.indexes.iter_mut().for_each(|index| index.add(key, new));
    }

    /// Whether nothing but the resourceVersion differs. `new` is as before afterwards: a copy of it for the comparison can be large.
    fn is_same(&self, old: &K, new: &mut K) -> bool {
        let version = mem::replace(&mut new.meta_mut().resource_version, old.meta().resource_version.clone());
        let is_same = (self.is_equal)(old, new);
        new.meta_mut().resource_version = version;
        is_same
    }
}

/// Whether both are the same version of the same object.
fn is_version<K: Resource>(a: &K, b: &K) -> bool {
    let (a, b) = (a.meta(), b.meta());
    a.uid == b.uid && a.resource_version.is_some() && a.resource_version == b.resource_version
}

/// The resourceVersion as a number. Versions of one kind are ordered: client-go's mutation cache relies on it, and Kubernetes
/// guarantees it since 1.35 (KEP-5504).
fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

/// Whether `a` is a newer version than `b`.
fn is_newer<K: Resource>(a: &K, b: &K) -> bool {
    version(a).zip(version(b)).is_some_and(|(a, b)| a > b)
}
