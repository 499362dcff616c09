//! Tests of a climb with an intervening backend or store: interrupted trials are repeated, measurements are kept, and
//! everything is restored at the end.

use std::{
    cell::{Cell, RefCell},
    fs,
    path::{Path, PathBuf},
};

use bench_format::{
    SCHEMA,
    run::{Run, RunState, TrialEntry, TrialState},
    timeline::TimelineStep,
};
use driver::{
    clock,
    coordinator::Coordinator,
    stage::{self, Cause, Ended, Shares, Stage, Usage},
};
use fakes::Checkout;
use operator::{
    backend::{Backend, Error as BackendError, Placement, ServiceSpec, StartedService, WorkersSpec, local::Local},
    climb::{Climb, ClimbEnd, Error, RetryBudget},
    plan::{Plan, check::MachineLimits},
    registry::Registry,
    roles::Roles,
    signals::Stop,
    store::{self, Store},
    watcher::Terminal,
};
use tokio::sync::watch;

mod fakes;

/// The local backend with a hook that is called at the end of each trial and may report an end.
struct HookedBackend<F> {
    inner: Local,
    hook: F,
    put_back: Cell<u32>,
}

impl<F: FnMut() -> Option<Ended>> Backend for HookedBackend<F> {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<StartedService, BackendError> {
        self.inner.start_service(spec).await
    }
    async fn stop_service(&mut self) {
        self.inner.stop_service().await;
    }
    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), BackendError> {
        self.inner.start_workers(spec).await
    }
    async fn stop_workers(&mut self) {
        self.inner.stop_workers().await;
    }
    async fn put_back(&mut self) -> Result<(), BackendError> {
        self.put_back.set(self.put_back.get() + 1);
        self.inner.put_back().await
    }
    fn placement(&self) -> Placement {
        self.inner.placement()
    }
}

impl<F: FnMut() -> Option<Ended>> Stage for HookedBackend<F> {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        self.inner.service_usage().await
    }
    fn service_ended(&mut self) -> Option<Ended> {
        self.inner.service_ended()
    }
    fn worker_ended(&mut self) -> Option<Ended> {
        self.inner.worker_ended()
    }
    async fn confirm(&mut self) -> Option<Ended> {
        (self.hook)()
    }
    fn shares(&self) -> Shares {
        self.inner.shares()
    }
}

/// A checkout with a plan of two repeats, whose worker program is found from any working directory.
struct Setting {
    checkout: Checkout,
    registry: Registry,
    plan: Plan,
}

impl Setting {
    fn new() -> Self {
        let checkout = Checkout::new();
        checkout.plan("fake", "services: [honest]\nrepeats: 2\n", "");
        let path = checkout.path("services/services.toml");
        let worker = checkout.path("bin/fake-worker");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"fake-worker\"", &format!("\"{}\"", worker.display()))).unwrap();
        let registry = Registry::load(&path).unwrap();
        let machine_limits = MachineLimits { cpus: 2, no_fractions: None };
        let plan = Plan::load(&checkout.path("plans/fake.yaml"), &registry, &machine_limits).unwrap();
        Self { checkout, registry, plan }
    }

    fn results(&self) -> PathBuf {
        self.checkout.path("results")
    }

    fn run(&self) -> Run {
        Run {
            schema: SCHEMA,
            id: bench_format::Name::from_static("r"),
            started_at: String::new(),
            finished_at: None,
            state: RunState::Running,
            plan: self.plan.wire.clone(),
            command: String::new(),
            version: String::new(),
            commit: String::new(),
            versions: Default::default(),
            lines: Default::default(),
            machines: vec![],
            cpu_roles: Default::default(),
            usage: Default::default(),
            rest: None,
            outside: None,
            trials: self.plan.trials().into_iter().map(TrialEntry::pending).collect(),
            retries: vec![],
            searches: vec![],
            comparison: None,
        }
    }

    /// Climbs with the hook `hook`. `between` is called when the store failed, before the climb resumes.
    async fn climb(&self, hook: impl FnMut() -> Option<Ended>, between: impl Fn(&Error)) -> (Run, u32) {
        let coordinator = Coordinator::start("r").await.unwrap();
        let roles = Roles::assign(&[0], &self.plan.cpu, self.plan.inference, self.plan.most_workers());
        let inner = Local::new(self.registry.root.clone(), roles, self.plan.cpu.clone());
        let run = self.run();
        let store = Store::create(&self.results(), &run).unwrap();
        let mut climb = Climb {
            plan: &self.plan,
            registry: &self.registry,
            backend: HookedBackend { inner, hook, put_back: Cell::new(0) },
            coordinator: &coordinator,
            store,
            run,
            reproduce_command: "ladder run fake".into(),
            watcher: &Terminal,
            requested_at_unix_ns: clock::unix_ns(),
            pilots: None,
            printed_rows: None,
            retry_budget: RetryBudget::default(),
            unsaved: None,
        };
        let (_sender, receiver) = watch::channel(None);
        let mut stop = Stop::from_channel(receiver);
        loop {
            match climb.climb(&mut stop).await {
                Ok(end) => {
                    assert_eq!(end, ClimbEnd::Finished);
                    return (climb.run, climb.backend.put_back.get());
                }
                Err(error) => between(&error),
            }
            coordinator.begin("r");
        }
    }
}

