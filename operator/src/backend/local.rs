//! A backend that runs services, the inference behind them and workers as processes of this machine, each on the CPUs
//! of its role.
//!
//! Inference starts before its service and stops after it, so that every service process gets a fresh one. Whole CPUs
//! need only CPU affinity; a fraction gets its own cgroup. All processes end with this one.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bench_format::{
    environment::Environment,
    plan::{CpuShape, CpuShapes},
    result::ThreadReading,
    service::Started,
};
use driver::{service_client::ServiceClient, stage::Usage};
use process_usage::cgroup::CpuCgroup;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Backend, Error, InferenceSpec, Placement, ServiceSpec, StartedService, WorkersSpec, ready_deadline};
use crate::{evidence, registry::worker_program, roles::Roles};
use cgroup::{Cgroup, Hierarchy};
use described::Found;
use process::{Launch, RunningProcess, Stdout};
use usage::Watched;

pub mod cgroup;
mod described;
pub mod process;
mod stage;
pub mod usage;

/// Time between SIGTERM and SIGKILL. The contract gives services five seconds to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(6);
/// Interval between two checks whether a service is ready.
const POLL: Duration = Duration::from_millis(10);

/// Script that starts several processes of a service and sums their counters.
const REPLICAS: &str = "services/replicas.py";

/// The processes of a climb on this machine.
#[derive(Debug)]
pub struct Local {
    root: PathBuf,
    roles: Roles,
    shapes: CpuShapes,
    hierarchy: Result<Hierarchy, String>,
    service: Option<ReadyProcess>,
    /// A service that ladder did not start, described by the plan.
    found: Option<Found>,
    /// What the plan of a described service names as its CPU time and memory.
    watched: Option<Watched>,
    /// Whether fixed work is timed around trials.
    times_work: bool,
    inference: Option<ReadyProcess>,
    workers: Vec<RunningProcess>,
    /// The output of each service's version commands, by service and program. They run once per service.
    versions: BTreeMap<String, BTreeMap<String, String>>,
    /// Number of rounds of the fixed work; absent before the first trial.
    fixed_rounds: Option<u64>,
}

/// A process that printed its ready line.
#[derive(Debug)]
struct ReadyProcess {
    running: RunningProcess,
    /// The process id in the ready line, which may be a child of the process that was started.
    pid: u32,
    /// The quota of a cgroup around ladder that limits the process, too; absent without one.
    outer_quota: Option<CpuCgroup>,
    /// Where it responds with its own counters, as `host:port`.
    metrics_address: String,
}

impl Local {
    /// A backend that runs commands in `root`, on the CPUs of `roles`. Removes cgroups of earlier ladder processes that
    /// are gone.
    pub fn new(root: PathBuf, roles: Roles, shapes: CpuShapes) -> Self {
        let hierarchy = Hierarchy::detect();
        if let Ok(hierarchy) = &hierarchy {
            hierarchy.sweep();
        }
        Self {
            root,
            roles,
            shapes,
            hierarchy,
            service: None,
            found: None,
            watched: None,
            times_work: true,
            inference: None,
            workers: Vec::new(),
            versions: BTreeMap::new(),
            fixed_rounds: None,
        }
    }

    /// The same backend, which times no fixed work around trials.
    pub fn without_fixed_work(self) -> Self {
        Self { times_work: false, ..self }
    }

    /// The CPUs of each role.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// A cgroup for a fraction of a CPU; `None` for whole CPUs, where affinity is enough.
    fn cgroup(&self, role: &str, shape: CpuShape) -> Result<Option<Box<dyn Cgroup>>, Error> {
        if shape.cpus.fract() == 0.0 {
            return Ok(None);
        }
        let refused = |reason| Error::Cpu { role: role.into(), cpus: shape.cpus, reason };
        let hierarchy = self.hierarchy.as_ref().map_err(|reason| refused(reason.clone()))?;
        hierarchy.create(role, shape.cpus).map(Some).map_err(|error| refused(error.to_string()))
    }

