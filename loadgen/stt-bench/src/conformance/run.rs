//! Runs the cases of a scope on one gateway: starts its processes, runs the stages and returns the results in the order
//! of the report. The stages of a gateway that this program starts run side by side, each on its own process. On a
//! gateway that runs already they run one after another.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::{sleep_until, timeout};

use super::{
    case::{Case, CaseResult, Status},
    cases::CASES,
    finding::{NotPassed, Verdict, failed},
    gateway::{Gateway, Launch, Settings},
    inference::Inference,
    level::{Exceptions, Level},
    readings::Readings,
    scene::Scene,
    scope::Scope,
    stage::Stage,
};

/// Time limit of one try of a case.
const LONGEST: Duration = Duration::from_secs(30);

/// Time limit of the session that warms up a gateway before its cases.
const FIRST_SESSION: Duration = Duration::from_secs(3);

/// Interval between two measurements of this program's own lateness.
const WATCH: Duration = Duration::from_millis(10);

/// Whether this program starts the gateway, or the gateway runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This program starts it with this command, once per stage.
    Started(Launch),
    /// It runs already; this program cannot signal it.
    Running {
        /// `host:port` of its WebSocket.
        address: String,
        /// `http://host:port` of its metrics port. None if the user did not give it: cases that need it are skipped.
        metrics: Option<String>,
        /// Its settings, as the command line gives them.
        settings: Settings,
        /// Whether it sends its inference requests to our scripted inference.
        scripted: bool,
    },
}

/// The results of one gateway.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceResult {
    /// Name of the gateway, as given on the command line.
    pub service: String,
    /// How much of the contract was checked.
    pub level: Level,
    /// Duration of the whole run, in seconds.
    pub seconds: f64,
    /// Longest delay of this program by the machine, in milliseconds. If it is long, results of cases about time are
    /// less reliable.
    pub late_ms: u64,
    /// Declared exceptions: what the gateway does instead, by the name of the case that it fails.
    pub exceptions: Exceptions,
    /// One entry per case that was selected, in the order of the report.
    pub cases: Vec<CaseResult>,
}

impl ServiceResult {
    /// Number of cases with this status.
    pub fn count(&self, status: Status) -> usize {
        self.cases.iter().filter(|case| case.status == status).count()
    }

    /// Names of the cases that failed; excepted cases are not among them.
    pub fn failed(&self) -> Vec<&'static str> {
        self.cases.iter().filter(|case| case.status == Status::Failed).map(|case| case.name).collect()
    }
}

/// Runs the cases of a scope on one gateway.
///
/// # Errors
/// Fails if a process of the gateway cannot be started or, for a gateway that runs already, if no WebSocket can be
/// opened. The text is the reason.
pub async fn run(
    service: &str,
    origin: &Origin,
    inference: &Arc<Inference>,
    scope: &Scope,
) -> Result<ServiceResult, String> {
    let started = Instant::now();
    let wanted: Vec<&Case> = scope.cases().collect();
    let gateways = open(origin, inference, &wanted).await?;
    let late_ms = Arc::new(AtomicU64::new(0));
    let watching = tokio::spawn(watch(late_ms.clone()));
    let mut results = match origin {
        Origin::Started(_) => {
            let stages = gateways.iter().map(|(stage, gateway)| perform(*stage, gateway, inference, &wanted));
            join_all(stages).await.concat()
        }
        Origin::Running { .. } => {
            let mut results = Vec::new();
            for (stage, gateway) in &gateways {
                results.extend(perform(*stage, gateway, inference, &wanted).await);
            }
            results
        }
    };
    results.extend(conclude(&gateways, inference, &wanted).await);
    for gateway in gateways.values() {
        if let Some(process) = &gateway.process {
            process.kill().await;
        }
    }
    watching.abort();
    let place = |name: &str| CASES.iter().position(|case| case.name == name);
    results.sort_by_key(|result| place(result.name));
    Ok(ServiceResult {
        service: service.into(),
        level: scope.level,
        seconds: started.elapsed().as_secs_f64(),
        late_ms: late_ms.load(Ordering::Relaxed),
        exceptions: scope.exceptions.clone(),
        cases: results.into_iter().map(|result| result.excepted(&scope.exceptions)).collect(),
    })
}

