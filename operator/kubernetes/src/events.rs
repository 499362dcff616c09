//! Writes what happens in a run as Kubernetes Events about the operator's own pod, for users of kubectl.
//!
//! [`Events::record`] never waits and never fails; a task writes the queued Events one after another. Each Event is
//! created and never patched: an aggregated Event would keep only the message of the first one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bench_format::{
    result::{ReasonKind, TrialResult, Validity},
    run::{CrashCause, Run, Search},
    timeline::TimelineStep,
    trial::TrialId,
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use operator::{assert, assert::Standing, print, search::so_far::SoFar, watcher::Watcher};
use tokio::{
    sync::mpsc::{self, Receiver, Sender, error::TrySendError},
    time::timeout,
};

use crate::{api::FIELD_MANAGER, live::Live};
use driver::http::chain;

/// Number of Events that may wait to be written. A climb produces a few per minute.
const QUEUE: usize = 64;
/// Longest wait for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The `reportingController` of our Events: a name with a domain, as Kubernetes requires.
const CONTROLLER: &str = "ws-ladder.dev/operator";
/// The longest note that Kubernetes accepts, in bytes.
const LONGEST_NOTE: usize = 1024;

/// An occurrence that is written as an Event. The variant's name is the Event's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// A run is climbed from now on: from its beginning, or from where it was interrupted.
    RunBegan {
        /// Id of the run that began.
        run: String,
    },
    /// A run has ended.
    RunEnded {
        /// Id of the run that ended.
        run: String,
        /// The standing of the run.
        standing: Standing,
    },
    /// A search has its result.
    SearchEnded {
        /// The search, its result and what that is worth.
        description: String,
        /// The standing of the search.
        standing: Standing,
    },
    /// A trial was measured, but its result is invalid.
    TrialInvalid {
        /// The trial and the reason.
        description: String,
    },
    /// The service ended under a trial's load.
    ServiceEnded {
        /// The trial, how the service ended, and the reason.
        description: String,
    },
    /// A trial could not be measured.
    TrialFailed {
        /// The trial and the reason.
        description: String,
    },
    /// A trial was interrupted and is repeated.
    TrialInterrupted {
        /// The trial and the reason.
        description: String,
    },
    /// The replicas of a Deployment or the suspension of a Job could not be restored.
    NotPutBack {
        /// What could not be restored, and the reason.
        description: String,
    },
}

impl RunEvent {
    fn reason(&self) -> &'static str {
        match self {
            Self::RunBegan { .. } => "RunBegan",
            Self::RunEnded { .. } => "RunEnded",
            Self::SearchEnded { .. } => "SearchEnded",
            Self::TrialInvalid { .. } => "TrialInvalid",
            Self::ServiceEnded { .. } => "ServiceEnded",
            Self::TrialFailed { .. } => "TrialFailed",
            Self::TrialInterrupted { .. } => "TrialInterrupted",
            Self::NotPutBack { .. } => "NotPutBack",
        }
    }

    /// The operation during which the Event occurred; the `action` field of the Event.
    fn action(&self) -> &'static str {
        if matches!(self, Self::NotPutBack { .. }) { "PutBack" } else { "Climb" }
    }

    fn type_(&self) -> &'static str {
        match self {
            Self::RunBegan { .. }
            | Self::RunEnded { standing: Standing::Pass, .. }
            | Self::SearchEnded { standing: Standing::Pass, .. } => "Normal",
            _ => "Warning",
        }
    }

    fn note(&self) -> String {
        match self {
            Self::RunBegan { run } => format!("climbing run {run}"),
            Self::RunEnded { run, standing } => format!("run {run} has ended: {}", standing.as_str()),
            Self::SearchEnded { description, .. }
            | Self::TrialInvalid { description }
            | Self::ServiceEnded { description }
            | Self::TrialFailed { description }
            | Self::TrialInterrupted { description }
            | Self::NotPutBack { description } => description.clone(),
        }
    }
}

/// The operator's own pod, which Events refer to.
#[derive(Clone, Debug)]
pub struct OwnPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Unique id of the pod, by which `kubectl describe` finds its Events.
    pub uid: String,
}

