//! moto, an independent implementation of EC2. It does not store the private address of an association, so that is added to its responses here.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egress_router_cni::aws;
use egress_router_cni::cni::Code;
use egress_router_cni::config::settings::{Platform, Settings};
use egress_router_cni::http::{Method, Network, Request, Response, Transport};

use super::crashes;
use super::gate::{Backend, Form};
use super::metadata::REGION;
use super::node::{Memory, Snapshot, TestEnv};
use super::xml::Element;

const REQUIREMENTS: &str = include_str!("requirements.txt");
/// Until it responds, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The path of `scripts/python.sh moto`.
fn python() -> PathBuf {
    let version = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("moto==")).unwrap();
    let cache = || {
        let primary = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(primary, PathBuf::from).join("perimeter")
    };
    let assets = std::env::var_os("PERIMETER_ASSETS").map_or_else(cache, PathBuf::from);
    let python = assets.join(format!("moto-{version}/python"));
    assert!(
        python.exists(),
        "moto is missing ({}): run `make assets` first, or scripts/python.sh moto",
        python.display()
    );
    python
}

/// The started server.
struct Moto {
    child: Child,
    url: String,
    /// Association to private address.
    mapped: Mutex<BTreeMap<String, String>>,
}

impl Moto {
    fn start() -> Arc<Self> {
        let start = Instant::now();
        let mut moto = Self::spawn();
        while moto.send("", "Action=DescribeVpcs&Version=2016-11-15").is_none() {
            assert!(start.elapsed() < TIMEOUT, "moto does not answer");
            // It ends if a connection of another test has got the port meanwhile.
            if moto.child.try_wait().unwrap().is_some() {
                moto = Self::spawn();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Arc::new(moto)
    }

    /// Starts it on a port that is free now.
    fn spawn() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // The kernel kills it with this thread.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(python())
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv is in Debian's util-linux");
        Self { child, url: format!("http://127.0.0.1:{port}/"), mapped: Mutex::default() }
    }

    fn send(&self, path: &str, body: &str) -> Option<Response> {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8".to_owned()),
            // It does not verify, but takes region and service from here.
            (
                "authorization",
                format!(
                    "AWS4-HMAC-SHA256 Credential=t/20261121/{REGION}/ec2/aws4_request, SignedHeaders=host, Signature=0"
                ),
            ),
        ];
        let request = Request {
            method: Method::POST,
            url: &format!("{}{path}", self.url),
            headers: &headers,
            body: body.as_bytes(),
            timeout: TIMEOUT,
            proxy: false,
        };
        Network::new().send(&request).ok()
    }

