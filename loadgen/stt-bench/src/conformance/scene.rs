//! What a case gets to work with: the gateway, the scripted inference, and sessions. Cases open connections and start
//! sessions through [`Scene`], so that each session has its own number and its own script.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep_until;

use super::{
    client::{Client, Event},
    finding::{NotPassed, failed},
    gateway::{Gateway, Settings},
    inference::{Inference, Reply},
    messages::ServerMessage,
    payload,
    readings::Readings,
    stage::Need,
};

/// Interval between two frames of a stream, as in real-time audio.
pub const FRAME: Duration = Duration::from_millis(20);
/// First message of a session: the start.
pub const START: &str = r#"{"type":"start"}"#;
/// Time limit for the Close after a violation, and for the Close that answers a Close.
pub const PROMPT: Duration = Duration::from_secs(1);

/// What a case gets: the gateway of its stage, the inference and a counter of sessions.
#[derive(Clone)]
pub struct Scene {
    /// The gateway process on which the case runs.
    pub gateway: Arc<Gateway>,
    /// For the cases of the last stage: all processes of this gateway that were not drained. Empty for other cases.
    pub all: Vec<Arc<Gateway>>,
    /// The scripted inference, shared by all cases.
    pub inference: Arc<Inference>,
    /// Number of sessions so far, over all cases; the last session's number.
    pub sessions: Arc<AtomicU32>,
}

impl Scene {
    /// Settings with which the gateway runs.
    pub fn settings(&self) -> Settings {
        self.gateway.settings
    }

    /// Reason why a case with these needs cannot be run here; none if all of them are met.
    pub fn missing_need(&self, needs: &[Need]) -> Option<&'static str> {
        needs.iter().find_map(|need| match need {
            Need::Script if !self.gateway.scripted => {
                Some("the gateway does not ask our scripted inference; give --inference-listen, and let it ask there")
            }
            Need::Metrics if self.gateway.metrics.is_none() => {
                Some("the metrics port is not known; give --metrics NAME=http://HOST:PORT")
            }
            Need::Process if self.gateway.process.is_none() => {
                Some("the process is not ours; let this program start it with --start")
            }
            Need::FourPasses if self.settings().passes != 4 => Some("the golden vectors hold for CPU_PASSES=4"),
            _ => None,
        })
    }

    /// The gateway's metrics port.
    ///
    /// # Errors
    /// [`NotPassed::Skipped`] if its address is not known.
    pub fn metrics(&self) -> Result<&Readings, NotPassed> {
        self.gateway.metrics.as_ref().ok_or_else(|| NotPassed::Skipped("the metrics port is not known".into()))
    }

    /// Opens a WebSocket on which nothing has been sent.
    ///
    /// # Errors
    /// Fails if the gateway does not upgrade the connection.
    pub async fn connect(&self) -> Result<Client, NotPassed> {
        Client::open(&self.gateway.address).await
    }

    /// Opens a connection and starts a session whose batches the inference answers according to `script`.
    ///
    /// # Errors
    /// Fails if the gateway does not upgrade the connection or does not read the start.
    pub async fn session(&self, script: Vec<Reply>) -> Result<Session, NotPassed> {
        let client = self.connect().await?;
        self.begin(client, script).await
    }

    /// Starts a session with a new number on an open connection.
    ///
    /// # Errors
    /// Fails if the start cannot be written.
    pub async fn begin(&self, client: Client, script: Vec<Reply>) -> Result<Session, NotPassed> {
        let id = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        self.inference.script(id, script);
        let mut session = Session { id, client, sent: 0, began: Instant::now(), messages: Vec::new() };
        session.client.text(START).await?;
        Ok(session)
    }

    /// Time limit for an answer: three intervals, the inference timeout, and two seconds for a busy machine.
    pub fn patience(&self) -> Duration {
        self.settings().interval * 3 + self.settings().timeout + Duration::from_secs(2)
    }
}

/// A started session, with a record of what was sent and answered.
pub struct Session {
    /// Number of the session, which the payload of each of its frames carries; from 1.
    pub id: u32,
    /// WebSocket of the session, open for cases that send or read on it directly.
    pub client: Client,
    /// Number of audio frames sent; also the sequence number of the last one.
    pub sent: u32,
    /// Time just before start was sent; cases count the session's ticks from it.
    pub began: Instant,
    /// Partials and error frames so far, in the order of arrival.
    pub messages: Vec<ServerMessage>,
}

impl Session {
    /// Sends this number of frames at once.
    ///
    /// # Errors
    /// Fails if the connection is broken, or if the gateway does not read.
    pub async fn burst(&mut self, frames: u32) -> Result<(), NotPassed> {
        for _ in 0..frames {
            self.sent += 1;
            self.client.binary(&payload::frame(self.id, self.sent)).await?;
        }
        Ok(())
    }

    /// Sends a frame every 20 ms, on an absolute schedule, for this duration.
    ///
    /// # Errors
    /// Fails if the connection is broken, or if the gateway does not read.
    pub async fn stream(&mut self, lasting: Duration) -> Result<(), NotPassed> {
        let started = Instant::now();
        for due in (0..).map(|frame| FRAME * frame).take_while(|due| *due < lasting) {
            sleep_until((started + due).into()).await;
            self.burst(1).await?;
        }
        Ok(())
    }

    /// Waits for the next partial or error frame, and records it. Pings and pongs are skipped.
    ///
    /// # Errors
    /// Fails if another event comes, or no answer comes within this time.
    pub async fn next_message(&mut self, within: Duration) -> Result<ServerMessage, NotPassed> {
        let started = Instant::now();
        let expectation = || format!("a partial or an error frame within {within:?}");
        loop {
            let Some(observed) = self.client.next(within.saturating_sub(started.elapsed())).await else {
                return Err(failed(expectation(), "nothing in time"));
            };
            match observed.event {
                Event::Text(text) => {
                    let message = ServerMessage::read(observed.at, text)?;
                    self.messages.push(message.clone());
                    return Ok(message);
                }
                Event::Ping | Event::Pong(_) => {}
                event => return Err(failed(expectation(), event.description())),
            }
        }
    }

    /// Waits until an answer covers the newest frame that was sent. `each` limits the wait for each answer.
    ///
    /// # Errors
    /// Fails if no answer comes within `each`, or if another event comes.
    pub async fn covered(&mut self, each: Duration) -> Result<(), NotPassed> {
        let sent = u64::from(self.sent);
        while self.messages.last().is_none_or(|message| message.newest() < sent) {
            self.next_message(each).await?;
        }
        Ok(())
    }

    /// Waits for the next answer, which must be an error frame.
    ///
    /// # Errors
    /// Fails if it is a partial, or for a reason of [`Session::answer`].
    pub async fn error(&mut self, within: Duration) -> Result<ServerMessage, NotPassed> {
        let message = self.next_message(within).await?;
        if message.is_partial() { Err(failed("an error frame", message.description())) } else { Ok(message) }
    }

    /// Waits for the next answer, which must be a partial.
    ///
    /// # Errors
    /// Fails if it is an error frame, or for a reason of [`Session::answer`].
    pub async fn partial(&mut self, within: Duration) -> Result<ServerMessage, NotPassed> {
        let message = self.next_message(within).await?;
        if message.is_partial() { Ok(message) } else { Err(failed("a partial", message.description())) }
    }
}
