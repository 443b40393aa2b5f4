//! The choice of the cluster, and all parts of the client together against a server of plain TCP.

use std::{
    convert::Infallible,
    ffi::OsString,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{kubeconfig::configuration, *};

fn kubeconfig(folder: &TempDir, name: &str, server: &str, namespace: &str) -> OsString {
    let file = folder.path().join(name);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
         clusters: [{{name: {name}, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: {name}, user: {{token: hidden}}}}]\n\
         contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: {namespace}}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    file.into_os_string()
}

fn args(kubeconfig: OsString) -> ClientArgs {
    ClientArgs { kubeconfig: Some(kubeconfig), ..ClientArgs::default() }
}

async fn refused(args: &ClientArgs) -> String {
    let error = connect(args, &crate::program!(), &Metrics::new("test").unwrap()).await.err().unwrap();
    assert!(error.is::<ConfigError>(), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn the_context_decides_server_and_namespace_and_files_are_joined() {
    let folder = TempDir::new().unwrap();
    let (a, b) =
        (kubeconfig(&folder, "a", "http://a:1", "in-a"), kubeconfig(&folder, "b", "http://b:2", "in-b"));
    let both = std::env::join_paths([a, b]).unwrap();
    let config = configuration(&args(both.clone())).await.unwrap();
    assert_eq!(
        (config.cluster_url.to_string().as_str(), config.default_namespace.as_str()),
        ("http://a:1/", "in-a")
    );
    let config = configuration(&ClientArgs { context: Some("b".into()), ..args(both) }).await.unwrap();
    assert_eq!(
        (config.cluster_url.to_string().as_str(), config.default_namespace.as_str()),
        ("http://b:2/", "in-b")
    );
}

#[tokio::test]
async fn an_empty_value_of_a_template_is_not_given() {
    let folder = TempDir::new().unwrap();
    let empty = ClientArgs {
        context: Some(String::new()),
        namespace: Some(String::new()),
        impersonate: Some(String::new()),
        impersonate_groups: vec![String::new()],
        ..args(kubeconfig(&folder, "a", "http://a:1", "in-a"))
    };
    let config = configuration(&empty).await.unwrap();
    assert_eq!((config.auth_info.impersonate, config.auth_info.impersonate_groups), (None, None));
    let user = ClientArgs { impersonate: Some("u".into()), ..empty.clone() };
    let auth_info = configuration(&user).await.unwrap().auth_info;
    assert_eq!(
        (auth_info.impersonate.as_deref(), auth_info.impersonate_groups),
        (Some("u"), Some(Vec::new()))
    );
    assert_eq!(config.cluster_url.to_string(), "http://a:1/");
    assert_eq!(empty.own_namespace(config.default_namespace), "in-a");
}

#[tokio::test]
async fn an_error_of_a_kubeconfig_is_one_line_that_names_the_file_and_contains_no_secret() {
    let folder = TempDir::new().unwrap();
    let missing = refused(&args("/nonexistent/kubeconfig".into())).await;
    assert!(missing.contains("/nonexistent/kubeconfig"), "{missing}");

    let context =
        ClientArgs { context: Some("c".into()), ..args(kubeconfig(&folder, "a", "http://a:1", "n")) };
    let context = refused(&context).await;
    assert!(context.contains("/a: ") && context.contains('c'), "{context}");

    let broken = folder.path().join("broken");
    std::fs::write(&broken, "users:\n- name: u\n  user:\n    token: [hidden]\n").unwrap();
    let broken = refused(&args(broken.into_os_string())).await;
    let misplaced = folder.path().join("misplaced");
    std::fs::write(&misplaced, "users:\n- name: u\n  user:\n    exec:\n      interactiveMode: hidden\n")
        .unwrap();
    let misplaced = refused(&args(misplaced.into_os_string())).await;
    assert!(misplaced.contains("no YAML, or a field of another kind"), "{misplaced}");
    let proxied = kubeconfig(&folder, "p", "http://a:1", "n");
    let text = std::fs::read_to_string(&proxied).unwrap();
    let proxy = "{server: 'http://a:1', proxy-url: 'http://user:hidden@proxy:3128'}";
    std::fs::write(&proxied, text.replace("{server: 'http://a:1'}", proxy)).unwrap();
    let proxied = refused(&args(proxied)).await;
    assert!(proxied.contains("proxy-url needs a server with an https:// URL"), "{proxied}");
    let exec = async |script: &str| {
        let file = kubeconfig(&folder, "e", "http://a:1", "n");
        let plugin = format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['-c', '{script}']}}}}"
        );
        let text = std::fs::read_to_string(&file).unwrap().replace("{token: hidden}", &plugin);
        std::fs::write(&file, text).unwrap();
        refused(&args(file)).await
    };
    let (failing, garbled) = (exec("echo hidden; exit 3").await, exec("echo hidden").await);
    assert!(
        failing.contains("exit status: 3") && garbled.contains("no valid ExecCredential"),
        "{failing} {garbled}"
    );
    for line in [&missing, &context, &broken, &misplaced, &proxied, &failing, &garbled] {
        assert!(!line.contains('\n') && !line.contains("hidden"), "{line}");
    }
}

