//! What can be an ID.

/// Whether it can be the ID of something in OpenStack: not empty, and of letters, digits, `-` and `_` alone. What stands in
/// annotations, handles and fields of a port anyone may have written, and as part of a path it would be refused or mean
/// something else.
#[must_use]
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stand_in_a_path_is_an_id() {
        assert!(is_id("0d5c9f3e-0000-4000-8000-000000000003") && is_id("web_1"));
        assert!(!is_id("") && !is_id("a/b") && !is_id("..") && !is_id("a?b=c") && !is_id("ü"));
    }
}
