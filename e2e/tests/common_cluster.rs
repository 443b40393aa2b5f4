//! The client of `common::cluster` at a real API server.

use common::args::ClientArgs;
use common::metrics::Metrics;
use e2e::control_plane::ControlPlane;
use kube::config::Kubeconfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// A proxy for HTTP CONNECT. Returns its address, and the request lines that it gets.
async fn proxy() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let line = String::from_utf8(head).unwrap().lines().next().unwrap().to_owned();
            let mut server = TcpStream::connect(line.split(' ').nth(1).unwrap()).await.unwrap();
            sender.send(line).unwrap();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            // One of the two closes the connection first.
            tokio::spawn(async move { drop(copy_bidirectional(&mut client, &mut server).await) });
        }
    });
    (address, requests)
}

#[tokio::test]
async fn a_kubeconfig_with_a_proxy_url_is_used_through_the_proxy() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let (address, mut requests) = proxy().await;
    let mut kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig()).unwrap();
    kubeconfig.clusters[0].cluster.as_mut().unwrap().proxy_url = Some(format!("http://{address}"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_yaml::to_string(&kubeconfig).unwrap()).unwrap();

    let args = ClientArgs { kubeconfig: Some(file.path().into()), ..ClientArgs::default() };
    let metrics = Metrics::new("test").unwrap();
    let clients = common::cluster::connect(&args, &common::program!(), &metrics).await.unwrap();
    let version = clients.client.apiserver_version().await.unwrap();
    assert_eq!(version, control_plane.client().apiserver_version().await.unwrap());
    let server = control_plane.url();
    let server = server.trim_start_matches("https://");
    assert_eq!(requests.recv().await.unwrap(), format!("CONNECT {server} HTTP/1.1"));
}