    fn ask(&self, form: &[(&str, &str)]) -> Element {
        let (status, document) =
            self.respond(&form.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        assert_eq!(status, 200, "{document}");
        Element::parse(document.as_bytes()).unwrap()
    }

    /// A subnet.
    fn subnet(&self) -> String {
        let vpc = self.make(&[("Action", "CreateVpc"), ("CidrBlock", "10.0.0.0/16")], "vpc", "vpcId");
        let zone = format!("{REGION}a");
        let form = [
            ("Action", "CreateSubnet"),
            ("VpcId", &vpc),
            ("CidrBlock", "10.0.7.0/24"),
            ("AvailabilityZone", &zone),
        ];
        self.make(&form, "subnet", "subnetId")
    }

    /// Two nodes' interfaces, and an Elastic IP.
    fn env(self: &Arc<Self>, subnet: &str) -> TestEnv {
        let interface = [("Action", "CreateNetworkInterface"), ("SubnetId", subnet)];
        let interfaces = [(); 2].map(|()| self.make(&interface, "networkInterface", "networkInterfaceId"));
        let public = self.make(&[("Action", "AllocateAddress"), ("Domain", "vpc")], "", "publicIp");
        TestEnv::of(self.clone(), public.parse().unwrap(), interfaces, subnet, "10.0.7.0/24")
    }

    fn make(&self, form: &[(&str, &str)], object: &str, id: &str) -> String {
        let root = self.ask(form);
        root.child(object).unwrap_or(&root).text_of(id).unwrap().to_owned()
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Backend for Moto {
    fn respond(&self, form: &Form) -> (u16, String) {
        let body: Vec<String> =
            form.iter().map(|(key, value)| format!("{key}={}", value.replace('/', "%2F"))).collect();
        let response = self.send("", &body.join("&")).unwrap();
        let mut document = String::from_utf8(response.body).unwrap();
        let parsed = Element::parse(document.as_bytes()).unwrap();
        let mut mapped = self.mapped.lock().unwrap();
        match (form["Action"].as_str(), parsed.text_of("associationId")) {
            ("AssociateAddress", Some(association)) => {
                mapped.insert(association.into(), form["PrivateIpAddress"].clone());
            }
            ("DescribeAddresses", _) if response.status == 200 => {
                let mut parsed = parsed;
                let set = parsed.children.iter_mut().find(|child| child.name == "addressesSet").unwrap();
                for item in &mut set.children {
                    let private = item.text_of("associationId").and_then(|id| mapped.get(id)).cloned();
                    if let Some(private) = private {
                        item.children.retain(|child| child.name != "privateIpAddress");
                        let text = private;
                        item.children.push(Element {
                            name: "privateIpAddress".into(),
                            text,
                            children: Vec::new(),
                        });
                    }
                }
                document = write(&parsed);
            }
            _ => {}
        }
        (response.status, document)
    }
}

fn write(element: &Element) -> String {
    let children: String = element.children.iter().map(write).collect();
    let text = quick_xml::escape::escape(&element.text);
    format!("<{0}>{text}{children}</{0}>", element.name)
}

#[test]
#[ignore = "full: moto, an EC2 in Python"]
fn moto_sees_the_same() {
    let moto = Moto::start();
    let subnet = moto.subnet();
    let make = || moto.env(&subnet);

    let env = make();
    let first = env.a.add().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &first));
    assert_eq!(env.a.add().unwrap(), first);
    let second = env.b.add().unwrap();
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.b, &second));
    env.b.del().unwrap();
    env.b.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());

    let mut env = make();
    env.a.settings.allow_reassociation = Some(false);
    env.b.add().unwrap();
    assert_eq!(env.a.add().unwrap_err().code, Code::Aws);
    env.b.public = Ipv4Addr::new(198, 51, 100, 1);
    let error = env.b.add().unwrap_err();
    assert!(error.details.contains("InvalidAddress.NotFound"), "{error}");

    crashes::del_after_a_killed_add(make);
    crashes::the_other_node_after_a_killed_add(make);
    crashes::a_killed_del(make, &[None]);
    crashes::the_other_node_after_a_killed_del(make);
    through_the_front_door(&make());
}

/// With the functions that the plugin's verbs call.
fn through_the_front_door(env: &TestEnv) {
    let settings = Settings { platform: Platform::Aws, aws: env.a.settings.clone(), ..Settings::default() };
    let deadline = Instant::now() + aws::TIMEOUT;
    aws::over_network(&settings, |cloud| aws::ready(cloud, deadline)).unwrap();
    assert_eq!(aws::platform(&settings, "/sys".as_ref()), Platform::Aws);
    let addresses = [ipnet::IpNet::new(env.public.into(), 32).unwrap()];
    let request = aws::Request { addresses: &addresses, master: Some(env.a.mac), before: None };
    let mut memory = Memory::default();
    let acquire = |cloud: &aws::Cloud<'_>| aws::acquire(cloud, request, &mut memory, deadline);
    let acquired = aws::over_network(&settings, acquire).unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
    let state = memory.0.unwrap();
    aws::over_network(&settings, |cloud| aws::release(cloud, &state, deadline)).unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}
