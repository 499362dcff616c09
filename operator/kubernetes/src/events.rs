//! What happens in a run, as Events of Kubernetes about the operator's own pod: for those who look at a cluster with its own tools.
//!
//! Whoever [tells](Events::tell) never waits and never fails; a task writes what was told, one after another. Each Event is created
//! and never patched: an aggregate would keep the words of its first one alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bench_format::{
    result::{TrialResult, Validity},
    run::Run,
    timeline::TimelineStep,
    trial::TrialId,
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use operator::{assert::Standing, print, watcher::Watcher};
use tokio::{
    sync::mpsc::{self, Receiver, Sender, error::TrySendError},
    time::timeout,
};

use crate::{api::FIELD_MANAGER, live::Live};
use driver::service_client::chain;

/// Events that may wait to be written. A climb tells a few a minute.
const QUEUE: usize = 64;
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Who tells, as Kubernetes wants it: a name with a domain.
const CONTROLLER: &str = "ws-ladder.dev/operator";
/// The longest words that Kubernetes takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// Something worth an Event. The variant's name is the Event's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A run is climbed from here on: from its beginning or from where it was interrupted.
    RunBegan {
        /// Its id.
        run: String,
    },
    /// A run has ended.
    RunEnded {
        /// Its id.
        run: String,
        /// How it stands.
        standing: Standing,
    },
    /// A trial was measured, but its result can't be used.
    TrialInvalid {
        /// Which, and why.
        words: String,
    },
    /// A trial could not be measured.
    TrialFailed {
        /// Which, and why.
        words: String,
    },
    /// A trial is repeated.
    TrialInterrupted {
        /// Which, and why.
        words: String,
    },
    /// Replicas or suspensions are not as they were found.
    NotPutBack {
        /// What, and why.
        words: String,
    },
}

impl Happening {
    fn reason(&self) -> &'static str {
        match self {
            Self::RunBegan { .. } => "RunBegan",
            Self::RunEnded { .. } => "RunEnded",
            Self::TrialInvalid { .. } => "TrialInvalid",
            Self::TrialFailed { .. } => "TrialFailed",
            Self::TrialInterrupted { .. } => "TrialInterrupted",
            Self::NotPutBack { .. } => "NotPutBack",
        }
    }

    /// What the operator was doing: the machine's word beside the reason.
    fn action(&self) -> &'static str {
        if matches!(self, Self::NotPutBack { .. }) { "PutBack" } else { "Climb" }
    }

    fn type_(&self) -> &'static str {
        match self {
            Self::RunBegan { .. } | Self::RunEnded { standing: Standing::Pass, .. } => "Normal",
            _ => "Warning",
        }
    }

    fn note(&self) -> String {
        match self {
            Self::RunBegan { run } => format!("climbing run {run}"),
            Self::RunEnded { run, standing } => format!("run {run} has ended: {}", standing.word()),
            Self::TrialInvalid { words }
            | Self::TrialFailed { words }
            | Self::TrialInterrupted { words }
            | Self::NotPutBack { words } => words.clone(),
        }
    }
}

/// The pod that Events are about: the operator's own.
#[derive(Clone, Debug)]
pub struct OwnPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its unique id, by which `kubectl describe` finds them.
    pub uid: String,
}

/// Where happenings are told.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<(Timestamp, Happening)>,
    lost: Arc<AtomicBool>,
}

/// Where they are written.
#[derive(Debug)]
pub struct Writer {
    queue: Receiver<(Timestamp, Happening)>,
    lost: Arc<AtomicBool>,
}

/// Both ends. What is told while no writer lives is forgotten: there is no pod that it could be about.
pub fn events() -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let lost = Arc::new(AtomicBool::new(false));
    (Events { queue: sender, lost: Arc::clone(&lost) }, Writer { queue: receiver, lost })
}

impl Events {
    /// Tells of something, at once and without ever waiting.
    pub fn tell(&self, happening: Happening) {
        if let Err(TrySendError::Full((_, happening))) = self.queue.try_send((Timestamp::now(), happening)) {
            say_once(&self.lost, &happening, "too many wait to be written");
        }
    }
}

impl Writer {
    /// Writes what is told, until nobody is left to tell anything.
    pub async fn write(mut self, client: Client, pod: OwnPod) {
        let api: Api<Event> = Api::namespaced(client, &pod.namespace);
        let ours = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let mut last = None;
        while let Some((at, happening)) = self.queue.recv().await {
            // What is tried again and again fails again and again.
            if last.as_ref() == Some(&happening) {
                continue;
            }
            match timeout(ANSWER, api.create(&ours, &event(&pod, at, &happening))).await {
                Ok(Ok(_)) => {}
                Ok(Err(kube::Error::Api(refusal))) => say_once(&self.lost, &happening, &refusal.message),
                Ok(Err(error)) => say_once(&self.lost, &happening, &chain(&error)),
                Err(_) => say_once(&self.lost, &happening, &format!("no answer within {} s", ANSWER.as_secs())),
            }
            last = Some(happening);
        }
    }
}

