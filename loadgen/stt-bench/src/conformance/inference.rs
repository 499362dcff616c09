//! The scripted inference: an HTTP/1.1 and HTTP/2 server on one port. A script per session sets the reply to each
//! batch; the session is read from the frames in the request's body. The server records every request, for cases to
//! check.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, Version, body::Incoming, header::HeaderValue, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    finding::{NotPassed, failed},
    payload::{self, FRAME_BYTES},
};

/// Limit of a request's body in bytes, as in the reference inference.
const BODY_BYTES: usize = 2 << 20;

/// How the inference answers one batch.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Delay of the response, counted from the arrival of the request's head.
    pub after: Duration,
    /// If given, the response waits until this is `true`; if its sender is dropped before, it waits forever.
    pub gate: Option<watch::Receiver<bool>>,
    /// What the response is.
    pub response: BatchResponse,
}

/// Response to a batch, correct or faulty.
#[derive(Clone, Debug)]
pub enum BatchResponse {
    /// 200 and the correct result.
    Correct,
    /// This status, with a short text as the body.
    Status(u16),
    /// 200 and this body, unchanged.
    Body(String),
    /// 200 and the correct body as edited by this function.
    Edited(fn(&str) -> String),
    /// No response: the connection is reset, or over HTTP/2 the stream.
    Reset,
    /// No response: the request stays open.
    Never,
}

impl Reply {
    /// Creates a reply without delay.
    pub fn now(response: BatchResponse) -> Self {
        Self { after: Duration::ZERO, gate: None, response }
    }

    /// Creates a reply with the correct result after this delay.
    pub fn late(after: Duration) -> Self {
        Self { after, gate: None, response: BatchResponse::Correct }
    }

    /// Creates a reply with the correct result once the gate is `true`.
    pub fn gated(gate: &watch::Receiver<bool>) -> Self {
        Self { after: Duration::ZERO, gate: Some(gate.clone()), response: BatchResponse::Correct }
    }
}

/// Record of a request from the gateway.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Time at which its head was read.
    pub arrived: Instant,
    /// Time just before its response was sent; none before that, or if the gateway ended the request or the script
    /// gives no response.
    pub answered: Option<Instant>,
    /// Sequence numbers of the undamaged frames in its body, in their order there.
    pub sequences: Vec<u32>,
    /// First fault of the body, which should consist of whole frames of one session, byte for byte as sent. None if it
    /// is correct, or if it does not begin with a marked frame.
    pub damage: Option<String>,
    /// Value of the header `x-cpu-passes`; none if it is missing.
    pub passes: Option<String>,
    /// Value of the header Content-Length; none if it is missing.
    pub length: Option<String>,
    /// Length of the body in bytes.
    pub bytes: usize,
    /// Method and path, separated by a space.
    pub target: String,
    /// HTTP version of the request.
    pub version: Version,
}

#[derive(Default)]
struct SessionState {
    script: Vec<Reply>,
    /// Number of batches so far. A request that repeats a reset one is not counted again.
    batches: usize,
    requests: Vec<ReceivedRequest>,
    in_flight: usize,
    most_in_flight: usize,
}

/// The scripted inference: a server, with a script and a record per session.
pub struct Inference {
    address: SocketAddr,
    sessions: Arc<Mutex<HashMap<u32, SessionState>>>,
    arrivals: watch::Sender<u64>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inference {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.lock().expect("no holder of this lock can panic").take() {
            task.abort();
        }
    }
}

