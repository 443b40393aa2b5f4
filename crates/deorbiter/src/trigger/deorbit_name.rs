//! The name of an object's Deorbit: it depends only on the object, and differs for another object of the same name.

use sha2::{Digest as _, Sha256};

/// Greatest length of a name, in bytes.
const LONGEST: usize = 253;
/// Hexadecimal digits that distinguish objects of one name. Two hashes collide with a probability of one in 2^(4 * DIGITS), and then the
/// Deorbit of the other object is refused, not used.
const DIGITS: usize = 10;

/// `<name of the object>-<hash of its UID>`, truncated where it would be too long.
#[must_use]
pub fn deorbit_name(target: &str, uid: &str) -> String {
    let hash: String =
        Sha256::digest(uid.as_bytes()).iter().map(|byte| format!("{byte:02x}")).take(DIGITS / 2).collect();
    let length = LONGEST - 1 - DIGITS;
    // Names are ASCII. A truncated one may end with a dot or a dash, and a dash cannot follow a dot.
    let head: String = target.chars().take(length).collect();
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