/// Nothing depends on Events, and whatever they tell is in the log: that they are missing is said one time.
fn say_once(lost: &AtomicBool, happening: &Happening, why: &str) {
    if !lost.swap(true, Ordering::Relaxed) {
        eprintln!("ladder: failed to write the Event {} (others may be missing too): {why}", happening.reason());
    }
}

fn event(pod: &OwnPod, at: Timestamp, happening: &Happening) -> Event {
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", pod.name)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        reporting_controller: Some(CONTROLLER.into()),
        reporting_instance: Some(cut(&pod.name, 128)),
        action: Some(happening.action().into()),
        reason: Some(happening.reason().into()),
        type_: Some(happening.type_().into()),
        note: Some(cut(&happening.note(), LONGEST_NOTE)),
        regarding: Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// At most so many bytes of a text, whole characters of it.
fn cut(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most - MARK.len());
    format!("{}{MARK}", &text[..end])
}

/// Tells the page, and of what went wrong the cluster too.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// What the page shows.
    pub live: &'a Live,
    /// What the cluster shows.
    pub events: Events,
}

impl Watcher for Told<'_> {
    fn step(&self, step: TimelineStep, trial: Option<&TrialId>) {
        self.live.step(step, trial);
    }

    fn run(&self, run: &Run) {
        self.live.run(run);
    }

    fn result(&self, result: &TrialResult) {
        if matches!(result.validity, Validity::Invalid { .. }) {
            self.events.tell(Happening::TrialInvalid { words: print::line(result) });
        }
        self.live.result(result);
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        self.events.tell(Happening::TrialFailed { words: format!("{trial}: {reason}") });
        self.live.failed(trial, reason);
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        self.events.tell(Happening::TrialInterrupted { words: format!("{trial}, to be repeated: {reason}") });
        self.live.interrupted(trial, reason);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
    use kube::Config;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    fn pod() -> OwnPod {
        OwnPod { namespace: "lab".into(), name: "bench-operator-1".into(), uid: "u-1".into() }
    }

    fn began(run: &str) -> Happening {
        Happening::RunBegan { run: run.into() }
    }

    /// What an API server was sent; it refuses what names the run `refused`.
    async fn api_server() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let create = async |State(sent): State<Arc<Mutex<Vec<Value>>>>, Json(event): Json<Value>| {
            sent.lock().unwrap().push(event.clone());
            if event["note"] == "climbing run refused" {
                let status = json!({"kind": "Status", "status": "Failure", "message": "no", "code": 403});
                return (StatusCode::FORBIDDEN, Json(status));
            }
            (StatusCode::CREATED, Json(event))
        };
        let routes = Router::new().route("/apis/events.k8s.io/v1/namespaces/lab/events", post(create));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, routes.with_state(Arc::clone(&sent))).into_future());
        // As `cli::main` does: built with all crates there are two to choose from.
        let _ = rustls::crypto::ring::default_provider().install_default();
        (Client::try_from(Config::new(url.parse().unwrap())).unwrap(), sent)
    }

    #[tokio::test]
    async fn each_happening_is_created_once_and_a_refusal_stops_nothing() {
        let (client, sent) = api_server().await;
        let (events, writer) = events();
        let told = [began("a"), began("a"), began("refused"), began("b")];
        told.into_iter().for_each(|happening| events.tell(happening));
        let lost = Arc::clone(&events.lost);
        drop(events);
        writer.write(client, pod()).await;
        let notes: Vec<String> =
            sent.lock().unwrap().iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect();
        assert_eq!(notes, ["climbing run a", "climbing run refused", "climbing run b"]);
        assert!(lost.load(Ordering::Relaxed));
    }

    #[test]
    fn whoever_tells_never_waits_for_a_writer() {
        let (events, writer) = events();
        (0..QUEUE + 1).for_each(|run| events.tell(began(&run.to_string())));
        assert!(events.lost.load(Ordering::Relaxed), "one more than the queue holds is lost and said");
        drop(writer);
        events.tell(began("nobody writes"));
    }

    #[test]
    fn an_event_is_about_the_operators_pod() {
        let words = "ours/throughput/batch/10-p1-r1, to be repeated: worker 0 was killed".to_owned();
        let event = event(&pod(), Timestamp::UNIX_EPOCH, &Happening::TrialInterrupted { words: words.clone() });
        let regarding = event.regarding.unwrap();
        assert_eq!((regarding.kind.as_deref(), regarding.uid.as_deref()), (Some("Pod"), Some("u-1")));
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("TrialInterrupted")));
        assert_eq!(event.note, Some(words));
    }

    #[test]
    fn a_run_that_did_not_pass_is_a_warning() {
        let ended = |standing| Happening::RunEnded { run: "r".into(), standing };
        let types = [Standing::Pass, Standing::Fail, Standing::Invalid].map(|standing| ended(standing).type_());
        assert_eq!(types, ["Normal", "Warning", "Warning"]);
    }

    #[test]
    fn words_that_are_too_long_for_kubernetes_are_cut_between_characters() {
        let note = cut(&"ä".repeat(1000), LONGEST_NOTE);
        assert!(note.len() <= LONGEST_NOTE && note.ends_with("ä…"));
        assert_eq!(cut("short", LONGEST_NOTE), "short");
    }
}
