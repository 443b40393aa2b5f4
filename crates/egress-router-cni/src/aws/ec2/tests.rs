use proptest::prelude::*;

use super::*;
use crate::aws::error::Refusal;

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
    let response = Response::parse("DescribeNetworkInterfaces", document).unwrap();
    let mut taken = Taken::default();
    for item in response.network_interface_set.item {
        taken.read("DescribeNetworkInterfaces", item).unwrap();
    }
    assert!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().primary);
    assert_eq!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().interface, "eni-1");
    assert_eq!(taken.find(Ipv4Addr::new(10, 0, 0, 4)).unwrap().public, Some(Ipv4Addr::new(203, 0, 113, 1)));
    assert!(taken.contains(Ipv4Addr::new(10, 0, 0, 47)));
    assert!(!taken.contains(Ipv4Addr::new(10, 0, 0, 48)));
}

const RESPONSE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeAddressesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>r-1</requestId>
  <addressesSet>
    <item><publicIp>203.0.113.9</publicIp><associationId/><tagSet><item><value>a &amp; &#x3c;b&gt;<![CDATA[ &c ]]></value></item></tagSet></item>
    <item><publicIp> 203.0.113.10 </publicIp><allocationId>eipalloc&#45;1</allocationId><associationId>a</associationId></item>
  </addressesSet>
  <nextToken>a &amp; &#x3c;b&gt;<![CDATA[ &c ]]></nextToken>
</DescribeAddressesResponse>"#;

#[test]
fn lists_texts_and_references_are_read() {
    let response = Response::parse("DescribeAddresses", RESPONSE.as_bytes()).unwrap();
    assert_eq!(response.next_token.as_deref(), Some("a & <b> &c"));
    let [first, second] = <[_; 2]>::try_from(response.addresses_set.item).unwrap();
    assert_eq!(second.public_ip, Some(Ipv4Addr::new(203, 0, 113, 10)));
    assert!(first.read("DescribeAddresses").is_err(), "it has no allocationId");
    let address = second.read("DescribeAddresses").unwrap();
    assert_eq!((address.allocation.as_str(), address.association.unwrap().id.as_str()), ("eipalloc-1", "a"));
}

#[test]
fn an_invalid_document_is_refused() {
    let refused = |document: &[u8]| Response::parse("A", document).unwrap_err();
    for document in [
        "",
        "  ",
        "text",
        "<AResponse>",
        "<AResponse></BResponse>",
        "<BResponse/>",
        "<AResponse><nextToken>&unknown;</nextToken></AResponse>",
        "<AResponse><nextToken>&#0;</nextToken></AResponse>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><AResponse><nextToken>&b;</nextToken></AResponse>",
        "<html><body>Bad Gateway</html>",
        "<AResponse><addressesSet><item><publicIp>203.0.113</publicIp></item></addressesSet></AResponse>",
    ] {
        refused(document.as_bytes());
    }
    refused(b"<AResponse>\xff</AResponse>");
    assert!(Response::parse("A", b"<AResponse/>").is_ok());
    assert_eq!(refused(b"<Response><Errors/></Response>"), "the response is a Response");
}

proptest! {
    #[test]
    fn no_response_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), status in 100u16..600) {
        let _ = refusal(status, &bytes);
    }

    #[test]
    fn no_document_causes_a_panic(pieces in proptest::collection::vec(
        prop_oneof![
            Just("<AResponse>"), Just("</AResponse>"), Just("<addressesSet>"), Just("</addressesSet>"), Just("<item>"), Just("</item>"),
            Just("<publicIp/>"), Just("<"), Just(">"), Just("&"), Just("&#"), Just("&#x110000;"), Just("&lt;"), Just("<![CDATA["),
            Just("]]>"), Just("<!--"), Just("-->"), Just("<?xml"), Just("?>"), Just("x"), Just("\u{fffd}"), Just("<!DOCTYPE"),
        ], 0..64)) {
        let _ = Response::parse("A", pieces.concat().as_bytes());
        let _ = Response::parse("A", format!("<AResponse>{}", pieces.concat()).as_bytes());
    }

    #[test]
    fn a_truncated_or_changed_response_never_panics(cut in 0..RESPONSE.len(), at in 0..RESPONSE.len(), byte: u8) {
        let mut bytes = RESPONSE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = Response::parse("DescribeAddresses", &bytes);
        prop_assert!(Response::parse("DescribeAddresses", &RESPONSE.as_bytes()[..cut]).is_err());
    }
}