    /// The versions of the programs that the service needs, by program. A service without a version is not measured.
    fn versions_of(&mut self, spec: &ServiceSpec) -> Result<BTreeMap<String, String>, Error> {
        if let Some(known) = self.versions.get(&spec.name) {
            return Ok(known.clone());
        }
        if let Some(described) = &spec.service.described {
            return Ok(described::versions(&self.root, spec, described)?);
        }
        let root = spec.service.root(&self.root);
        let version = evidence::version(root, &spec.name, &spec.service.version)?;
        let mut versions = BTreeMap::from([(spec.name.clone(), version)]);
        if let Some(inference_spec) = &spec.inference {
            let version = evidence::version(&self.root, &inference_spec.name, &inference_spec.inference.version)?;
            versions.insert(inference_spec.name.clone(), version);
        }
        if let Some(python) = evidence::python_version(spec.service.root(&self.root), &spec.service) {
            versions.insert(format!("python of {}", spec.name), python);
        }
        self.versions.insert(spec.name.clone(), versions.clone());
        Ok(versions)
    }

    /// Starts a program that prints a ready line, and returns when it is ready.
    async fn start(&self, launch: Launch, shape: CpuShape) -> Result<(ReadyProcess, Started), Error> {
        let name = launch.name.clone();
        let mut running = RunningProcess::start(launch)?;
        match self.ready(&name, &mut running, ready_deadline(shape.cpus)).await {
            Ok(started) => {
                running.ignore_stdout();
                let (pid, metrics_address) = (started.pid, started.metrics_address.clone());
                let outer_quota = CpuCgroup::of(&pid.to_string()).filter(|_| running.cgroup().is_none());
                Ok((ReadyProcess { running, pid, outer_quota, metrics_address }, started))
            }
            Err(error) => {
                running.stop(STOP_TIMEOUT).await;
                Err(error)
            }
        }
    }

    /// Starts the inference service, and returns its address for the gateway.
    async fn start_inference(&mut self, spec: &InferenceSpec) -> Result<String, Error> {
        let launch = Launch {
            // Messages name the role, not the registry's entry.
            name: "inference".into(),
            program: spec.inference.command[0].clone(),
            arguments: spec.inference.command[1..].to_vec(),
            env: spec.env.clone(),
            folder: self.root.clone(),
            cpus: self.roles.inference.clone(),
            cgroup: self.cgroup("inference", self.shapes.inference)?,
            log: spec.log.clone(),
            stdout: Stdout::Lines,
        };
        let (ready_process, started) = self.start(launch, self.shapes.inference).await?;
        self.inference = Some(ready_process);
        Ok(format!("http://{}", started.address))
    }

    async fn stop_inference(&mut self) {
        if let Some(mut inference) = self.inference.take() {
            inference.running.stop(STOP_TIMEOUT).await;
        }
    }

    async fn ready(&self, name: &str, running: &mut RunningProcess, longest: Duration) -> Result<Started, Error> {
        let deadline = Instant::now() + longest;
        let seconds = longest.as_secs();
        let late = |what: &str| format!("{what} within {seconds} s");
        let line = timeout_at(deadline, running.first_json_line()).await;
        let reason = match line {
            Ok(Ok(Some(line))) => match serde_json::from_str::<Started>(&line) {
                Ok(started) if started.event == "ready" => match self.becomes_ready(&started, deadline).await {
                    true => return Ok(started),
                    false => late("/readyz did not return 200"),
                },
                Ok(started) => format!("the event of its first line is \"{}\" instead of \"ready\"", started.event),
                Err(error) => format!("its first line is not a ready line as in services/README.md: {error}: {line}"),
            },
            Ok(Ok(None)) => format!("it ended without a ready line ({})", running.exit_description().await),
            Ok(Err(error)) => format!("failed to read its standard output: {error}"),
            Err(_) => late("it printed no ready line"),
        };
        Err(Error::NotReady { name: name.into(), reason, log: running.last_output() })
    }

    async fn becomes_ready(&self, started: &Started, deadline: Instant) -> bool {
        let client = ServiceClient::new(&started.metrics_address);
        while !client.ready().await {
            if Instant::now() >= deadline {
                return false;
            }
            sleep_until(Instant::now() + POLL).await;
        }
        true
    }
}