/// Sleeps in a loop and records the largest lateness of a wake-up, in milliseconds.
async fn watch(late_ms: Arc<AtomicU64>) {
    loop {
        let due = Instant::now() + WATCH;
        sleep_until(due.into()).await;
        late_ms.fetch_max(due.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// Starts a gateway for each stage that has cases to run, or opens the running one for all of them.
async fn open(
    origin: &Origin,
    inference: &Arc<Inference>,
    wanted: &[&Case],
) -> Result<BTreeMap<Stage, Arc<Gateway>>, String> {
    let has_cases = |stage: &Stage| wanted.iter().any(|case| case.stage == *stage);
    let mut stages: Vec<Stage> = Stage::PROCESSES.into_iter().filter(has_cases).collect();
    if stages.is_empty() {
        // Only cases of the last stage are selected: they still need a process.
        stages.push(Stage::Wire);
    }
    match origin {
        Origin::Started(launch) => {
            let url = inference.url();
            let started = stages.iter().map(|stage| Gateway::start(launch, *stage, &url));
            let started = join_all(started).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(stages.into_iter().zip(started.into_iter().map(Arc::new)).collect())
        }
        Origin::Running { address, metrics, settings, scripted } => {
            let gateway = Arc::new(Gateway {
                address: address.clone(),
                metrics: metrics.as_deref().map(Readings::new),
                settings: *settings,
                scripted: *scripted,
                process: None,
            });
            super::client::Client::open(address).await.map_err(|not_passed| match not_passed {
                NotPassed::Failed(evidence) => format!("{}: {}", evidence.expected, evidence.seen),
                NotPassed::Skipped(reason) => reason,
            })?;
            Ok(stages.into_iter().map(|stage| (stage, gateway.clone())).collect())
        }
    }
}

/// Runs the cases of one stage, side by side or one by one.
async fn perform(
    stage: Stage,
    gateway: &Arc<Gateway>,
    inference: &Arc<Inference>,
    wanted: &[&Case],
) -> Vec<CaseResult> {
    let scene = scene(gateway, Vec::new(), inference);
    if gateway.process.is_some() {
        first_session(&scene).await;
    }
    let cases: Vec<_> = wanted.iter().filter(|case| case.stage == stage).collect();
    if stage.is_concurrent() {
        return join_all(cases.into_iter().map(|case| run_case(case, scene.clone()))).await;
    }
    let mut results = Vec::new();
    for case in cases {
        results.push(run_case(case, scene.clone()).await);
    }
    results
}

/// Runs a session and ignores its result. A runtime that loads its code on first use is late in that session, by more
/// than cases about time allow. The contract does not limit the time that a gateway takes to warm up.
async fn first_session(scene: &Scene) {
    let session = async {
        let mut session = scene.session(Vec::new()).await?;
        session.burst(1).await?;
        session.next_message(FIRST_SESSION).await?;
        session.client.close().await
    };
    // Errors of this session are ignored: the cases find them.
    let _ = timeout(FIRST_SESSION, session).await;
}

/// Runs the cases of the last stage on all processes except the drained one.
async fn conclude(
    gateways: &BTreeMap<Stage, Arc<Gateway>>,
    inference: &Arc<Inference>,
    wanted: &[&Case],
) -> Vec<CaseResult> {
    let remaining: Vec<_> =
        gateways.iter().filter(|(stage, _)| **stage != Stage::Drain).map(|(_, gateway)| gateway.clone()).collect();
    let Some(first) = remaining.first().cloned().or_else(|| gateways.values().next().cloned()) else {
        return Vec::new();
    };
    let mut results = Vec::new();
    for case in wanted.iter().filter(|case| case.stage == Stage::Last) {
        results.push(run_case(case, scene(&first, remaining.clone(), inference)).await);
    }
    results
}

/// Number of sessions so far in this process. The payload of each frame carries its session's number, by which the
/// inference distinguishes sessions.
static SESSIONS: std::sync::LazyLock<Arc<AtomicU32>> = std::sync::LazyLock::new(Arc::default);

fn scene(gateway: &Arc<Gateway>, all: Vec<Arc<Gateway>>, inference: &Arc<Inference>) -> Scene {
    Scene { gateway: gateway.clone(), all, inference: inference.clone(), sessions: SESSIONS.clone() }
}

/// Runs one case and times it. A failed case is tried again, up to its number of tries; a try that exceeds the time
/// limit fails.
async fn run_case(case: &Case, scene: Scene) -> CaseResult {
    let started = Instant::now();
    let verdict = match scene.missing_need(case.needs) {
        Some(reason) => Err(NotPassed::Skipped(reason.into())),
        None => {
            let mut verdict = attempt(case, &scene).await;
            for _ in 1..case.tries {
                if !matches!(verdict, Err(NotPassed::Failed(_))) {
                    break;
                }
                verdict = attempt(case, &scene).await;
            }
            verdict
        }
    };
    CaseResult::new(case, verdict, started.elapsed())
}

async fn attempt(case: &Case, scene: &Scene) -> Verdict {
    match timeout(LONGEST, (case.run)(scene.clone())).await {
        Ok(verdict) => verdict,
        Err(_) => Err(failed(format!("a verdict within {LONGEST:?}"), "none")),
    }
}
