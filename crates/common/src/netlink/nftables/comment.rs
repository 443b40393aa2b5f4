//! User data of rules and chains: the format of libnftnl (udata.h), of which only the comment is used.

/// Maximum length of a comment in bytes. nft(8) lists longer ones, but cannot load them.
pub const LIMIT: usize = 128;

/// NFTNL_UDATA_RULE_COMMENT, and the same for chains.
const KIND: u8 = 0;

/// The bytes for NFTA_RULE_USERDATA: type, length, the text and a zero byte, without which nft(8) does not show it. A text
/// longer than [`LIMIT`] is cut between two characters.
#[must_use]
pub fn encode(comment: &str) -> Vec<u8> {
    let text = head(comment).0;
    let length = u8::try_from(text.len().saturating_add(1)).unwrap_or(u8::MAX);
    let mut bytes = Vec::with_capacity(text.len().saturating_add(3));
    bytes.extend_from_slice(&[KIND, length]);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

/// The comment in user data; none where there is none, or not one that nft(8) would show.
#[must_use]
pub fn decode(userdata: &[u8]) -> Option<String> {
    let mut rest = userdata;
    while let [kind, length, tail @ ..] = rest {
        let (value, after) = tail.split_at_checked(usize::from(*length))?;
        if *kind == KIND {
            let text = value.strip_suffix(&[0])?;
            return String::from_utf8(text.to_vec()).ok();
        }
        rest = after;
    }
    None
}

/// Splits `text` behind its first [`LIMIT`] bytes or less, between two characters.
fn head(text: &str) -> (&str, &str) {
    let mut end = LIMIT.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_nft_writes_it() {
        // `nft --debug=netlink` of a rule with `comment "hi"`.
        assert_eq!(encode("hi"), *b"\x00\x03hi\x00");
    }

    #[test]
    fn foreign_user_data_is_ignored() {
        assert_eq!(decode(b"\x01\x02ab\x00\x03hi\x00").as_deref(), Some("hi"));
        assert_eq!(decode(b"\x01\x02ab"), None);
        assert_eq!(decode(b"\x00\x09hi\x00"), None);
        assert_eq!(decode(b"\x00\x02hi"), None, "without its zero byte");
    }

    proptest! {
        #[test]
        fn a_written_comment_is_read(text in "[^\0]{0,200}") {
            let (head, tail) = head(&text);
            prop_assert_eq!(decode(&encode(&text)), Some(head.to_owned()));
            prop_assert_eq!(format!("{head}{tail}"), text);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }
}
