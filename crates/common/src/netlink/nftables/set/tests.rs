use proptest::prelude::*;

use super::*;
use crate::netlink::nftables::dump::raw_elements;

fn verdicts() -> impl Strategy<Value = Verdict> {
    let fixed = [Verdict::Accept, Verdict::Drop, Verdict::Return];
    prop_oneof![
        proptest::sample::select(fixed.to_vec()),
        "[a-z]{1,20}".prop_map(Verdict::Jump),
        "[a-z]{1,20}".prop_map(Verdict::Goto),
    ]
}

fn elements() -> impl Strategy<Value = Element> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let data = prop_oneof![
        Just(None),
        bytes().prop_map(|value| Some(ElementData::Value(value))),
        verdicts().prop_map(|verdict| Some(ElementData::Verdict(verdict))),
    ];
    let last = proptest::option::of(bytes());
    (bytes(), any::<bool>(), last, data).prop_map(|(key, end, last, data)| Element { key, end, last, data })
}

/// The payloads of the messages with `elements`.
fn payloads(elements: &[Element]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    write_elements(elements, |kind, bytes| {
        let mut message = Message::new(0, 0, &[0; 4]);
        message.attribute(kind, bytes);
        assert!(message.write(0, &mut Vec::new()), "an attribute is too long");
        payloads.push(message.body().to_vec());
    });
    payloads
}

/// The elements of such a message.
fn read(payload: &[u8]) -> Vec<Element> {
    raw_elements(payload).unwrap().iter().map(|raw| Element::read(raw).unwrap()).collect()
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
        let _ = Element::read(&bytes);
    }

    #[test]
    fn written_elements_are_read(elements in proptest::collection::vec(elements(), 0..20)) {
        let read: Vec<_> = payloads(&elements).iter().flat_map(|payload| read(payload)).collect();
        prop_assert_eq!(read, elements);
    }
}

#[test]
fn many_elements_are_written_in_chunks_below_the_limit_of_an_attribute() {
    let elements: Vec<_> =
        (0..5000_u32).map(|number| Element::with_value(number.to_be_bytes(), [7; 16])).collect();
    let payloads = payloads(&elements);
    assert!(payloads.len() > 1);
    let read: Vec<_> = payloads.iter().flat_map(|payload| read(payload)).collect();
    assert_eq!(read, elements);
}

#[test]
fn a_concatenated_type_has_the_number_and_length_of_nft() {
    // `nft --debug=mnl add set t s { type ipv4_addr . inet_proto . inet_service; }`.
    assert_eq!(
        type_of(&[DataType::Ipv4, DataType::Protocol, DataType::Service]),
        (7 << 12 | 12 << 6 | 13, 12)
    );
    assert_eq!(type_of(&[DataType::Protocol]), (12, 1));
}