#[test]
fn the_url_of_a_log_line_has_no_password() {
    for (url, shown) in [
        ("https://user:hidden@a:6443/k8s/c@1", "https://a:6443/k8s/c@1"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443/"),
        ("http://h/p@q", "http://h/p@q"),
    ] {
        assert_eq!(super::server(&Config::new(url.parse().unwrap())), shown);
    }
}

/// A server that responds with these codes one after the other, then with the last one, and the headers of each request.
async fn server(codes: &'static [u16]) -> (String, Arc<Mutex<Vec<HeaderMap>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            let service = service_fn(move |request: Request<Incoming>| {
                let mut log = log.lock().unwrap();
                let code = codes.get(log.len()).or(codes.last()).copied().unwrap();
                log.push(request.headers().clone());
                let body = match code {
                    200 => r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#.to_owned(),
                    code => format!(r#"{{"kind":"Status","status":"Failure","code":{code},"message":"no"}}"#),
                };
                async move {
                    let body = Full::new(Bytes::from(body));
                    Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (url, seen)
}

async fn clients(url: &str) -> (Clients, Metrics) {
    let folder = TempDir::new().unwrap();
    let metrics = Metrics::new("test").unwrap();
    let args = ClientArgs {
        impersonate: Some("someone".into()),
        impersonate_groups: vec!["g".into(), "h".into()],
        ..args(kubeconfig(&folder, "a", url, "in-a"))
    };
    (connect(&args, &crate::program!(), &metrics).await.unwrap(), metrics)
}

#[tokio::test]
async fn a_silent_connection_is_probed() {
    let (url, _) = server(&[200]).await;
    let (clients, _) = clients(&url).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(clients.client);
    maps.get("a").await.unwrap();
    // The kernel's own table (proc_pid_net(5)): address here, address there, state, queues, which timer runs.
    let port = url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let there = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let ours = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let timers: Vec<_> =
        ours.filter(|words| words[2] == there && words[3] == "01").map(|words| words[5]).collect();
    // A busy machine may have made a second connection.
    let is_probed = |timer: &&str| timer.starts_with("02:");
    assert!(!timers.is_empty() && timers.iter().all(is_probed), "no probe is due: {timers:?}");
}

#[tokio::test]
async fn a_call_is_authorised_impersonated_retried_and_each_try_counted() {
    let (url, seen) = server(&[503, 429, 200]).await;
    let (clients, metrics) = clients(&url).await;
    assert_eq!(clients.default_namespace, "in-a");
    let maps: Api<ConfigMap> = Api::default_namespaced(clients.client);
    maps.get("a").await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    let header =
        |name: &str| seen[2].get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(header("authorization"), ["Bearer hidden"]);
    assert_eq!(header("impersonate-user"), ["someone"]);
    assert_eq!(header("impersonate-group"), ["g", "h"]);
    assert!(header("user-agent")[0].starts_with("common/0.1.0 (linux/"));
    let text = String::from_utf8(metrics.text().unwrap()).unwrap();
    for code in ["503", "429", "200"] {
        let line = format!("rest_client_requests_total{{api=\"main\",code=\"{code}\",method=\"GET\"}} 1");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn the_lease_client_never_retries() {
    let (url, seen) = server(&[503, 200]).await;
    let (clients, _) = clients(&url).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(clients.lease);
    assert!(maps.get("a").await.is_err());
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_kubeconfig_from_a_secret_may_not_name_files_or_programs_in_its_current_context() {
    let client = async |user: &str, cluster: &str, current: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
             clusters: [{{name: a, cluster: {{server: 'https://a:1', {cluster}}}}}, \
                        {{name: b, cluster: {{server: 'http://b:1', proxy-url: 'http://p:1'}}}}]\n\
             users: [{{name: a, user: {{token: hidden, {user}}}}}, {{name: b, user: {{exec: {{command: boom}}}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}, {{name: b, context: {{cluster: b, user: b}}}}]\n"
        );
        let metrics = Metrics::new("test").unwrap();
        of_kubeconfig(&text, &crate::program!(), &metrics).await.err().map(|error| error.to_string())
    };
    assert_eq!(client("", "", "a").await, None);
    let empty = "client-certificate: '', client-key: '', tokenFile: ''";
    assert_eq!(client(empty, "certificate-authority: '', proxy-url: ''", "a").await, None);
    let socks = client("", "proxy-url: 'socks5://user:hidden@p:1'", "a").await.unwrap();
    assert_eq!(client("", "proxy-url: 'http://user:hidden@p:1'", "a").await, None);
    assert!(socks.contains("proxy-url is invalid") && !socks.contains("hidden"), "{socks}");
    assert!(client("", "", "b").await.unwrap().contains("exec"));
    assert!(client("tokenFile: /etc/shadow", "", "a").await.unwrap().contains("files"));
    assert!(client("exec: {command: boom}", "", "a").await.unwrap().contains("exec"));
    assert!(
        client("", "certificate-authority: /etc/x", "a").await.unwrap().contains("certificate-authority")
    );
    assert!(client("", "", "none").await.is_some());
}

#[test]
fn an_error_chain_has_no_repetitions() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Outer(#[source] std::io::Error);
    #[derive(Debug, thiserror::Error)]
    #[error("cannot write: {0}")]
    struct Repeats(#[source] std::io::Error);
    assert_eq!(error_chain(&Outer(std::io::Error::other("disk"))), "cannot write: disk");
    assert_eq!(error_chain(&Repeats(std::io::Error::other("disk"))), "cannot write: disk");
}

#[test]
fn an_error_of_the_api_server_is_its_message_without_the_status() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot patch")]
    struct Outer(#[source] kube::Error);
    let refused = |message| {
        kube::Error::Api(Box::new(kube::core::Status::failure(message, "Forbidden").with_code(403)))
    };
    assert_eq!(error_chain(&refused("nodes \"a\" is forbidden")), "nodes \"a\" is forbidden");
    assert_eq!(error_chain(&Outer(refused("forbidden"))), "cannot patch: forbidden");
    assert_eq!(error_chain(&refused("")), "the API server responded 403 Forbidden");
    let unreachable = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
    assert_eq!(error_chain(&unreachable), "connection refused");
}

struct Edge;

impl ClusterName for Edge {
    const NAME: &'static str = "edge";
}

mod further {
    use std::time::Duration;

    use clap::{CommandFactory as _, FromArgMatches as _, Parser, error::ErrorKind};
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{args::KubeconfigSecret, cache, readiness::Readiness};

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        client: ClientArgs,
        #[command(flatten)]
        edge: ClusterArgs<Edge>,
    }

    fn parse(arguments: &[&str]) -> Result<Cli, ErrorKind> {
        Cli::try_parse_from(std::iter::once(&"test").chain(arguments)).map_err(|error| error.kind())
    }

    #[test]
    fn the_flags_of_a_further_cluster_begin_with_its_name() {
        let cli = parse(&["--kubeconfig", "a", "--edge-kubeconfig", "b", "--edge-context", "c"]).unwrap();
        assert_eq!(cli.client.kubeconfig.unwrap(), "a");
        assert_eq!(cli.edge.client.kubeconfig.unwrap(), "b");
        assert_eq!(cli.edge.client.context.unwrap(), "c");
        let secret = ["--edge-kubeconfig-secret-name", "s", "--edge-kubeconfig-secret-namespace", "n"];
        let cli = parse(&secret).unwrap();
        let expected = KubeconfigSecret { name: "s".to_owned(), namespace: Some("n".to_owned()) };
        assert_eq!(cli.edge.client.secret, Some(expected));
        let with = |more: [&'static str; 2]| [secret[0], secret[1], more[0], more[1]];
        for refused in [with(["--edge-kubeconfig", "b"]), with(["--edge-context", "c"])] {
            assert_eq!(parse(&refused).err(), Some(ErrorKind::ArgumentConflict), "{refused:?}");
        }
        assert_eq!(parse(&secret[2..]).err(), Some(ErrorKind::ArgumentConflict));
        assert!(parse(&["--edge-kubeconfig", "", "--edge-kubeconfig-secret-name", "s"]).is_ok());
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        // A variable that every test has stands for that of the flag.
        let client = |id: &'static str, arguments: &[&str]| {
            let command = Cli::command().mut_arg(id, |arg| arg.env("PATH"));
            let matches = command.try_get_matches_from(std::iter::once(&"test").chain(arguments)).unwrap();
            Cli::from_arg_matches(&matches).unwrap().edge.client
        };
        let of_secret = client("edge-kubeconfig", &["--edge-kubeconfig-secret-name=s"]);
        assert_eq!((of_secret.kubeconfig, of_secret.secret.unwrap().name.as_str()), (None, "s"));
        let flags = ["--edge-kubeconfig=b"];
        for id in ["edge-kubeconfig-secret-name", "edge-kubeconfig"] {
            let of_file = client(id, &flags);
            assert_eq!((of_file.kubeconfig.unwrap().to_str(), of_file.secret), (Some("b"), None));
        }
    }

    fn args(kubeconfig: OsString) -> ClusterArgs<Edge> {
        let mut cli = parse(&[]).unwrap();
        cli.edge.client.kubeconfig = Some(kubeconfig);
        cli.edge
    }

    /// An API server with one ConfigMap of this name; other requests get a 404. It ends each watch at once.
    async fn api_server(name: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let object = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"1"}}}}"#
        );
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let object = object.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let query = request.uri().query().unwrap_or_default();
                    let (code, body) = match (request.uri().path(), query) {
                        ("/api/v1/configmaps", query) if query.contains("sendInitialEvents") => {
                            (422, r#"{"kind":"Status","code":422,"message":"not streamed"}"#.to_owned())
                        }
                        ("/api/v1/configmaps", query) if query.contains("watch=true") => (200, String::new()),
                        ("/api/v1/configmaps", _) => (
                            200,
                            format!(
                                r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"1"}},"items":[{object}]}}"#
                            ),
                        ),
                        _ => (404, r#"{"kind":"Status","code":404,"message":"not found"}"#.to_owned()),
                    };
                    async move {
                        Ok::<_, Infallible>(
                            Response::builder().status(code).body(Full::new(Bytes::from(body))).unwrap(),
                        )
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        url
    }

    #[tokio::test]
    async fn two_clusters_have_caches_checks_and_series_of_their_own() {
        let folder = TempDir::new().unwrap();
        let (program, metrics, readiness) =
            (crate::program!(), Metrics::new("test").unwrap(), Readiness::default());
        let main = kubeconfig(&folder, "main", &api_server("of-main").await, "n");
        let edge = kubeconfig(&folder, "edge", &api_server("of-edge").await, "n");
        let main = connect(&super::args(main), &program, &metrics).await.unwrap().client;
        let edge: Cluster<Edge> =
            Cluster::connect(&args(edge), &program, &metrics, &readiness, &main, "n").await.unwrap();

        let of_main =
            cache::Builder::new(Api::<ConfigMap>::all(main), &(), &metrics).readiness(&readiness).start();
        let of_edge = cache::Builder::new(Api::<ConfigMap>::all(edge.client.clone()), &(), &metrics);
        let of_edge = edge.attach(of_edge).start();
        let synced = async { tokio::join!(of_main.synced(), of_edge.synced()) };
        tokio::time::timeout(Duration::from_secs(300), synced).await.unwrap();
        for (cache, name) in [(&of_main, "of-main"), (&of_edge, "of-edge")] {
            let names: Vec<_> = cache.list().iter().map(|map| map.metadata.name.clone().unwrap()).collect();
            assert_eq!(names, [name]);
        }
        let checks: Vec<_> = readiness.report().into_iter().map(|(name, _)| name).collect();
        assert_eq!(checks, ["configmaps", "edge/configmaps"]);

        let maps: Api<ConfigMap> = Api::namespaced(edge.client.clone(), "n");
        maps.get("missing").await.unwrap_err();
        let text = String::from_utf8(metrics.text().unwrap()).unwrap();
        for line in [
            "rest_client_requests_total{api=\"edge\",code=\"404\",method=\"GET\"} 1",
            "rest_client_requests_total{api=\"main\",code=\"200\",method=\"GET\"} ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_missing_secret_of_a_further_cluster_is_an_error_of_the_configuration() {
        let (folder, program) = (TempDir::new().unwrap(), crate::program!());
        let (metrics, readiness) = (Metrics::new("test").unwrap(), Readiness::default());
        let main = kubeconfig(&folder, "main", &api_server("a").await, "n");
        let main = connect(&super::args(main), &program, &metrics).await.unwrap().client;
        let args = parse(&["--edge-kubeconfig-secret-name", "s"]).unwrap().edge;
        let error = Cluster::connect(&args, &program, &metrics, &readiness, &main, "n").await.unwrap_err();
        assert!(error.is::<ConfigError>(), "{error:?}");
        assert_eq!(error.to_string(), "edge: Secret n/s does not exist");
    }
}
