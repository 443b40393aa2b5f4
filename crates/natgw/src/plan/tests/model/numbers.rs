//! Numbers for values, so that a state consists of two numbers, whatever the size of a cluster.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A fast hash without protection against forged keys: with the default one, hashing is most of the work.
#[derive(Clone, Copy, Default)]
pub struct QuickHasher(u64);

pub type Quick = BuildHasherDefault<QuickHasher>;

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

/// Assigns a number to each distinct value.
pub struct Numbers<T> {
    known: HashMap<T, u32, Quick>,
    pub all: Vec<T>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    pub fn new() -> Numbers<T> {
        Numbers { known: HashMap::default(), all: Vec::new() }
    }

    pub fn of(&mut self, one: T) -> u32 {
        let next = self.all.len() as u32;
        *self.known.entry(one).or_insert_with_key(|one| {
            self.all.push(one.clone());
            next
        })
    }

    pub fn get(&self, number: u32) -> &T {
        &self.all[number as usize]
    }
}
