//! A state as bytes: equal for states that have the same future.

use std::time::Duration;

use common::leader::record::Record;

use super::contender::Request;

/// Bytes, and the versions met so far in order: a version is written as the place where it was met first.
pub struct Key {
    pub bytes: Vec<u8>,
    versions: Vec<String>,
}

impl Key {
    pub fn new() -> Key {
        // Room for the longest: millions are made.
        Key { bytes: Vec::with_capacity(128), versions: Vec::with_capacity(8) }
    }

    pub fn version(&mut self, version: Option<&str>) {
        let Some(version) = version else { return self.bytes.push(255) };
        let place = self.versions.iter().position(|known| known == version).unwrap_or_else(|| {
            self.versions.push(version.to_owned());
            self.versions.len() - 1
        });
        self.bytes.push(place as u8);
    }

    pub fn holder(&mut self, record: Option<&Record>) {
        self.bytes.push(match record {
            None => 255,
            Some(record) => record.holder.parse().unwrap_or(254),
        });
    }

    /// In half seconds from well before the oldest that matters; 0 is no time.
    pub fn times(&mut self, now: Duration, tag: u8, times: &[Duration]) {
        self.bytes.push(tag);
        for time in times {
            assert!(time.subsec_millis() % 500 == 0);
            self.bytes.push((time.saturating_sub(now - Duration::from_secs(30)).as_millis() / 500) as u8);
        }
    }

    pub fn request(&mut self, tag: u8, request: &Request) {
        self.bytes.push(tag);
        match request {
            Request::Read => self.bytes.push(0),
            Request::Create(record) => {
                self.bytes.push(1);
                self.holder(Some(record));
            }
            Request::Update(record, version) => {
                self.bytes.push(2);
                self.holder(Some(record));
                self.version(Some(version));
            }
        }
    }
}
