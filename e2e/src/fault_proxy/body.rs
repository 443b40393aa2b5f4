//! The bodies of responses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, stream};
use http::response::Parts;
use http::{Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::exchange::Cut;
use super::line::Line;

pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body that the controller gets.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

pub(super) fn whole(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn streamed(body: Incoming) -> ResponseBody {
    body.map_err(BodyError::from).boxed_unsync()
}

pub(super) fn chunks<S>(stream: S) -> ResponseBody
where
    S: Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
{
    use futures::StreamExt as _;
    BodyExt::boxed_unsync(StreamBody::new(stream.map(|chunk| chunk.map(Frame::data))))
}

/// Sends `after` bytes of the body, and cuts the connection once they are sent.
pub(super) fn cut(response: Response<ResponseBody>, after: usize, line: Arc<Line>) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    // hyper announces a length that it knows, so that the controller sees what is missing.
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    let state = (body, after);
    let body = stream::unfold(state, move |(mut body, left)| {
        let line = line.clone();
        async move {
            if left == 0 {
                // An error to the flush means that the connection is gone already.
                let _ = line.next_flush().await;
                return Some((Err(BodyError::from(Cut)), (body, left)));
            }
            loop {
                let chunk = match body.frame().await? {
                    Ok(frame) => match frame.into_data() {
                        Ok(chunk) => chunk,
                        Err(_trailers) => continue,
                    },
                    Err(error) => return Some((Err(error), (body, left))),
                };
                let passed = chunk.slice(..chunk.len().min(left));
                let left = left - passed.len();
                return Some((Ok(passed), (body, left)));
            }
        }
    });
    Response::from_parts(head, chunks(body))
}

/// The response, and a future that is ready once all of it is sent, or its connection is gone.
pub(super) fn delivered(
    (head, body): (Parts, ResponseBody),
    line: Arc<Line>,
) -> (Response<ResponseBody>, impl Future<Output = ()> + Send + 'static) {
    let (sender, consumed) = oneshot::channel();
    let body = Watched { body, line, consumed: Some(sender) };
    let delivered = async move {
        if let Ok(flushed) = consumed.await {
            // An error means that the connection is gone.
            let _ = flushed.await;
        }
    };
    (Response::from_parts(head, BodyExt::boxed_unsync(body)), delivered)
}

/// hyper drops a body when it has taken the last of it, and flushes after that.
struct Watched {
    body: ResponseBody,
    line: Arc<Line>,
    consumed: Option<oneshot::Sender<oneshot::Receiver<()>>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(consumed) = self.consumed.take() {
            // It fails while the runtime is shutting down.
            let _ = consumed.send(self.line.next_flush());
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
