use proptest::prelude::*;

use super::*;

#[test]
fn an_endpoint_is_a_scheme_and_a_host() {
    let endpoint = |text: &str| Endpoint::parse(text).map(|endpoint| (endpoint.url, endpoint.host));
    let is = |url: &str, host: &str| Ok((url.to_owned(), host.to_owned()));
    assert_eq!(
        endpoint("https://ec2.eu-west-1.amazonaws.com"),
        is("https://ec2.eu-west-1.amazonaws.com/", "ec2.eu-west-1.amazonaws.com")
    );
    assert_eq!(endpoint("https://a:443/"), is("https://a/", "a"));
    assert_eq!(endpoint("http://127.0.0.1:5555"), is("http://127.0.0.1:5555/", "127.0.0.1:5555"));
    for wrong in [
        "",
        "ec2.amazonaws.com",
        "ftp://a",
        "https://",
        "https://a/b",
        "https://u:p@a",
        "https://a?b",
        "https://a b",
    ] {
        assert!(endpoint(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_error_document_is_read() {
    let body = b"<?xml version=\"1.0\"?><Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors><RequestID>r</RequestID></Response>";
    let expected = Refusal {
        status: 403,
        code: "UnauthorizedOperation".into(),
        message: "no".into(),
        request: "r".into(),
    };
    assert_eq!(refusal(403, body), expected);
    assert_eq!(refusal(502, b"<html>").status, 502);
    assert!(refusal(502, b"<html>").is_fault());
}

#[test]
fn values_are_percent_encoded() {
    assert_eq!(
        form("A", &[("N", "a b+c&d=\u{e9}~")]),
        "Action=A&Version=2016-11-15&N=a%20b%2Bc%26d%3D%C3%A9~"
    );
}

#[test]
fn all_addresses_of_a_delegated_prefix_are_in_use() {
    let document = br"<DescribeNetworkInterfacesResponse><networkInterfaceSet><item>
      <networkInterfaceId>eni-1</networkInterfaceId><privateIpAddressesSet>
      <item><privateIpAddress>10.0.0.4</privateIpAddress><primary>true</primary>
        <association><publicIp>203.0.113.1</publicIp></association></item>
      <item><privateIpAddress>10.0.0.9</privateIpAddress><primary>false</primary></item>
    </privateIpAddressesSet><ipv4PrefixSet><item><ipv4Prefix>10.0.0.32/28</ipv4Prefix></item></ipv4PrefixSet></item>
    </networkInterfaceSet></DescribeNetworkInterfacesResponse>";
    let root = Element::parse(document).unwrap();
    let mut taken = Taken::default();
    for item in root.items("networkInterfaceSet") {
        taken.read("DescribeNetworkInterfaces", item).unwrap();
    }
    assert!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().primary);
    assert_eq!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().interface, "eni-1");
    assert_eq!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().public, Some(Ipv4Addr::new(203, 0, 113, 1)));
    assert!(taken.contains(Ipv4Addr::new(10, 0, 0, 47)));
    assert!(!taken.contains(Ipv4Addr::new(10, 0, 0, 48)));
}

proptest! {
    #[test]
    fn no_response_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), status in 100u16..600) {
        let _ = refusal(status, &bytes);
    }
}