/// The sending side of the Event queue.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Sender<(Timestamp, RunEvent)>,
    lost: Arc<AtomicBool>,
}

/// The receiving side of the Event queue; writes Events to the API server.
#[derive(Debug)]
pub struct Writer {
    queue: Receiver<(Timestamp, RunEvent)>,
    lost: Arc<AtomicBool>,
}

/// Creates both sides of the queue. Without a running writer Events are dropped, since there is no pod to refer to.
pub fn events() -> (Events, Writer) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let lost = Arc::new(AtomicBool::new(false));
    (Events { queue: sender, lost: Arc::clone(&lost) }, Writer { queue: receiver, lost })
}

impl Events {
    /// Queues an Event without waiting. If the queue is full, the Event is dropped and the first such loss is logged.
    pub fn record(&self, event: RunEvent) {
        if let Err(TrySendError::Full((_, event))) = self.queue.try_send((Timestamp::now(), event)) {
            log_once(&self.lost, &event, "too many wait to be written");
        }
    }
}

impl Writer {
    /// Writes queued Events until every sender is dropped.
    pub async fn write(mut self, client: Client, pod: OwnPod) {
        let api: Api<Event> = Api::namespaced(client, &pod.namespace);
        let ours = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let mut last = None;
        while let Some((at, event)) = self.queue.recv().await {
            // An operation that is retried repeats the same failure; equal Events in a row are written once.
            if last.as_ref() == Some(&event) {
                continue;
            }
            match timeout(RESPONSE_TIMEOUT, api.create(&ours, &to_event(&pod, at, &event))).await {
                Ok(Ok(_)) => {}
                Ok(Err(kube::Error::Api(refusal))) => log_once(&self.lost, &event, &refusal.message),
                Ok(Err(error)) => log_once(&self.lost, &event, &chain(&error)),
                Err(_) => log_once(&self.lost, &event, &format!("no response within {} s", RESPONSE_TIMEOUT.as_secs())),
            }
            last = Some(event);
        }
    }
}

/// Logs the first Event that could not be written. Nothing depends on Events, and their content is in the log anyway.
fn log_once(lost: &AtomicBool, event: &RunEvent, why: &str) {
    if !lost.swap(true, Ordering::Relaxed) {
        eprintln!("ladder: failed to write the Event {} (others may be missing too): {why}", event.reason());
    }
}

fn to_event(pod: &OwnPod, at: Timestamp, event: &RunEvent) -> Event {
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", pod.name)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        reporting_controller: Some(CONTROLLER.into()),
        reporting_instance: Some(cut(&pod.name, 128)),
        action: Some(event.action().into()),
        reason: Some(event.reason().into()),
        type_: Some(event.type_().into()),
        note: Some(cut(&event.note(), LONGEST_NOTE)),
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

/// Shortens a text to at most `most` bytes, at a character boundary.
fn cut(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most - MARK.len());
    format!("{}{MARK}", &text[..end])
}

/// A watcher that updates the live status, and writes failures as Kubernetes Events.
#[derive(Clone, Debug)]
pub struct EventWatcher<'a> {
    /// The status that the live page shows.
    pub live: &'a Live,
    /// The queue of Kubernetes Events.
    pub events: Events,
    /// Whether the run has searches: their short trials are too short for a verdict, which is no failure.
    pub searches: bool,
}