fn pod_deletion() -> Option<Ended> {
    Some(Ended { description: "pod a is being deleted".into(), cause: Cause::Outside })
}

fn attempt(results: &Path, run: &Run, index: usize) -> u32 {
    store::read_result(&results.join("r"), &run.trials[index].trial).unwrap().attempt
}

#[tokio::test]
async fn only_the_trial_with_an_external_interruption_is_repeated() {
    let setting = Setting::new();
    let mut trials = 0;
    let hook = || {
        trials += 1;
        if trials == 2 { pod_deletion() } else { None }
    };
    let (run, put_back) = setting.climb(hook, |error| panic!("{error}")).await;
    assert!(run.trials.iter().all(|entry| matches!(entry.state, TrialState::Finished { .. })), "{:?}", run.trials);
    let results = setting.results();
    assert_eq!((attempt(&results, &run, 0), attempt(&results, &run, 1), put_back), (1, 2, 1));
    let steps: Vec<TimelineStep> = store::read_timeline(&results.join("r")).iter().map(|entry| entry.step).collect();
    let count = |step_kind| steps.iter().filter(|step| **step == step_kind).count();
    assert_eq!(count(TimelineStep::Trial), 2, "{steps:?}");
    assert_eq!(count(TimelineStep::Interrupted), 1, "{steps:?}");
    assert_eq!((steps[0], count(TimelineStep::StartService)), (TimelineStep::Prepare, 2), "{steps:?}");
}

#[tokio::test]
async fn a_trial_that_is_interrupted_twice_has_failed_and_the_climb_continues() {
    let setting = Setting::new();
    let mut trials = 0;
    let hook = || {
        trials += 1;
        if trials <= 2 { pod_deletion() } else { None }
    };
    let (run, _) = setting.climb(hook, |error| panic!("{error}")).await;
    let TrialState::Failed { reason } = &run.trials[0].state else { panic!("{:?}", run.trials[0]) };
    assert!(reason.starts_with("interrupted 2 times while it was measured, the last: "), "{reason}");
    assert!(reason.ends_with("pod a is being deleted"), "{reason}");
    assert!(matches!(run.trials[1].state, TrialState::Finished { .. }), "{:?}", run.trials[1]);
}

#[tokio::test]
async fn results_measured_while_the_disk_was_full_are_written_later() {
    let setting = Setting::new();
    let folder = setting.results().join("r/trials/honest/throughput/standard/4-p1-r1");
    // A folder in place of the worker's result has the same effect as a full disk.
    let obstacle = folder.join("workers/0.json/obstacle");
    let trials = Cell::new(0);
    let hook = || {
        trials.set(trials.get() + 1);
        if trials.get() == 1 {
            fs::create_dir_all(&obstacle).unwrap();
        }
        None
    };
    let errors = RefCell::new(Vec::new());
    let between = |error: &Error| {
        errors.borrow_mut().push(error.to_string());
        fs::remove_dir_all(folder.join("workers/0.json")).unwrap();
    };
    let (run, put_back) = setting.climb(hook, between).await;
    assert!(run.trials.iter().all(|entry| matches!(entry.state, TrialState::Finished { .. })), "{:?}", run.trials);
    let [error] = &errors.borrow()[..] else { panic!("{errors:?}") };
    assert!(error.starts_with("failed to write ") && error.ends_with("workers/0.json"), "{error}");
    // Two trials were measured, not three.
    assert_eq!((trials.get(), attempt(&setting.results(), &run, 0), put_back), (2, 1, 2));
}
