//! The inference that we script: HTTP/1.1 and HTTP/2 on one port, told per session how to answer each batch, and
//! keeping a record of all that it got.

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
    finding::{Trouble, failed},
    payload::{self, FRAME_BYTES},
};

/// Longest body that is read, as the reference's.
const BODY_BYTES: usize = 2 << 20;

/// How one batch is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// How long after its arrival.
    pub after: Duration,
    /// Not before this is `true`.
    pub gate: Option<watch::Receiver<bool>>,
    /// With what.
    pub answer: Answer,
}

/// What a batch is answered with.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What the definition says.
    Right,
    /// This status, with a text.
    Status(u16),
    /// 200 and this body.
    Body(String),
    /// 200 and what this makes of the right body.
    Edited(fn(&str) -> String),
    /// The connection is reset, or over HTTP/2 the stream.
    Reset,
    /// Nothing, ever.
    Never,
}

impl Reply {
    /// At once.
    pub fn now(answer: Answer) -> Self {
        Self { after: Duration::ZERO, gate: None, answer }
    }

    /// Rightly, after a while.
    pub fn late(after: Duration) -> Self {
        Self { after, gate: None, answer: Answer::Right }
    }

    /// Rightly, once the gate is open.
    pub fn gated(gate: &watch::Receiver<bool>) -> Self {
        Self { after: Duration::ZERO, gate: Some(gate.clone()), answer: Answer::Right }
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When its head was read.
    pub arrived: Instant,
    /// When it was answered; never, if the gateway went away before.
    pub answered: Option<Instant>,
    /// The numbers of the frames in its body, in their order there.
    pub sequences: Vec<u32>,
    /// What is wrong with the body: it should be whole frames of one session, each as it was sent.
    pub damage: Option<String>,
    /// `x-cpu-passes`, as it came.
    pub passes: Option<String>,
    /// Content-Length, as it came.
    pub length: Option<String>,
    /// Bytes of the body.
    pub bytes: usize,
    /// Method and path.
    pub target: String,
    /// Of HTTP.
    pub version: Version,
}

#[derive(Default)]
struct Desk {
    script: Vec<Reply>,
    /// Batches so far, a repeated one after a reset counted once.
    batches: usize,
    asked: Vec<Asked>,
    in_flight: usize,
    most_in_flight: usize,
}

/// The scripted inference.
pub struct Inference {
    address: SocketAddr,
    desks: Arc<Mutex<HashMap<u32, Desk>>>,
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
    /// Listens.
    ///
    /// # Errors
    /// When the address can't be bound.
    pub async fn start(address: SocketAddr) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind(address).await?;
        let inference = Arc::new(Self {
            address: listener.local_addr()?,
            desks: Arc::default(),
            arrivals: watch::Sender::new(0),
            accepting: Mutex::new(None),
        });
        // Weak, or the task would keep alive what aborts it.
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

    /// Where gateways reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How batches of a session are answered, in order; the last reply repeats. Without a script: rightly, at once.
    pub fn script(&self, session: u32, replies: Vec<Reply>) {
        self.desks().entry(session).or_default().script = replies;
    }

    /// All requests of a session.
    pub fn asked(&self, session: u32) -> Vec<Asked> {
        self.desks().get(&session).map(|desk| desk.asked.clone()).unwrap_or_default()
    }

    /// The most requests of a session that were in flight at once.
    pub fn most_in_flight(&self, session: u32) -> usize {
        self.desks().get(&session).map_or(0, |desk| desk.most_in_flight)
    }

