//! A scripted inference: HTTP/2 with prior knowledge, one reply per request.

use std::{
    io,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// How the inference handles one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Sends a valid response at once.
    Answer,
    /// Sends a valid response after this time.
    After(Duration),
    /// Sends this status and an empty body.
    Status(u16),
    /// Sends status 200 and this body.
    Body(&'static str),
    /// Resets the request's stream.
    Reset,
}

/// An inference that runs until the test process ends.
pub(crate) struct Inference {
    /// The value for `INFERENCE_URL`: `http://host:port`.
    pub(crate) url: String,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    open: AtomicU64,
    maximum: AtomicU64,
}

impl Inference {
    /// Starts an inference that handles request `n`, counted from 0, with `script(n)`.
    pub(crate) fn start(script: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let counts: Arc<Counts> = Arc::default();
        let serve = serve(listener, Arc::new(script), counts.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || runtime.block_on(serve));
        Self { url, counts }
    }

    /// Number of requests received so far.
    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Largest number of requests that were open at once.
    pub(crate) fn most_at_once(&self) -> u64 {
        self.counts.maximum.load(Ordering::SeqCst)
    }
}

type Script = Arc<dyn Fn(u64) -> Reply + Send + Sync>;

async fn serve(listener: TcpListener, script: Script, counts: Arc<Counts>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (script, counts) = (script.clone(), counts.clone());
        let service = service_fn(move |request| reply(request, script.clone(), counts.clone()));
        tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service));
    }
}

/// Counts a request as open until it is dropped, which also happens when its stream is cancelled.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: Arc<Counts>) -> Self {
        let open = counts.open.fetch_add(1, Ordering::SeqCst) + 1;
        counts.maximum.fetch_max(open, Ordering::SeqCst);
        Self(counts)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn reply(
    request: Request<Incoming>,
    script: Script,
    counts: Arc<Counts>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let number = counts.requests.fetch_add(1, Ordering::SeqCst);
    let _open = Open::new(counts);
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/infer"));
    let header = |name: &str| request.headers()[name].to_str().unwrap().parse::<u64>().unwrap();
    let (passes, length) = (header("x-cpu-passes"), header("content-length"));
    let audio = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    assert_eq!(audio.len() as u64, length);
    let body = format!(
        r#"{{"rms":0.0,"zero_crossings":0,"checksum":1,"samples":{},"transcript":"now","audio_bytes":{length}}}"#,
        passes * length / 2,
    );
    let (status, body) = match script(number) {
        Reply::Answer => (200, body),
        Reply::After(time) => {
            tokio::time::sleep(time).await;
            (200, body)
        }
        Reply::Status(status) => (status, String::new()),
        Reply::Body(body) => (200, body.to_owned()),
        Reply::Reset => return Err(io::Error::other("as the script says")),
    };
    Ok(Response::builder().status(status).body(Full::from(body)).unwrap())
}
