//! One request on its way to the server, and its answer on the way back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::select;
use tokio_util::sync::CancellationToken;

use super::body::{self, AnswerBody};
use super::call::Call;
use super::events;
use super::fault::Fault;
use super::line::Line;
use super::rules::RuleId;
use super::server::Shared;
use super::writes::{Then, Turn, When};

/// The connection ends here, without an answer.
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
    /// The controller does not wait any more.
    gone: CancellationToken,
    faults: Vec<(RuleId, Fault)>,
}

enum Admitted {
    Forward(Option<Turn>),
    Answered(Response<Bytes>),
}

/// Answers a request, or ends its connection.
pub(super) async fn answer(
    proxy: Arc<Shared>,
    line: Arc<Line>,
    severed: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Cut> {
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
        // A write that is on its way is not called back when the controller dies or gives up.
        tokio::spawn(exchange.run()).await.unwrap_or(Err(Cut))
    } else {
        exchange.run().await
    };
    match &outcome {
        Ok(response) => proxy.recorder.answered(seq, response.status().as_u16()),
        Err(Cut) => line.reset_on_close(),
    }
    outcome
}

impl Exchange {
    async fn run(self) -> Result<Response<AnswerBody>, Cut> {
        let admitted = select! {
            biased;
            () = self.severed.cancelled() => return Err(Cut),
            admitted = self.admit() => admitted?,
        };
        let mut turn = match admitted {
            Admitted::Forward(turn) => turn,
            Admitted::Answered(response) => return Ok(response.map(body::whole)),
        };
        if let Some(turn) = &mut turn {
            self.proxy.recorder.update(self.seq, |request| request.write = Some(turn.write.number));
            if turn.reached(When::BeforeForward).await == Then::Cut {
                return Err(Cut);
            }
        }
        let forwarded = self.forward().await;
        if let Some(turn) = &mut turn
            && turn.reached(When::AfterServerActed).await == Then::Cut
        {
            return Err(Cut);
        }
        let answered = self.distort(forwarded).await;
        let Some(mut turn) = turn.filter(|turn| turn.awaits(When::AfterAnswered)) else { return answered };
        let Ok(response) = answered else {
            turn.reached(When::AfterAnswered).await;
            return Err(Cut);
        };
        let (body, delivered) = body::delivered(response.into_parts(), self.line.clone());
        tokio::spawn(async move {
            delivered.await;
            turn.reached(When::AfterAnswered).await;
        });
        Ok(body)
    }

    /// The faults before the server, then the count.
    async fn admit(&self) -> Result<Admitted, Cut> {
        for (rule, fault) in &self.faults {
            match fault {
                Fault::Refuse => return Err(Cut),
                Fault::Reject(answer) => {
                    return Ok(Admitted::Answered(answer.render(self.proxy.origin.flavour)));
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
        if !self.proxy.counts(&self.call) {
            return Ok(Admitted::Forward(None));
        }
        let turn = self.proxy.counter.enter(&self.call, &self.severed).await;
        turn.map(|turn| Admitted::Forward(Some(turn))).ok_or(Cut)
    }

    async fn forward(&self) -> Result<Response<AnswerBody>, Cut> {
        self.proxy.recorder.update(self.seq, |request| request.forwarded = true);
        let answered = async {
            let response = self.proxy.origin.send(&self.proxy.narrow(&self.call)).await?;
            let status = response.status();
            self.proxy.recorder.update(self.seq, |request| request.upstream_status = Some(status.as_u16()));
            if self.call.is_write() {
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                return Ok(Response::from_parts(head, body::whole(body)));
            }
            Ok::<_, anyhow::Error>(if events::are_in(&self.call, &response) {
                events::pass(self.proxy.clone(), self.call.clone(), response)
            } else {
                response.map(body::streamed)
            })
        };
        answered.await.map_err(|error| {
            self.proxy.recorder.update(self.seq, |request| request.error = Some(format!("{error:#}")));
            Cut
        })
    }

    /// The faults behind the server.
    async fn distort(
        &self,
        mut answered: Result<Response<AnswerBody>, Cut>,
    ) -> Result<Response<AnswerBody>, Cut> {
        for (_, fault) in &self.faults {
            match fault {
                Fault::DelayResponse(delay) => tokio::time::sleep(*delay).await,
                Fault::Replace(answer) => {
                    answered = answered.map(|_| answer.render(self.proxy.origin.flavour).map(body::whole));
                }
                Fault::Swallow => return Err(Cut),
                Fault::CutResponse { after_bytes } => {
                    let line = self.line.clone();
                    answered = answered.map(|response| body::cut(response, *after_bytes, line));
                }
                Fault::Refuse
                | Fault::Reject(_)
                | Fault::DelayRequest(_)
                | Fault::Blackhole
                | Fault::Event(..) => {}
            }
        }
        answered
    }
}
