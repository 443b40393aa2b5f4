//! One request to the server, and its response.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::select;
use tokio_util::sync::CancellationToken;

use super::body::{self, ResponseBody};
use super::call::Call;
use super::events;
use super::fault::Fault;
use super::line::Line;
use super::rules::RuleId;
use super::server::{self, Shared};
use super::writes::{Permit, Then, When};

/// The connection ends without a response.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut by the fault proxy")
    }
}

impl std::error::Error for Cut {}

struct Exchange {
    proxy: Arc<Shared>,
    line: Arc<Line>,
    call: Arc<Call>,
    seq: u64,
    /// The connection was cut by the proxy.
    severed: CancellationToken,
    /// The controller does not wait any longer.
    gone: CancellationToken,
    faults: Vec<(RuleId, Fault)>,
}

enum Admitted {
    Forward(Option<Permit>),
    Rejected(Response<Bytes>),
}

/// Responds to a request, or ends its connection.
pub(super) async fn respond(
    proxy: Arc<Shared>,
    line: Arc<Line>,
    severed: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Cut> {
    let gone = CancellationToken::new();
    let _waits = gone.clone().drop_guard();
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let call = Arc::new(Call {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body,
    });
    let seq = proxy.recorder.arrived(&call);
    let faults = proxy.rules.of_request(&call);
    let write = call.is_write();
    let exchange = Exchange { proxy: proxy.clone(), line: line.clone(), call, seq, severed, gone, faults };
    let outcome = if write {
        // A write is forwarded even if the controller stops or gives up meanwhile.
        tokio::spawn(exchange.run()).await.unwrap_or(Err(Cut))
    } else {
        exchange.run().await
    };
    match &outcome {
        Ok(response) => proxy.recorder.responded(seq, response.status().as_u16()),
        Err(Cut) => line.reset_on_close(),
    }
    outcome
}

impl Exchange {
    async fn run(self) -> Result<Response<ResponseBody>, Cut> {
        let admitted = select! {
            biased;
            () = self.severed.cancelled() => return Err(Cut),
            admitted = self.admit() => admitted?,
        };
        let mut permit = match admitted {
            Admitted::Forward(permit) => permit,
            Admitted::Rejected(response) => return Ok(response.map(body::whole)),
        };
        if let Some(permit) = &mut permit {
            self.proxy.recorder.update(self.seq, |request| request.write = Some(permit.write.number));
            if permit.reached(When::BeforeForward).await == Then::Cut {
                return Err(Cut);
            }
        }
        let forwarded = self.forward().await;
        if let Some(permit) = &mut permit
            && permit.reached(When::AfterServerActed).await == Then::Cut
        {
            return Err(Cut);
        }
        let response = self.distort(forwarded).await;
        let Some(mut permit) = permit.filter(|permit| permit.awaits(When::AfterResponse)) else {
            return response;
        };
        let Ok(response) = response else {
            permit.reached(When::AfterResponse).await;
            return Err(Cut);
        };
        let (body, delivered) = body::delivered(response.into_parts(), self.line.clone());
        tokio::spawn(async move {
            delivered.await;
            permit.reached(When::AfterResponse).await;
        });
        Ok(body)
    }

    /// The faults before the server, then the count.
    async fn admit(&self) -> Result<Admitted, Cut> {
        for (rule, fault) in &self.faults {
            match fault {
                Fault::Refuse => return Err(Cut),
                Fault::Reject(reply) => {
                    return Ok(Admitted::Rejected(reply.render(self.proxy.origin.flavour)));
                }
                Fault::DelayRequest(delay) => tokio::time::sleep(*delay).await,
                Fault::Blackhole => select! {
                    biased;
                    () = self.gone.cancelled() => return Err(Cut),
                    () = self.proxy.rules.removed(*rule) => {}
                },
                Fault::DelayResponse(_)
                | Fault::CutResponse { .. }
                | Fault::Replace(_)
                | Fault::Swallow
                | Fault::Event(..) => {}
            }
        }
        if !server::counts(&self.call) {
            return Ok(Admitted::Forward(None));
        }
        let permit = self.proxy.counter.enter(&self.call, &self.severed).await;
        permit.map(|permit| Admitted::Forward(Some(permit))).ok_or(Cut)
    }

    async fn forward(&self) -> Result<Response<ResponseBody>, Cut> {
        self.proxy.recorder.update(self.seq, |request| request.forwarded = true);
        let response = async {
            let response = self.proxy.origin.send(&self.proxy.narrow(&self.call)).await?;
            let status = response.status();
            self.proxy.recorder.update(self.seq, |request| request.upstream_status = Some(status.as_u16()));
            if self.call.is_write() {
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                return Ok(Response::from_parts(head, body::whole(body)));
            }
            Ok::<_, anyhow::Error>(if events::are_in(&self.call, &response) {
                events::forward(self.proxy.clone(), self.call.clone(), response)
            } else {
                response.map(body::streamed)
            })
        };
        response.await.map_err(|error| {
            self.proxy.recorder.update(self.seq, |request| request.error = Some(format!("{error:#}")));
            Cut
        })
    }

    /// The faults after the server.
    async fn distort(
        &self,
        mut response: Result<Response<ResponseBody>, Cut>,
    ) -> Result<Response<ResponseBody>, Cut> {
        for (_, fault) in &self.faults {
            match fault {
                Fault::DelayResponse(delay) => tokio::time::sleep(*delay).await,
                Fault::Replace(reply) => {
                    response = response.map(|_| reply.render(self.proxy.origin.flavour).map(body::whole));
                }
                Fault::Swallow => return Err(Cut),
                Fault::CutResponse { after_bytes } => {
                    let line = self.line.clone();
                    response = response.map(|response| body::cut(response, *after_bytes, line));
                }
                Fault::Refuse
                | Fault::Reject(_)
                | Fault::DelayRequest(_)
                | Fault::Blackhole
                | Fault::Event(..) => {}
            }
        }
        response
    }
}
