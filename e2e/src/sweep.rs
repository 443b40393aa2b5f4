//! What the sweeps through all faults share: which part of the faults is run, and faults that any side can have.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::fault_proxy::{Answer, Fault};

/// Late by this much: longer than a call, shorter than any deadline.
const LATE: Duration = Duration::from_millis(300);

/// Part `part` of `of` of the faults: every so manyth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    part: u64,
    of: u64,
}

impl Slice {
    /// What `SWEEP` asks for: `all`, or `k/n`; where it is not set, one of `slices`, another one each day.
    ///
    /// # Errors
    /// `SWEEP` is neither, or k is not 1 to n.
    pub fn chosen(slices: u64) -> Result<Slice> {
        let Some(asked) = std::env::var("SWEEP").ok().filter(|asked| !asked.is_empty()) else {
            let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / (24 * 60 * 60);
            return Ok(Slice { part: day % slices + 1, of: slices });
        };
        Slice::parse(&asked)
            .with_context(|| format!("SWEEP={asked} is neither `all` nor `k/n` with k from 1 to n"))
    }

    fn parse(asked: &str) -> Result<Slice> {
        if asked == "all" {
            return Ok(Slice { part: 1, of: 1 });
        }
        let (part, of) = asked.split_once('/').context("no slash")?;
        let slice = Slice { part: part.parse()?, of: of.parse()? };
        ensure!((1..=slice.of).contains(&slice.part), "out of range");
        Ok(slice)
    }

    /// Whether it has the fault with this number, of all that there are in an order that stays.
    pub fn has(self, number: u64) -> bool {
        number % self.of == self.part - 1
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slice { part, of } = self;
        if *of == 1 {
            return f.write_str("all faults");
        }
        write!(f, "slice {part} of {of} of the faults (SWEEP={part}/{of} repeats it, `make sweep` runs all)")
    }
}

/// What can happen to a call, to whomever it is made.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// The connection is.
    Refused,
    /// With this status; the server never hears of the call.
    Rejected(u16),
    /// 429 that names a time.
    TooMany,
    /// 404 of somebody on the way, which says nothing about the object.
    NoSuchPage,
    /// The server has acted; the answer has this status.
    Replaced(u16),
    /// The server has acted, and nothing is answered.
    Swallowed,
    /// The answer ends after a few bytes.
    Cut,
    /// The server hears of the call late.
    LateRequest,
    /// The answer comes late.
    LateAnswer,
}

impl Harm {
    /// # Errors
    /// The number is no HTTP status.
    pub fn fault(self) -> Result<Fault> {
        let answer = |status: u16| anyhow::Ok(Answer::status(StatusCode::from_u16(status)?));
        Ok(match self {
            Harm::Refused => Fault::Refuse,
            Harm::Rejected(status) => Fault::Reject(answer(status)?),
            Harm::TooMany => Fault::Reject(Answer::too_many_requests(1)),
            Harm::NoSuchPage => {
                let html = HeaderValue::from_static("text/html");
                Fault::Reject(answer(404)?.header(CONTENT_TYPE, html).body("<html>no such page</html>"))
            }
            Harm::Replaced(status) => Fault::Replace(answer(status)?),
            Harm::Swallowed => Fault::Swallow,
            Harm::Cut => Fault::CutResponse { after_bytes: 10 },
            Harm::LateRequest => Fault::DelayRequest(LATE),
            Harm::LateAnswer => Fault::DelayResponse(LATE),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_parts_are_the_whole_and_share_nothing() {
        let parts: Vec<Slice> = (1..=7).map(|part| Slice::parse(&format!("{part}/7")).unwrap()).collect();
        for number in 0..100 {
            assert_eq!(parts.iter().filter(|part| part.has(number)).count(), 1);
            assert!(Slice::parse("all").unwrap().has(number));
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "All"] {
            assert!(Slice::parse(wrong).is_err(), "{wrong}");
        }
    }
}
