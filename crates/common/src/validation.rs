//! Kubernetes' rules for names and labels (apimachinery, `util/validation`), for input that the API server would refuse later.

/// The longest DNS label, and the longest value of a label.
const MAX: usize = 63;

/// A DNS label (RFC 1123), as the name of a namespace: 1 to 63 lower case letters, digits and `-`, with a letter or digit at both ends.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX && is_lower_case_label(text)
}

/// A DNS subdomain (RFC 1123), as the name of a Node, a pod or most other objects: at most 253 characters, labels joined with dots. As
/// `IsDNS1123Subdomain`, it does not limit the length of a label.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_lower_case_label)
}

fn is_lower_case_label(text: &str) -> bool {
    !text.is_empty() && is_made_of(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-")
}

/// The value of a label: empty, or at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.len() <= MAX && is_made_of(text, |c| c.is_ascii_alphanumeric(), "-_.")
}

fn is_made_of(text: &str, is_end: impl Fn(char) -> bool, others: &str) -> bool {
    let ends = [text.chars().next(), text.chars().next_back()];
    ends.into_iter().flatten().all(&is_end) && text.chars().all(|c| is_end(c) || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_values_have_a_letter_or_digit_at_both_ends() {
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        for (text, label, value) in [
            ("apinet", true, true),
            ("1a-2b", true, true),
            (longest.as_str(), true, true),
            (too_long.as_str(), false, false),
            ("", false, true),
            ("Team_1.a", false, true),
            ("a.b", false, true),
            ("-a", false, false),
            ("a-", false, false),
            (".a", false, false),
            ("a_", false, false),
            ("a b", false, false),
            ("a/b", false, false),
            ("\u{e4}", false, false),
        ] {
            assert_eq!((is_dns_label(text), is_label_value(text)), (label, value), "{text:?}");
        }
    }

    #[test]
    fn subdomains_are_labels_joined_with_dots() {
        for text in ["node", "node-1.example.com", "1", &"a".repeat(253)] {
            assert!(is_dns_subdomain(text), "{text:?}");
        }
        for text in ["", "Node", "-a", "a-", "a..b", "a_b", ".a", "a.", "-", "..", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(text), "{text:?}");
        }
    }
}