impl Inference {
    /// Binds the address and serves connections in a task until the last reference is dropped.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub async fn start(address: SocketAddr) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind(address).await?;
        let inference = Arc::new(Self {
            address: listener.local_addr()?,
            sessions: Arc::default(),
            arrivals: watch::Sender::new(0),
            accepting: Mutex::new(None),
        });
        // A weak reference: with a strong one the task would keep alive the object whose drop aborts it.
        let weak = Arc::downgrade(&inference);
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => match weak.upgrade() {
                        Some(inference) => drop(tokio::spawn(inference.serve(stream))),
                        None => return,
                    },
                    Err(_) => sleep(Duration::from_millis(20)).await,
                }
            }
        });
        *inference.accepting.lock().expect("no holder of this lock can panic") = Some(task);
        Ok(inference)
    }

    /// Base URL, the value of `INFERENCE_URL` for gateways.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the replies to the batches of a session, in order; the last one repeats. Without a script every batch gets
    /// the correct result at once.
    pub fn script(&self, session: u32, replies: Vec<Reply>) {
        self.sessions().entry(session).or_default().script = replies;
    }

    /// Records of all requests of a session, in the order in which their bodies were complete.
    pub fn requests(&self, session: u32) -> Vec<ReceivedRequest> {
        self.sessions().get(&session).map(|state| state.requests.clone()).unwrap_or_default()
    }

    /// Largest number of requests of a session that were in flight at the same time.
    pub fn most_in_flight(&self, session: u32) -> usize {
        self.sessions().get(&session).map_or(0, |state| state.most_in_flight)
    }

    /// Waits until a session has made this number of requests, and returns their records.
    ///
    /// # Errors
    /// Fails if it has made fewer within this time.
    pub async fn wait(&self, session: u32, count: usize, within: Duration) -> Result<Vec<ReceivedRequest>, NotPassed> {
        let mut arrivals = self.arrivals.subscribe();
        let enough = async {
            while self.requests(session).len() < count {
                if arrivals.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(within, enough).await;
        let requests = self.requests(session);
        if requests.len() >= count {
            return Ok(requests);
        }
        Err(failed(
            format!("the gateway sends {count} requests to the inference within {within:?}"),
            format!("{} requests", requests.len()),
        ))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u32, SessionState>> {
        self.sessions.lock().expect("no holder of this lock can panic")
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        // A second handle of the socket sets linger 0 for a reset: the last close of the two then sends RST.
        let Ok(stream) = stream.into_std() else { return };
        let Ok(handle) = stream.try_clone().map(Arc::new) else { return };
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let response = service_fn(move |request| {
            let (inference, handle) = (self.clone(), handle.clone());
            async move { inference.respond(request, &handle).await }
        });
        // Errors are expected: a reset by this server or by the gateway ends the connection with one.
        let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), response).await;
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        connection: &std::net::TcpStream,
    ) -> Result<Response<Full<Bytes>>, Interrupted> {
        if request.method() == Method::GET && request.uri().path() == "/health" {
            return Ok(Response::new(Full::new(Bytes::from_static(b"ok"))));
        }
        let (received, body, session) = receive(request).await?;
        let (arrived, version, passes) = (received.arrived, received.version, received.passes.clone());
        let (pending, reply) = self.record(session, received);
        if let Some(mut gate) = reply.gate {
            // If the gate's sender was dropped, the request stays open.
            if gate.wait_for(|open| *open).await.is_err() {
                std::future::pending::<Infallible>().await;
            }
        }
        if !reply.after.is_zero() {
            sleep((arrived + reply.after).saturating_duration_since(Instant::now())).await;
        }
        let passes = passes.and_then(|passes| passes.parse().ok()).unwrap_or(4);
        let correct = || payload::infer(&body, passes).to_json();
        let (status, body) = match reply.response {
            BatchResponse::Correct => (200, correct()),
            BatchResponse::Body(body) => (200, body),
            BatchResponse::Edited(edit) => (200, edit(&correct())),
            BatchResponse::Status(status) => (status, "as the script says".into()),
            BatchResponse::Never => match std::future::pending::<Infallible>().await {},
            BatchResponse::Reset => {
                if version < Version::HTTP_2 {
                    let _ = socket2::SockRef::from(connection).set_linger(Some(Duration::ZERO));
                }
                return Err(Interrupted);
            }
        };
        pending.answered();
        Ok(json(status, body))
    }

    /// Records a request and selects its reply.
    fn record(&self, session: u32, request: ReceivedRequest) -> (PendingRequest<'_>, Reply) {
        let mut sessions = self.sessions();
        let state = sessions.entry(session).or_default();
        let reply_to = |batch: usize| {
            state.script.get(batch).or(state.script.last()).cloned().unwrap_or(Reply::now(BatchResponse::Correct))
        };
        // An HTTP client may repeat a request that was reset on a reused connection. The repeated request gets the same
        // reply.
        let repeats = state.batches > 0
            && matches!(reply_to(state.batches - 1).response, BatchResponse::Reset)
            && state.requests.last().is_some_and(|last| last.sequences.first() == request.sequences.first());
        let batch = if repeats { state.batches - 1 } else { state.batches };
        let reply = reply_to(batch);
        state.batches = batch + 1;
        state.requests.push(request);
        state.in_flight += 1;
        state.most_in_flight = state.most_in_flight.max(state.in_flight);
        let pending = PendingRequest { inference: self, session, index: state.requests.len() - 1 };
        drop(sessions);
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
        (pending, reply)
    }
}

