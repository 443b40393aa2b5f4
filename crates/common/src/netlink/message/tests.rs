use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>, flags: u16, kind in 2_u16..4) {
        for message in messages(&bytes).flatten() {
            let _ = acknowledgement(message.0, message.1);
        }
        let _ = acknowledgement(Header { kind, flags, sequence: 0 }, &bytes);
        for attribute in attributes(&bytes).flatten() {
            let _ = (attribute.string(), attribute.u32(), attribute.nested().count());
        }
    }

    #[test]
    fn an_encoded_message_is_decoded(kind: u16, flags: u16, sequence: u32, parts: Vec<(u16, Vec<u8>)>) {
        let mut message = Message::new(kind, flags, &[1, 2, 3, 4]);
        for (kind, payload) in &parts {
            message.attribute(*kind, payload);
        }
        message.nest(9, |inner| {
            inner.u32(1, 7).string(2, "text");
        });
        let mut bytes = Vec::new();
        prop_assert!(message.write(sequence, &mut bytes));
        prop_assert!(message.write(sequence.wrapping_add(1), &mut bytes));
        let read: Vec<_> = messages(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), 2);
        let (header, payload) = read[0];
        prop_assert_eq!(header, Header { kind, flags: flags | FLAG_REQUEST, sequence });
        let (fixed, rest) = split::<4>(payload).unwrap();
        prop_assert_eq!(fixed, &[1, 2, 3, 4]);
        let rest: Vec<_> = rest.map(Result::unwrap).collect();
        let (last, first) = rest.split_last().unwrap();
        let first: Vec<_> = first.iter().map(|attribute| (attribute.raw_kind, attribute.payload.to_vec())).collect();
        prop_assert_eq!(first, parts);
        prop_assert_eq!((last.kind, last.raw_kind), (9, 9 | NESTED));
        let inner: Vec<_> = last.nested().map(Result::unwrap).collect();
        prop_assert_eq!((inner[0].u32(), inner[1].string()), (Ok(7), "text".to_owned()));
    }
}

#[test]
fn an_alias_that_is_not_utf_8_is_still_read() {
    let mut message = Message::new(0, 0, &[]);
    message.attribute(20, b"caf\xe9\0behind");
    let attribute = attributes(message.body()).next().unwrap().unwrap();
    assert_eq!(attribute.string(), "caf\u{fffd}");
}

#[test]
fn wrong_lengths_are_malformed_and_end_the_decoding() {
    for bytes in [&[3, 0, 1, 0][..], &[9, 0, 1, 0, 0], &[1], &[0; 4]] {
        assert_eq!(
            attributes(bytes).collect::<Vec<_>>(),
            [Err(Malformed("an attribute's header"))],
            "{bytes:?}"
        );
    }
    for length in [0_u32, 15, 17, u32::MAX] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(messages(&bytes).collect::<Vec<_>>(), [Err(Malformed("a message's header"))], "{length}");
    }
}

#[test]
fn the_message_of_a_refusal_is_found_after_an_echo_of_any_length() {
    let mut text = Message::new(0, 0, &[]);
    text.string(1, "no such thing");
    let errno = (-2_i32).to_ne_bytes();
    let mut request = Vec::new();
    assert!(Message::new(16, 0, &[0; 20]).write(1, &mut request));
    let capped = [errno.as_slice(), &request[..16], text.body()].concat();
    let echoed = [errno.as_slice(), &request, text.body()].concat();
    for (flags, payload) in [(FLAG_CAPPED | FLAG_ACK_TLVS, &capped), (FLAG_ACK_TLVS, &echoed)] {
        let refusal = acknowledgement(Header { kind: 2, flags, sequence: 1 }, payload).unwrap().unwrap();
        assert_eq!(refusal.to_string(), "No such file or directory: no such thing");
    }
    let bare = acknowledgement(Header { kind: 2, flags: 0, sequence: 1 }, &errno).unwrap().unwrap();
    assert_eq!(bare.to_string(), "No such file or directory");
    assert_eq!(acknowledgement(Header { kind: 2, flags: 0, sequence: 1 }, &[0; 4]), Ok(None));
}