    /// Waits until a session has made that many requests.
    ///
    /// # Errors
    /// When it hasn't within that time.
    pub async fn wait(&self, session: u32, requests: usize, within: Duration) -> Result<Vec<Asked>, Trouble> {
        let mut arrivals = self.arrivals.subscribe();
        let enough = async {
            while self.asked(session).len() < requests {
                if arrivals.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(within, enough).await;
        let asked = self.asked(session);
        if asked.len() >= requests {
            return Ok(asked);
        }
        Err(failed(
            format!("the gateway sends {requests} requests to the inference within {within:?}"),
            format!("{} requests", asked.len()),
        ))
    }

    fn desks(&self) -> MutexGuard<'_, HashMap<u32, Desk>> {
        self.desks.lock().expect("no holder of this lock can panic")
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        // A second handle, so that a reset can be a real one: linger 0 makes the last close of both send RST.
        let Ok(stream) = stream.into_std() else { return };
        let Ok(handle) = stream.try_clone().map(Arc::new) else { return };
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let answer = service_fn(move |request| {
            let (inference, handle) = (self.clone(), handle.clone());
            async move { inference.answer(request, &handle).await }
        });
        // It fails when we reset it or the gateway does: both are what the cases are about.
        let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &std::net::TcpStream,
    ) -> Result<Response<Full<Bytes>>, Interrupted> {
        if request.method() == Method::GET && request.uri().path() == "/health" {
            return Ok(Response::new(Full::new(Bytes::from_static(b"ok"))));
        }
        let (arrived, version) = (Instant::now(), request.version());
        let target = format!("{} {}", request.method(), request.uri().path());
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let (passes, length) = (header("x-cpu-passes"), header("content-length"));
        let Ok(body) = Limited::new(request.into_body(), BODY_BYTES).collect().await else {
            return Err(Interrupted);
        };
        let body = body.to_bytes();
        let (session, sequences, damage) = read(&body);
        let bytes = body.len();
        let asked = Asked {
            arrived,
            answered: None,
            sequences,
            damage,
            passes: passes.clone(),
            length,
            bytes,
            target,
            version,
        };
        let (ticket, reply) = self.take(session, asked);
        if let Some(mut gate) = reply.gate {
            // A gate that is gone stays shut.
            if gate.wait_for(|open| *open).await.is_err() {
                std::future::pending::<Infallible>().await;
            }
        }
        if !reply.after.is_zero() {
            sleep((arrived + reply.after).saturating_duration_since(Instant::now())).await;
        }
        let passes = passes.and_then(|passes| passes.parse().ok()).unwrap_or(4);
        let right = || payload::infer(&body, passes).to_json();
        let (status, body) = match reply.answer {
            Answer::Right => (200, right()),
            Answer::Body(body) => (200, body),
            Answer::Edited(edit) => (200, edit(&right())),
            Answer::Status(status) => (status, "as the script says".into()),
            Answer::Never => match std::future::pending::<Infallible>().await {},
            Answer::Reset => {
                if version < Version::HTTP_2 {
                    let _ = socket2::SockRef::from(connection).set_linger(Some(Duration::ZERO));
                }
                return Err(Interrupted);
            }
        };
        ticket.answered();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = StatusCode::from_u16(status).expect("scripts name statuses of HTTP");
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
        Ok(response)
    }

    /// Notes a request, and finds out how to answer it.
    fn take(&self, session: u32, asked: Asked) -> (Ticket<'_>, Reply) {
        let mut desks = self.desks();
        let desk = desks.entry(session).or_default();
        let reply_to =
            |batch: usize| desk.script.get(batch).or(desk.script.last()).cloned().unwrap_or(Reply::now(Answer::Right));
        // A client may send a request again that was reset on a connection that it had used before. It gets the same.
        let repeats = desk.batches > 0
            && matches!(reply_to(desk.batches - 1).answer, Answer::Reset)
            && desk.asked.last().is_some_and(|last| last.sequences.first() == asked.sequences.first());
        let batch = if repeats { desk.batches - 1 } else { desk.batches };
        let reply = reply_to(batch);
        desk.batches = batch + 1;
        desk.asked.push(asked);
        desk.in_flight += 1;
        desk.most_in_flight = desk.most_in_flight.max(desk.in_flight);
        let ticket = Ticket { inference: self, session, index: desk.asked.len() - 1 };
        drop(desks);
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
        (ticket, reply)
    }
}

/// A request in flight.
struct Ticket<'a> {
    inference: &'a Inference,
    session: u32,
    index: usize,
}

impl Ticket<'_> {
    /// It is about to be answered. From here on it is not in flight any more: the gateway may act on the answer before
    /// we are told that it was written.
    fn answered(self) {
        if let Some(desk) = self.inference.desks().get_mut(&self.session) {
            desk.asked[self.index].answered = Some(Instant::now());
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(desk) = self.inference.desks().get_mut(&self.session) {
            desk.in_flight -= 1;
        }
    }
}

/// Whose frames a body holds, which, and what is wrong with it. Session 0 is whoever sent none of ours.
fn read(body: &[u8]) -> (u32, Vec<u32>, Option<String>) {
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

/// Ends a connection, or over HTTP/2 a stream.
#[derive(Debug, thiserror::Error)]
#[error("as the script says")]
struct Interrupted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_frame_by_frame() {
        assert_eq!(read(&payload::frames(3, 5, 7)), (3, vec![5, 6, 7], None));
        assert_eq!(read(&payload::golden_frame()), (0, vec![], None));
        let mut mixed = payload::frames(3, 1, 1);
        mixed.extend(payload::frames(4, 1, 1));
        assert!(read(&mixed).2.unwrap().contains("another session"));
        let mut changed = payload::frames(3, 1, 2);
        changed[FRAME_BYTES + 100] ^= 1;
        let (_, sequences, damage) = read(&changed);
        assert_eq!((sequences, damage.unwrap().contains("frame 1")), (vec![1], true));
    }
}
