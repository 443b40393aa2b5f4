use proptest::prelude::*;
use serde_json::json;

use super::parse;

#[test]
fn supported_yaml_is_parsed() {
    for (text, value) in [
        ("", json!(null)),
        ("# only\n\n", json!(null)),
        ("a: b", json!({"a": "b"})),
        (
            "a:\n  b: c\n  d:\n  - e\n  - f: g\n    h: i\nj: k\n",
            json!({"a": {"b": "c", "d": ["e", {"f": "g", "h": "i"}]}, "j": "k"}),
        ),
        ("a:\n- b\n-\n  c: d\n- - e\n  - f\n", json!({"a": ["b", {"c": "d"}, ["e", "f"]]})),
        (
            "a: https://[::1]:1 # c\n'b b' : \"c: \\\"d\\\"\"\n",
            json!({"a": "https://[::1]:1", "b b": "c: \"d\""}),
        ),
        (
            "a: {b: [c, 'd', {}], \"e\": true, f: ~}",
            json!({"a": {"b": ["c", "d", {}], "e": true, "f": null}}),
        ),
        ("a:\nb: null\nc: ''\n", json!({"a": null, "b": null, "c": ""})),
        ("a: b#c\nd: e:f\n", json!({"a": "b#c", "d": "e:f"})),
    ] {
        assert_eq!(parse(text).unwrap(), value, "{text:?}");
    }
}

#[test]
fn unsupported_yaml_is_refused_with_its_line() {
    for (text, line) in [
        ("a: &x b", 1),
        ("a: b\nc: *x", 2),
        ("a: |\n  b\n", 1),
        ("a: >-\n  b\n", 1),
        ("a: !!str b", 1),
        ("a: b\n  c\n", 2),
        ("a: b\na: c\n", 2),
        ("a: b\n c: d\n", 2),
        ("a: 'b\n", 1),
        ("a: 'b' c\n", 1),
        ("a: {b: c\n", 1),
        ("a: b: c\n", 1),
        ("- a\nb: c\n", 2),
        ("a: b\n---\nc: d\n", 2),
        ("\ta: b\n", 1),
        ("? a\n", 1),
        ("a: \"\\x41\"", 1),
    ] {
        assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
    }
}

#[test]
fn depth_has_an_end() {
    assert!(parse(&"- ".repeat(100_000)).is_err());
    assert!(parse(&format!("a: {}", "[".repeat(100_000))).is_err());
}

proptest! {
    #[test]
    fn never_a_panic(text in any::<String>(), more in "[a-c:'\"{}\\[\\], #\n-]{0,60}") {
        let _ = parse(&text);
        let _ = parse(&more);
    }
}