impl Watcher for EventWatcher<'_> {
    fn step(&self, step: TimelineStep, trial: Option<&TrialId>) {
        self.live.step(step, trial);
    }

    fn run(&self, run: &Run) {
        self.live.run(run);
    }

    fn result(&self, result: &TrialResult) {
        if let Validity::Invalid { reasons } = &result.validity
            && !(self.searches && reasons.iter().all(|reason| reason.kind == ReasonKind::WindowShort))
        {
            self.events.record(RunEvent::TrialInvalid { description: print::line(result) });
        }
        self.live.result(result);
    }

    fn searching(&self, search: &Search, so_far: SoFar) {
        self.live.searching(search, so_far);
    }

    fn found(&self, search: &Search) {
        let (description, standing) = (print::search::line(search), assert::of_search(search));
        self.events.record(RunEvent::SearchEnded { description, standing });
        self.live.found(search);
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        self.events.record(RunEvent::TrialFailed { description: format!("{trial}: {reason}") });
        self.live.failed(trial, reason);
    }

    fn crashed(&self, trial: &TrialId, cause: CrashCause, reason: &str) {
        let description = format!("{trial}: {}: {reason}", cause.as_str());
        self.events.record(RunEvent::ServiceEnded { description });
        self.live.crashed(trial, cause, reason);
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        self.events.record(RunEvent::TrialInterrupted { description: format!("{trial}, to be repeated: {reason}") });
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
    use crate::cluster_file::fixture;

    fn pod() -> OwnPod {
        OwnPod { namespace: "lab".into(), name: "bench-operator-1".into(), uid: "u-1".into() }
    }

    fn began(run: &str) -> RunEvent {
        RunEvent::RunBegan { run: run.into() }
    }

    /// A fake API server that records the requests it gets. It refuses an Event that names the run `refused`.
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
        // As in `cli::main`: when all crates are built, two crypto providers are compiled in.
        let _ = rustls::crypto::ring::default_provider().install_default();
        (Client::try_from(Config::new(url.parse().unwrap())).unwrap(), sent)
    }

    #[tokio::test]
    async fn each_event_is_created_once_and_a_refusal_does_not_stop_the_writer() {
        let (client, sent) = api_server().await;
        let (events, writer) = events();
        let queued = [began("a"), began("a"), began("refused"), began("b")];
        queued.into_iter().for_each(|event| events.record(event));
        let lost = Arc::clone(&events.lost);
        drop(events);
        writer.write(client, pod()).await;
        let notes: Vec<String> =
            sent.lock().unwrap().iter().map(|event| event["note"].as_str().unwrap().to_owned()).collect();
        assert_eq!(notes, ["climbing run a", "climbing run refused", "climbing run b"]);
        assert!(lost.load(Ordering::Relaxed));
    }

    #[test]
    fn recording_an_event_never_waits_for_the_writer() {
        let (events, writer) = events();
        (0..QUEUE + 1).for_each(|run| events.record(began(&run.to_string())));
        assert!(events.lost.load(Ordering::Relaxed), "the first lost event is not logged");
        drop(writer);
        events.record(began("no writer"));
    }

    #[test]
    fn an_event_is_about_the_operators_pod() {
        let description = "ours/throughput/batch/10-p1-r1, to be repeated: worker 0 was killed".to_owned();
        let event =
            to_event(&pod(), Timestamp::UNIX_EPOCH, &RunEvent::TrialInterrupted { description: description.clone() });
        let regarding = event.regarding.unwrap();
        assert_eq!((regarding.kind.as_deref(), regarding.uid.as_deref()), (Some("Pod"), Some("u-1")));
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("TrialInterrupted")));
        assert_eq!(event.note, Some(description));
    }

    #[test]
    fn a_run_that_did_not_pass_is_a_warning() {
        let ended = |standing| RunEvent::RunEnded { run: "r".into(), standing };
        let types = [Standing::Pass, Standing::Fail, Standing::Invalid].map(|standing| ended(standing).type_());
        assert_eq!(types, ["Normal", "Warning", "Warning"]);
    }

    #[test]
    fn the_result_of_a_search_is_an_event() {
        let (events, mut writer) = events();
        let live = Live::new();
        let watcher = EventWatcher { live: &live, events, searches: true };
        let search = fixture::searching().searches.remove(0);
        watcher.found(&Search { found: Some(fixture::found()), ..search });
        let (_, event) = writer.queue.try_recv().unwrap();
        assert_eq!((event.reason(), event.type_()), ("SearchEnded", "Normal"));
        assert!(event.note().starts_with("wse-server/throughput/batch: P >= 0.5 at 50.0 ["), "{}", event.note());
    }

    #[test]
    fn texts_that_are_too_long_for_kubernetes_are_cut_between_characters() {
        let note = cut(&"ä".repeat(1000), LONGEST_NOTE);
        assert!(note.len() <= LONGEST_NOTE && note.ends_with("ä…"));
        assert_eq!(cut("short", LONGEST_NOTE), "short");
    }
}
