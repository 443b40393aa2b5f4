//! Cases of AWS's Signature Version 4 test suite that have the root path and no query. The suite's `get-` cases differ from
//! what is sent in the method only.

use super::*;

const SESSION: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

fn authorization(
    method: &str,
    headers: &[(&'static str, &str)],
    body: &str,
    session: Option<&str>,
) -> String {
    let credentials = Credentials {
        key: "AKIDEXAMPLE".into(),
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
        session: session.map(Into::into),
    };
    let time = humantime::parse_rfc3339("2015-08-30T12:36:00Z").unwrap();
    let scope = Scope { region: "us-east-1", service: "service", time };
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let added = sign(method, "example.amazonaws.com", &headers, body.as_bytes(), &credentials, scope);
    assert_eq!(added[0], ("x-amz-date", "20150830T123600Z".to_owned()));
    assert_eq!(added.iter().any(|(name, _)| *name == "x-amz-security-token"), session.is_some());
    added.into_iter().find(|(name, _)| *name == "authorization").unwrap().1
}

fn expected(names: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, Signature={signature}"
    )
}

#[test]
fn get_vanilla() {
    assert_eq!(
        authorization("GET", &[], "", None),
        expected("host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31")
    );
}

#[test]
fn get_header_value_trim() {
    assert_eq!(
        authorization("GET", &[("my-header1", " value1"), ("my-header2", " \"a   b   c\"")], "", None),
        expected(
            "host;my-header1;my-header2;x-amz-date",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"
        )
    );
}

#[test]
fn post_vanilla() {
    assert_eq!(
        authorization("POST", &[], "", None),
        expected("host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b")
    );
}

#[test]
fn post_header_key_sort() {
    assert_eq!(
        authorization("POST", &[("my-header1", "value1")], "", None),
        expected(
            "host;my-header1;x-amz-date",
            "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"
        )
    );
}

#[test]
fn post_header_value_case() {
    assert_eq!(
        authorization("POST", &[("my-header1", "VALUE1")], "", None),
        expected(
            "host;my-header1;x-amz-date",
            "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"
        )
    );
}

#[test]
fn post_sts_header_before() {
    assert_eq!(
        authorization("POST", &[], "", Some(SESSION)),
        expected(
            "host;x-amz-date;x-amz-security-token",
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
        )
    );
}

#[test]
fn post_x_www_form_urlencoded() {
    assert_eq!(
        authorization(
            "POST",
            &[("content-type", "application/x-www-form-urlencoded")],
            "Param1=value1",
            None
        ),
        expected(
            "content-type;host;x-amz-date",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
        )
    );
}

#[test]
fn post_x_www_form_urlencoded_parameters() {
    let kind = "application/x-www-form-urlencoded; charset=utf8";
    assert_eq!(
        authorization("POST", &[("content-type", kind)], "Param1=value1", None),
        expected(
            "content-type;host;x-amz-date",
            "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"
        )
    );
}
