//! A proxy between a node and an EC2: it checks signatures and injects faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::ec2::error;
use super::http::{Asked, Response, Server};
use super::metadata::{KEY, REGION, SESSION};

pub type Form = BTreeMap<String, String>;

/// An EC2 behind the gate.
pub trait Backend: Send + Sync {
    fn respond(&self, form: &Form) -> (u16, String);
}

/// A fault.
#[derive(Clone)]
pub enum Fault {
    /// Refused without effect.
    Refuse(u16, &'static str),
    /// Connection closed without effect.
    CutBefore,
    /// Takes effect, and the response is lost.
    CutAfter,
    /// Takes effect, and the response is replaced.
    After(u16, &'static str),
}

/// Faults for one action.
pub struct Planned {
    pub action: &'static str,
    pub fault: Fault,
    /// How often.
    pub times: u32,
    /// Runs after the request was handled, before the response.
    pub meanwhile: Option<Box<dyn FnMut() + Send>>,
}

/// A gate in front of a backend.
pub struct Gate {
    pub faults: Arc<Mutex<Vec<Planned>>>,
    /// The actions that took effect.
    pub log: Arc<Mutex<Vec<String>>>,
    server: Server,
}

impl Gate {
    pub fn start(backend: Arc<dyn Backend>) -> Self {
        Self::with(backend, None)
    }

    /// With TLS, where there is a configuration for it.
    pub fn with(backend: Arc<dyn Backend>, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let faults: Arc<Mutex<Vec<Planned>>> = Arc::default();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (shared, written) = (faults.clone(), log.clone());
        let handler = move |asked: &Asked| {
            check(asked);
            let form = parse(&asked.body);
            let fault = next(&shared, &form["Action"]);
            if let Some((Fault::Refuse(status, code), meanwhile)) = fault {
                run(meanwhile);
                return Response::Reply(status, error(code, "planned"));
            }
            if let Some((Fault::CutBefore, meanwhile)) = fault {
                run(meanwhile);
                return Response::Cut;
            }
            written.lock().unwrap().push(form["Action"].clone());
            let (status, document) = backend.respond(&form);
            match fault {
                Some((Fault::CutAfter, meanwhile)) => {
                    run(meanwhile);
                    Response::Cut
                }
                Some((Fault::After(status, document), meanwhile)) => {
                    run(meanwhile);
                    Response::Reply(status, document.into())
                }
                _ => Response::Reply(status, document),
            }
        };
        let server = match tls {
            None => Server::start(handler),
            Some(config) => Server::start_tls(config, handler),
        };
        Self { faults, log, server }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn plan(&self, action: &'static str, fault: Fault, times: u32) {
        self.faults.lock().unwrap().push(Planned { action, fault, times, meanwhile: None });
    }

    /// No faults, no log.
    pub fn calm(&self) {
        self.faults.lock().unwrap().clear();
        self.log.lock().unwrap().clear();
    }

    /// How often `action` took effect.
    pub fn count(&self, action: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|done| *done == action).count()
    }
}

type Meanwhile = Option<Box<dyn FnMut() + Send>>;

fn run(meanwhile: Meanwhile) {
    if let Some(mut meanwhile) = meanwhile {
        meanwhile();
    }
}

fn next(faults: &Mutex<Vec<Planned>>, action: &str) -> Option<(Fault, Meanwhile)> {
    let mut faults = faults.lock().unwrap();
    let planned = faults.iter_mut().find(|planned| planned.action == action && planned.times > 0)?;
    planned.times -= 1;
    Some((planned.fault.clone(), planned.meanwhile.take()))
}

/// Checks the signature's format. AWS's test suite covers its value.
fn check(asked: &Asked) {
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/"));
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded; charset=utf-8"));
    assert_eq!(
        asked.header("x-amz-security-token"),
        Some(SESSION),
        "temporary credentials come with their token"
    );
    let time = asked.header("x-amz-date").unwrap();
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/{}/{REGION}/ec2/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature=",
        &time[..8]
    );
    let signature = asked.header("authorization").unwrap().strip_prefix(&expected).unwrap();
    assert!(signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

/// A form's fields.
pub fn parse(body: &str) -> Form {
    let text = |encoded: &str| {
        let mut bytes = Vec::new();
        let mut rest = encoded.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            if *first == b'%' {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
                rest = &tail[2..];
            } else {
                bytes.push(*first);
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    body.split('&')
        .map(|field| field.split_once('=').unwrap())
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}