/// A request in flight; dropping it ends its count as in flight.
struct PendingRequest<'a> {
    inference: &'a Inference,
    session: u32,
    index: usize,
}

impl PendingRequest<'_> {
    /// Records that the response is about to be sent. From here on the request does not count as in flight: the gateway
    /// may act on the response before this server learns that it was written.
    fn answered(self) {
        if let Some(state) = self.inference.sessions().get_mut(&self.session) {
            state.requests[self.index].answered = Some(Instant::now());
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.inference.sessions().get_mut(&self.session) {
            state.in_flight -= 1;
        }
    }
}

/// Reads a request with its body. Also returns the session to which the body belongs.
async fn receive(request: Request<Incoming>) -> Result<(ReceivedRequest, Bytes, u32), Interrupted> {
    let (arrived, version) = (Instant::now(), request.version());
    let target = format!("{} {}", request.method(), request.uri().path());
    let header = |name: &str| {
        let value = request.headers().get(name);
        value.map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let (passes, length) = (header("x-cpu-passes"), header("content-length"));
    let body = Limited::new(request.into_body(), BODY_BYTES).collect().await.map_err(|_| Interrupted)?.to_bytes();
    let (session, sequences, damage) = read_body(&body);
    let bytes = body.len();
    let received =
        ReceivedRequest { arrived, answered: None, sequences, damage, passes, length, bytes, target, version };
    Ok((received, body, session))
}

/// A response with this status and body.
fn json(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).expect("scripts name statuses of HTTP");
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

/// Session of the frames in a body, their sequence numbers, and the first fault. Session 0 stands for bodies that do
/// not begin with a marked frame.
fn read_body(body: &[u8]) -> (u32, Vec<u32>, Option<String>) {
    let Some((session, _)) = payload::mark(body) else { return (0, Vec::new(), None) };
    let (mut sequences, mut damage) = (Vec::new(), None);
    for (at, bytes) in body.chunks(FRAME_BYTES).enumerate() {
        match payload::mark(bytes) {
            Some((of, sequence)) if of == session && bytes == payload::frame(session, sequence) => {
                sequences.push(sequence)
            }
            Some((of, sequence)) if of != session => {
                damage.get_or_insert(format!("frame {at} of the body is frame {sequence} of another session"));
            }
            _ => {
                damage.get_or_insert(format!(
                    "the {} bytes of frame {at} of the body are none that was sent",
                    bytes.len()
                ));
            }
        }
    }
    (session, sequences, damage)
}

/// Service error that ends the connection, or over HTTP/2 the stream, without a response.
#[derive(Debug, thiserror::Error)]
#[error("as the script says")]
struct Interrupted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_frame_by_frame() {
        assert_eq!(read_body(&payload::frames(3, 5, 7)), (3, vec![5, 6, 7], None));
        assert_eq!(read_body(&payload::golden_frame()), (0, vec![], None));
        let mut mixed = payload::frames(3, 1, 1);
        mixed.extend(payload::frames(4, 1, 1));
        assert!(read_body(&mixed).2.unwrap().contains("another session"));
        let mut changed = payload::frames(3, 1, 2);
        changed[FRAME_BYTES + 100] ^= 1;
        let (_, sequences, damage) = read_body(&changed);
        assert_eq!((sequences, damage.unwrap().contains("frame 1")), (vec![1], true));
    }
}