impl ReadyProcess {
    /// The resource use of the process and its descendants so far. CPU time and limit come from the cgroup where there
    /// is one.
    fn usage(&self, shape: CpuShape, cpus: &[usize]) -> Result<Usage, Error> {
        let pid = self.pid;
        let failed = |what| move |source| Error::Usage { what, pid, source };
        let process_tree = process::process_tree(pid);
        let cgroup = self.running.cgroup();
        let cpu_ns = match cgroup.and_then(Cgroup::cpu_ns) {
            Some(cpu_ns) => cpu_ns,
            None => process::sum_over(&process_tree, process::cpu_ns).map_err(failed("CPU time"))?,
        };
        let outer = self.outer_quota.as_ref().and_then(CpuCgroup::throttling);
        Ok(Usage {
            pid,
            cpu_ns,
            rss_bytes: process::sum_over(&process_tree, process::rss_bytes).map_err(failed("memory"))?,
            cpu_limit: cgroup.and_then(Cgroup::quota_cpus).unwrap_or(shape.cpus).min(cpus.len() as f64),
            throttled_periods: cgroup.map_or(outer.map(|outer| outer.throttled), Cgroup::throttled_periods),
            periods: cgroup.map_or(outer.map(|outer| outer.periods), Cgroup::periods),
            throttled_ns: cgroup.map_or(outer.map(|outer| outer.throttled_ns), Cgroup::throttled_ns),
        })
    }

    /// The threads of the process and its descendants; `None` if they can't be read or are too many.
    fn threads(&self) -> Option<Vec<ThreadReading>> {
        process::threads(&process::process_tree(self.pid))
    }
}

impl Backend for Local {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<StartedService, Error> {
        let versions = self.versions_of(spec)?;
        if let Some(described) = &spec.service.described {
            let (started, counters) = self.start_described(spec, described).await?;
            let usage = self.usage_sentence(&started.address);
            return Ok(StartedService { started, versions, more_addresses: vec![], counters, usage });
        }
        let mut env = spec.env.clone();
        if let Some(inference_spec) = &spec.inference {
            env.insert("INFERENCE_URL".into(), self.start_inference(inference_spec).await?);
        }
        let mut command = spec.service.command.clone();
        if spec.replicas > 1 {
            command.splice(..0, ["python3".into(), REPLICAS.into(), spec.replicas.to_string()]);
        }
        let launch = Launch {
            name: spec.name.clone(),
            program: command[0].clone(),
            arguments: command[1..].to_vec(),
            env,
            folder: spec.service.root(&self.root).to_path_buf(),
            cpus: self.roles.service.clone(),
            cgroup: self.cgroup("service", self.shapes.service)?,
            log: spec.log.clone(),
            stdout: Stdout::Lines,
        };
        match self.start(launch, self.shapes.service).await {
            Ok((ready_process, started)) => {
                self.service = Some(ready_process);
                Ok(StartedService { started, versions, more_addresses: vec![], counters: None, usage: None })
            }
            Err(error) => {
                self.stop_inference().await;
                Err(error)
            }
        }
    }

    async fn stop_service(&mut self) {
        (self.found, self.watched) = (None, None);
        if let Some(mut service) = self.service.take() {
            service.running.stop(STOP_TIMEOUT).await;
        }
        self.stop_inference().await;
    }

    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error> {
        let program = worker_program(&spec.program).ok_or_else(|| Error::NoWorker(spec.program.clone()))?;
        for index in 0..spec.count {
            let role = format!("worker-{index}");
            let arguments = ["--coordinator".into(), spec.coordinator.clone(), "--worker".into(), index.to_string()];
            self.workers.push(RunningProcess::start(Launch {
                name: format!("worker {index}"),
                program: program.to_string_lossy().into_owned(),
                arguments: arguments.to_vec(),
                // In the environment, because `ps` shows arguments to all users.
                env: [("COORDINATOR_TOKEN".to_owned(), spec.token.reveal().to_owned())].into(),
                folder: self.root.clone(),
                cpus: self.roles.workers[index as usize % self.roles.workers.len()].clone(),
                cgroup: self.cgroup(&role, self.shapes.worker)?,
                log: spec.logs.join(format!("{index}.log")),
                stdout: Stdout::Discarded,
            })?);
        }
        Ok(())
    }

    async fn stop_workers(&mut self) {
        for mut worker in self.workers.drain(..) {
            worker.stop(STOP_TIMEOUT).await;
        }
    }

    async fn put_back(&mut self) -> Result<(), Error> {
        self.stop_workers().await;
        self.stop_service().await;
        Ok(())
    }

    fn placement(&self) -> Placement {
        Placement { machines: vec![Environment::read()], cpu_roles: self.roles.description(), nodes: BTreeMap::new() }
    }
}
