use std::collections::HashMap;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

fn of(variables: &[(&'static str, &str)]) -> Result<Proxy, String> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    Proxy::of_variables(|name| variables.get(name).map(|value| (*value).to_owned()))
        .map_err(|error| error.to_string())
}

/// The proxy that a server is reached through.
fn to(proxy: &Proxy, server: &'static str) -> Option<String> {
    proxy.0.intercept(&Uri::from_static(server)).map(|proxy| proxy.uri().to_string())
}

#[test]
fn the_environment_names_the_proxy_and_its_exceptions() {
    let proxy = of(&[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", "10.0.0.0/8,.example.org")]).unwrap();
    assert_eq!(to(&proxy, "https://api.example.com").as_deref(), Some("http://p:3128/"));
    let direct = [
        "http://api.example.com",
        "https://10.96.0.1:443",
        "https://api.example.org",
        "https://localhost:6443",
        "https://127.0.0.1:6443",
        "https://[::1]:6443",
    ];
    for server in direct {
        assert_eq!(to(&proxy, server), None, "{server}");
    }
    let lower = of(&[("https_proxy", "p:3128"), ("no_proxy", "*"), ("HTTPS_PROXY", "")]).unwrap();
    assert_eq!(to(&lower, "https://api.example.com"), None);
    let wildcard = of(&[("HTTPS_PROXY", "p:3128"), ("NO_PROXY", "10.0.0.0/8, *.example.org")]).unwrap();
    assert_eq!(to(&wildcard, "https://api.example.org"), None);
    assert_eq!(to(&wildcard, "https://api.example.com").as_deref(), Some("http://p:3128/"));
    let unset = of(&[("HTTP_PROXY", "http://p:3128"), ("HTTPS_PROXY", "")]).unwrap();
    assert_eq!(to(&unset, "https://api.example.com"), None);
}

#[test]
fn a_proxy_that_cannot_be_used_is_refused_without_its_password() {
    for url in ["socks5://user:hidden@p", "https://user:hidden@p:3128", "user:hidden@p/ x", "ftp://hidden"] {
        let refused = of(&[("https_proxy", url)]).unwrap_err();
        assert!(refused.starts_with("https_proxy is invalid") && !refused.contains("hidden"), "{refused}");
    }
    let proxy = of(&[("HTTPS_PROXY", "http://user:hidden@p:3128")]).unwrap();
    assert!(!format!("{proxy:?}").contains("hidden"), "{proxy:?}");
}

/// A proxy that accepts one connection, replies with `head`, and then sends back what it gets. Returns its address, and the head
/// of the request.
async fn accept_one(head: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.into_split();
        // The client may close the connection first.
        let _ = tokio::io::copy(&mut from, &mut to).await;
        String::from_utf8(request).unwrap()
    });
    (address, request)
}

#[tokio::test]
async fn a_connection_is_a_tunnel_to_the_server_whose_name_the_proxy_resolves() {
    let (address, request) = accept_one("HTTP/1.1 200 Connection established\r\n\r\n").await;
    let proxy = of(&[("HTTPS_PROXY", &format!("http://user:p%40ss@{address}"))]).unwrap();
    let server = Uri::from_static("https://api.example.invalid:6443/version");
    let mut stream = proxy.connector(HttpConnector::new()).oneshot(server).await.unwrap().into_inner();
    stream.write_all(b"ping").await.unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"ping");
    drop(stream);
    let request = request.await.unwrap();
    assert!(request.starts_with("CONNECT api.example.invalid:6443 HTTP/1.1\r\n"), "{request}");
    // "user:p@ss"
    assert!(request.contains("Proxy-Authorization: Basic dXNlcjpwQHNz\r\n"), "{request}");
}

#[tokio::test]
async fn the_error_of_a_proxy_names_the_proxy_and_no_password() {
    let (address, _) = accept_one("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let proxy = of(&[("HTTPS_PROXY", &format!("http://user:hidden@{address}"))]).unwrap();
    let error = proxy
        .connector(HttpConnector::new())
        .oneshot(Uri::from_static("https://api.example.invalid"))
        .await
        .unwrap_err();
    let cause = error.source().unwrap();
    assert_eq!(error.to_string(), format!("proxy http://{address}/"));
    assert!(cause.to_string().contains("authorization required"), "{cause}");
}
