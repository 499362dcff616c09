//! What a case finds in front of it: the gateway, the inference, and sessions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep_until;

use super::{
    answers::Answer,
    client::{Client, Event},
    finding::{Trouble, failed},
    gateway::{Gateway, Settings},
    inference::{Inference, Reply},
    payload,
    readings::Readings,
    stage::Need,
};

/// From one frame to the next.
pub const FRAME: Duration = Duration::from_millis(20);
/// What a client says first.
pub const START: &str = r#"{"type":"start"}"#;
/// How soon a violation must be answered with Close, and Close with Close.
pub const PROMPT: Duration = Duration::from_secs(1);

/// What a case finds in front of it.
#[derive(Clone)]
pub struct Scene {
    /// The gateway of its stage.
    pub gateway: Arc<Gateway>,
    /// All processes of this gateway that are left: what the last cases look at.
    pub all: Vec<Arc<Gateway>>,
    /// The scripted inference.
    pub inference: Arc<Inference>,
    /// Sessions so far, over all cases.
    pub sessions: Arc<AtomicU32>,
}

impl Scene {
    /// How the gateway was told to behave.
    pub fn settings(&self) -> Settings {
        self.gateway.settings
    }

    /// Why a case with these needs can't be run here.
    pub fn lacks(&self, needs: &[Need]) -> Option<&'static str> {
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

    /// The metrics port.
    ///
    /// # Errors
    /// When it is not known.
    pub fn metrics(&self) -> Result<&Readings, Trouble> {
        self.gateway.metrics.as_ref().ok_or_else(|| Trouble::Skipped("the metrics port is not known".into()))
    }

    /// A connection that has said nothing yet.
    ///
    /// # Errors
    /// When the gateway doesn't take it.
    pub async fn connect(&self) -> Result<Client, Trouble> {
        Client::open(&self.gateway.address).await
    }

    /// A started session whose batches are answered like this.
    ///
    /// # Errors
    /// When the gateway doesn't take it.
    pub async fn session(&self, script: Vec<Reply>) -> Result<Session, Trouble> {
        let client = self.connect().await?;
        self.begin(client, script).await
    }

    /// Starts a session on a connection.
    ///
    /// # Errors
    /// When the gateway doesn't take it.
    pub async fn begin(&self, client: Client, script: Vec<Reply>) -> Result<Session, Trouble> {
        let id = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        self.inference.script(id, script);
        let mut session = Session { id, client, sent: 0, began: Instant::now(), answers: Vec::new() };
        session.client.text(START).await?;
        Ok(session)
    }

    /// Longest that an answer may take: ticks and the request's own end, and time for a busy machine.
    pub fn patience(&self) -> Duration {
        self.settings().interval * 3 + self.settings().timeout + Duration::from_secs(2)
    }
}

/// A session under way.
pub struct Session {
    /// Its number in our payloads.
    pub id: u32,
    /// Its connection.
    pub client: Client,
    /// Frames sent.
    pub sent: u32,
    /// When start was sent.
    pub began: Instant,
    /// What was answered so far.
    pub answers: Vec<Answer>,
}

impl Session {
    /// Sends that many frames at once.
    ///
    /// # Errors
    /// When the gateway doesn't take them.
    pub async fn burst(&mut self, frames: u32) -> Result<(), Trouble> {
        for _ in 0..frames {
            self.sent += 1;
            self.client.binary(&payload::frame(self.id, self.sent)).await?;
        }
        Ok(())
    }

    /// Sends a frame every 20 ms for as long as told.
    ///
    /// # Errors
    /// When the gateway doesn't take them.
    pub async fn stream(&mut self, lasting: Duration) -> Result<(), Trouble> {
        let begun = Instant::now();
        for due in (0..).map(|frame| FRAME * frame).take_while(|due| *due < lasting) {
            sleep_until((begun + due).into()).await;
            self.burst(1).await?;
        }
        Ok(())
    }

    /// The next partial or error frame.
    ///
    /// # Errors
    /// When something else comes, or nothing within that time.
    pub async fn answer(&mut self, within: Duration) -> Result<Answer, Trouble> {
        let begun = Instant::now();
        let wish = || format!("a partial or an error frame within {within:?}");
        loop {
            let Some(seen) = self.client.next(within.saturating_sub(begun.elapsed())).await else {
                return Err(failed(wish(), "nothing in time"));
            };
            match seen.event {
                Event::Text(text) => {
                    let answer = Answer::read(seen.at, text)?;
                    self.answers.push(answer.clone());
                    return Ok(answer);
                }
                Event::Ping | Event::Pong(_) => {}
                event => return Err(failed(wish(), event.words())),
            }
        }
    }

    /// Waits until an answer covers the newest frame that was sent; an answer per `each` at least.
    ///
    /// # Errors
    /// When the answers end before.
    pub async fn covered(&mut self, each: Duration) -> Result<(), Trouble> {
        let sent = u64::from(self.sent);
        while self.answers.last().is_none_or(|answer| answer.newest() < sent) {
            self.answer(each).await?;
        }
        Ok(())
    }

    /// The next answer, which must be an error frame.
    ///
    /// # Errors
    /// When it is none.
    pub async fn error(&mut self, within: Duration) -> Result<Answer, Trouble> {
        let answer = self.answer(within).await?;
        if answer.is_partial() { Err(failed("an error frame", answer.words())) } else { Ok(answer) }
    }

    /// The next answer, which must be a partial.
    ///
    /// # Errors
    /// When it is none.
    pub async fn partial(&mut self, within: Duration) -> Result<Answer, Trouble> {
        let answer = self.answer(within).await?;
        if answer.is_partial() { Ok(answer) } else { Err(failed("a partial", answer.words())) }
    }
}
