//! The name of the Deorbit of an object: the same whoever asks, and another one for another object of the same name.

use sha2::{Digest as _, Sha256};

/// Bytes of a name that the API server takes.
const LONGEST: usize = 253;
/// Hexadecimal digits that tell two objects of one name apart: two of a hundred thousand such would be the same with a chance
/// of one in three thousand million, and the Deorbit of another object is refused, not used.
const DIGITS: usize = 10;

/// `<name of the object>-<hash of its UID>`, cut where it would be too long.
#[must_use]
pub fn deorbit_name(target: &str, uid: &str) -> String {
    let hash: String =
        Sha256::digest(uid.as_bytes()).iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
    let room = LONGEST - 1 - DIGITS;
    // Names of objects are ASCII; a cut may leave a dot or a dash at the end, which another dash cannot follow after a dot.
    let head: String = target.chars().take(room).collect();
    format!("{}-{hash}", head.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stable_short_enough_and_of_one_object() {
        assert_eq!(deorbit_name("prod", "a"), deorbit_name("prod", "a"));
        assert_ne!(deorbit_name("prod", "a"), deorbit_name("prod", "b"));
        assert!(deorbit_name("prod", "a").starts_with("prod-"));
        assert_eq!(deorbit_name("prod", "a").len(), "prod-".len() + DIGITS);
        let long = deorbit_name(&"x.".repeat(126), "a");
        assert!(long.len() <= LONGEST && !long.contains(".-"), "{long}");
    }
}
