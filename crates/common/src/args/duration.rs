//! Durations as Go's `time.ParseDuration` reads them, because every other controller's flags do: `15s`, `1m30s`, `500ms`.

use std::time::Duration;

/// Nanoseconds in each unit. The longer spelling comes first where one is the start of another.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];

/// Reads a duration. Unlike Go, a negative one is refused: no flag of ours means anything by it.
///
/// # Errors
/// One line that says what is allowed.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refuse = || format!("\"{text}\" is no duration; write 15s, 1m30s or 500ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let (unit, scale) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(refuse)?;
        nanoseconds += number * scale;
        rest = after.strip_prefix(unit).ok_or_else(refuse)?;
    }
    if text.is_empty() || nanoseconds > Duration::from_secs(MOST).as_nanos() as f64 {
        return Err(refuse());
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// Go's own limit, 2^63 ns, in whole seconds: 292 years.
const MOST: u64 = 9_223_372_036;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("15s", 15_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1h0m2s3ms", 3_602_003),
            ("2000us", 2),
            ("2000µs", 2),
            ("3000000ns", 3),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_allowed() {
        for text in ["", "15", "s", "-5s", "+5s", "1x", "1 s", "5sm", "1..5s", ".s", "300000000h", "1e3s"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("15s, 1m30s or 500ms"), "{text}: {error}");
        }
    }
}
