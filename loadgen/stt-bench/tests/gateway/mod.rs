//! A small gateway on an independent WebSocket library and the simulator's own inference, with a selectable flaw.
//!
//! It flushes ten times a second. A flaw shows once in every session that lives to its fifth flush.

// Each test file uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bench_format::{
    plan::{self, Load},
    trial::{Assignment, TrialId},
};
use futures_util::{SinkExt, StreamExt};
use inference_sim::{Audio, infer};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async,
    tungstenite::{Error, Message},
};

const FLUSH: Duration = Duration::from_millis(100);
const PASSES: u32 = 4;

/// The way in which the gateway of a test breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// A frame is skipped, and later frames take its number.
    ForgetsAFrame,
    /// A batch is never answered; the next one is.
    SkipsABatch,
    /// A partial is sent twice.
    RepeatsABatch,
    /// A partial has a wrong checksum.
    WrongChecksum,
    /// A batch is answered by an error frame.
    SendsAnError,
    /// A partial covers more frames than were sent.
    Overreaches,
    /// A partial has an unknown key.
    BreaksTheProtocol,
    /// The gateway closes the session.
    Closes,
    /// The gateway stops answering.
    FallsSilent,
}

pub struct Gateway {
    pub port: u16,
    accepted: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl Gateway {
    pub fn start(flaw: Flaw) -> Self {
        Self::with_passes(flaw, PASSES)
    }

    /// Starts one that requests this number of passes over the audio.
    pub fn with_passes(flaw: Flaw, passes: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicU64::new(0));
        let taken = Arc::new(AtomicU64::new(0));
        let (counter, frames) = (Arc::clone(&accepted), Arc::clone(&taken));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let frames = Arc::clone(&frames);
                // A client that closes its connection ends only its own task.
                tokio::spawn(async move { Session::serve(socket, flaw, passes, &frames).await });
            }
        });
        Self { port, accepted, taken, _runtime: runtime }
    }

    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/ws/stt", self.port)
    }

    /// The assignment of a single worker: a short load with this many sessions on this gateway.
    pub fn assignment(&self, sessions: u32) -> Assignment {
        Assignment {
            run: "r".into(),
            trial: TrialId {
                service: bench_format::Name::from_static("s"),
                workload: bench_format::Name::from_static("sessions"),
                variant: bench_format::Name::from_static("standard"),
                tier: sessions,
                process: 1,
                repeat: 1,
            },
            attempt: 1,
            worker: 0,
            workers: 1,
            address: self.address(),
            connections: sessions,
            first_connection: 0,
            seed: 1,
            load: Load::Sessions { ramp_seconds: 0.0, spread_ms: 100.0, in_flight: 4 },
            message: plan::Message { format: "pcm".into(), size_bytes: 640, ..Default::default() },
            warmup_ns: 200_000_000,
            window_ns: 400_000_000,
            // It counts as in flight until it is dropped.
            drain_ns: 20_000_000_000,
            late_after_ns: None,
            keep_connections: false,
            settings: Default::default(),
            websocket: None,
            samples: false,
            protocol_check: true,
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Number of frames received so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

struct Session {
    socket: WebSocketStream<TcpStream>,
    flaw: Flaw,
    passes: u32,
    audio: Vec<u8>,
    frames: u64,
    flushed: u64,
    flushes: u32,
}

impl Session {
    async fn serve(socket: TcpStream, flaw: Flaw, passes: u32, taken: &AtomicU64) -> Result<(), Error> {
        socket.set_nodelay(true)?;
        let mut socket = accept_async(socket).await?;
        let first = socket.next().await;
        let Some(Ok(Message::Text(text))) = first else { return Ok(()) };
        assert_eq!(text.as_str(), r#"{"type":"start"}"#);
        let mut session = Self { socket, flaw, passes, audio: Vec::new(), frames: 0, flushed: 0, flushes: 0 };
        let mut ticks = interval_at(Instant::now() + FLUSH, FLUSH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => session.flush().await?,
                message = session.socket.next() => match message {
                    Some(Ok(Message::Binary(frame))) => {
                        taken.fetch_add(1, Ordering::Relaxed);
                        session.take(&frame);
                    }
                    Some(Ok(Message::Close(_))) | None => return session.socket.close(None).await,
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                },
            }
        }
    }

    fn take(&mut self, frame: &[u8]) {
        assert_eq!(frame.len(), 640);
        if self.flaw == Flaw::ForgetsAFrame && self.flushes == 5 {
            // Changes the condition, so that only one frame is forgotten.
            self.flushes += 1;
            return;
        }
        self.audio.extend_from_slice(frame);
        self.frames += 1;
    }

    async fn flush(&mut self) -> Result<(), Error> {
        if self.frames == self.flushed {
            return Ok(());
        }
        self.flushes += 1;
        let (oldest, newest) = (self.flushed + 1, self.frames);
        let partial = partial(oldest, newest, &std::mem::take(&mut self.audio), self.passes);
        self.flushed = self.frames;
        if self.flushes < 5 {
            return self.send(partial).await;
        }
        match (self.flaw, self.flushes) {
            (Flaw::FallsSilent, _) | (Flaw::SkipsABatch, 5) => Ok(()),
            (Flaw::RepeatsABatch, 5) => {
                self.send(partial.clone()).await?;
                self.send(partial).await
            }
            (Flaw::WrongChecksum, 5) => {
                let wrong = partial["checksum"].as_u64().unwrap() ^ 1;
                self.send(with(partial, "checksum", json!(wrong))).await
            }
            (Flaw::Overreaches, 5) => self.send(with(partial, "newest_frame_seq", json!(newest + 1_000_000))).await,
            (Flaw::BreaksTheProtocol, 5) => self.send(with(partial, "more", json!(1))).await,
            (Flaw::SendsAnError, 5) => self.send(error(oldest, newest)).await,
            (Flaw::Closes, _) => self.socket.close(None).await,
            _ => self.send(partial).await,
        }
    }

    async fn send(&mut self, message: Value) -> Result<(), Error> {
        self.socket.send(Message::text(message.to_string())).await
    }
}

fn with(mut message: Value, key: &str, value: Value) -> Value {
    message[key] = value;
    message
}

fn partial(oldest: u64, newest: u64, audio: &[u8], passes: u32) -> Value {
    let answer = infer(Audio::new(audio).unwrap(), passes);
    json!({
        "type": "partial", "oldest_frame_seq": oldest, "newest_frame_seq": newest, "frames": newest - oldest + 1,
        "rms": answer.rms, "zero_crossings": answer.zero_crossings, "checksum": answer.checksum,
        "samples": answer.samples, "transcript": answer.transcript, "audio_bytes": answer.audio_bytes,
        "cpu_passes": passes, "model_delay_ms": 0, "flush_lateness_ms": 0.5, "inflight_model_jobs": 0
    })
}

fn error(oldest: u64, newest: u64) -> Value {
    json!({
        "type": "error", "stage": "inference_request", "kind": "http_5xx", "message": "inference answered 503",
        "oldest_frame_seq": oldest, "newest_frame_seq": newest, "frames": newest - oldest + 1,
        "audio_bytes": (newest - oldest + 1) * 640, "oldest_age_ms": 100.0, "newest_age_ms": 1.0,
        "flush_lateness_ms": 0.0, "inference_elapsed_ms": 3.5, "inflight_gateway_batches": 1,
        "gateway_buffer_frames": 0, "inference_status": 503, "retryable": true
    })
}
