//! `cluster.yaml`: lists what the chart generated from the plan, so that the operator finds its Deployments and Jobs by
//! name.
//!
//! It is read together with the plan, and all mistakes in both are reported at once.

use std::{collections::BTreeMap, fs, path::Path};

use bench_format::{
    Name,
    plan::{WireLadder, WirePlan},
    trial::TrialId,
};
use operator::{
    plan::{self, Mistake, Mistakes, Plan, check::MachineLimits},
    registry::{BookKeeping, Inference, Protocol, ProtocolCheck, Registry, Service},
};
use serde::Deserialize;

/// The `schema` of the file that this version supports.
const SCHEMA: u32 = 1;

/// The content of `cluster.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Version of the file format.
    pub schema: u32,
    /// Id of the run to climb; empty for none.
    #[serde(default)]
    pub run_id: String,
    /// Name of the Helm release.
    pub release: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of the Lease that the climbing operator holds.
    pub lease: String,
    /// Address at which workers reach the coordinator.
    pub coordinator_url: String,
    /// The protocols, by name.
    pub protocols: BTreeMap<String, Protocol>,
    /// The inference services behind gateways, by name.
    #[serde(default)]
    pub inference: BTreeMap<String, ClusterInference>,
    /// The services, by name.
    pub services: BTreeMap<Name, ClusterService>,
    /// The Deployment of each service in each ladder.
    pub targets: Vec<Target>,
    /// The Job of each service, ladder and tier.
    pub jobs: Vec<TierJob>,
}

/// A service of the release.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterService {
    /// Description of the service, in one line.
    pub description: String,
    /// Name of the service's protocol.
    pub protocol: String,
    /// Which counters the service keeps.
    #[serde(default)]
    pub books: BookKeeping,
    /// Whether a worker checks the protocol around each trial.
    #[serde(default)]
    pub protocol_check: ProtocolCheck,
    /// Least load time before each window, in seconds.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Environment variables from the chart's values; those of the ladder are added.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The container image of the service.
    pub image: String,
}

/// An inference simulator of the release.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterInference {
    /// Description of the simulator, in one line.
    pub description: String,
    /// The container image of the simulator.
    pub image: String,
}

/// The Deployment of a service for one ladder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the service.
    pub service: Name,
    /// Workload of the ladder in which the Deployment serves.
    pub workload: Name,
    /// Variant of the ladder in which the Deployment serves.
    pub variant: Name,
    /// Name of the Deployment.
    pub deployment: String,
    /// Number of pods while a trial runs; must be 1.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Ports of the pod.
    pub ports: Ports,
    /// The Deployment of the inference service; absent where the service needs none.
    #[serde(default)]
    pub inference: Option<InferenceTarget>,
    /// The companions of the service, in the order in which they are started; empty if it has none.
    #[serde(default)]
    pub companions: Vec<CompanionTarget>,
}

/// The Deployment of a companion, such as another instance of the service or a broker. The chart configures the
/// addresses that they use among each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionTarget {
    /// Name of the companion in the chart's values.
    pub name: String,
    /// Name of the Deployment.
    pub deployment: String,
    /// The container image of the companion.
    pub image: String,
    /// Ports of the pod.
    pub ports: CompanionPorts,
}

/// Ports of a companion's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionPorts {
    /// Port of `/readyz`; absent where the companion has no such path. In that case a Ready pod is enough.
    #[serde(default)]
    pub metrics: Option<u16>,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// The Deployment of the inference service behind a gateway. The chart configures its address in the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceTarget {
    /// Name of the Deployment.
    pub deployment: String,
    /// Ports of the pod.
    pub ports: InferencePorts,
}

/// Ports of an inference simulator's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferencePorts {
    /// Port of requests and of `/readyz`.
    pub http: u16,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// Ports of a service's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Port of the WebSocket endpoint, for clients.
    pub ws: u16,
    /// Port of `/readyz` and `/stats`.
    pub metrics: u16,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// The workers of one tier.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierJob {
    /// Name of the service that they load.
    pub service: Name,
    /// Workload of the ladder that the workers climb.
    pub workload: Name,
    /// Variant of the ladder that the workers climb.
    pub variant: Name,
    /// The tier whose load the workers offer.
    pub tier: u32,
    /// Name of the workers' Job.
    pub job: String,
}

fn one() -> i32 {
    1
}

/// The plan and the cluster file, checked together.
#[derive(Clone, Debug)]
pub struct CheckedInputs {
    /// The cluster file, as it was read.
    pub cluster: ClusterFile,
    /// The plan, checked against the cluster file's services.
    pub plan: Plan,
    /// The registry that the climb uses, made from the cluster file.
    pub registry: Registry,
}

impl CheckedInputs {
    /// Reads and checks both files.
    ///
    /// # Errors
    /// All mistakes that can be separated, in both files.
    pub fn read(plan_path: &Path, cluster_path: &Path) -> Result<Self, Mistakes> {
        let cluster = read_cluster(cluster_path);
        let wire = plan::read::read(plan_path);
        match (cluster, wire) {
            (Ok(cluster), Ok(wire)) => Self::check(wire, plan_path, cluster, cluster_path),
            (cluster, wire) => {
                let (cluster, wire) = (cluster.err().map(|m| m.0), wire.err().map(|m| m.0));
                Err(Mistakes(wire.into_iter().chain(cluster).flatten().collect()))
            }
        }
    }

    /// Checks a plan against the cluster file. For a resumed run it is the plan that the run began with.
    ///
    /// # Errors
    /// All mistakes in the plan and in the cluster file.
    pub fn check(
        wire: WirePlan,
        plan_path: &Path,
        cluster: ClusterFile,
        cluster_path: &Path,
    ) -> Result<Self, Mistakes> {
        let mut found = cluster.mistakes(cluster_path);
        found.extend(searches(&wire, plan_path));
        found.extend(replicas(&wire, plan_path));
        let registry = cluster.registry();
        // An unknown protocol is reported above; the plan can't be checked against it.
        let sound = registry.services.values().all(|service| registry.protocols.contains_key(&service.protocol));
        let machine_limits = MachineLimits { cpus: usize::MAX, no_fractions: None };
        match sound.then(|| Plan::check(wire, plan_path, &registry, &machine_limits)) {
            Some(Ok(plan)) => {
                found.extend(cluster.missing_for(&plan, cluster_path));
                if found.is_empty() {
                    return Ok(Self { cluster, plan, registry });
                }
            }
            Some(Err(Mistakes(mistakes))) => found.extend(mistakes),
            None => {}
        }
        Err(Mistakes(found))
    }
}

/// Rejects searches: the chart creates a Job for each tier in the plan, but a search decides its loads during the
/// climb.
fn searches(wire: &WirePlan, path: &Path) -> Vec<Mistake> {
    let with_search = wire.ladders.iter().enumerate().filter(|(_, ladder)| ladder.search.is_some());
    let mistake = |(index, ladder): (usize, &WireLadder)| {
        let message = format!(
            "the search of {}/{} in plan {} can't be run in a cluster, where each load needs a Job of its own; give the ladder \
             tiers in its place, or search on one machine: ladder search {}",
            ladder.workload, ladder.variant, wire.name, wire.name
        );
        Mistake { file: path.into(), place: format!("ladders[{index}].search"), message }
    };
    with_search.map(mistake).collect()
}

/// Rejects ladders with several processes of a service: workers get one address, that of the service's pod.
fn replicas(wire: &WirePlan, path: &Path) -> Vec<Mistake> {
    let several = wire.ladders.iter().enumerate().filter(|(_, ladder)| ladder.replicas != 1);
    let mistake = |(index, ladder): (usize, &WireLadder)| {
        let message = format!(
            "{} replicas of a service are started on one machine only; leave it out in a cluster, or climb there: ladder run {}",
            ladder.replicas, wire.name
        );
        Mistake { file: path.into(), place: format!("ladders[{index}].replicas"), message }
    };
    several.map(mistake).collect()
}

fn read_cluster(path: &Path) -> Result<ClusterFile, Mistakes> {
    let mistake = |place: String, message: String| Mistakes(vec![Mistake { file: path.into(), place, message }]);
    let text = fs::read_to_string(path).map_err(|error| {
        mistake(String::new(), format!("failed to read it: {error}; the chart writes it into the plan's ConfigMap"))
    })?;
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column()));
        mistake(place.unwrap_or_default(), error.to_string().lines().next().unwrap_or_default().to_owned())
    })
}

impl ClusterFile {
    /// Id of the run to climb; `None` for none.
    pub fn run(&self) -> Option<Name> {
        // Another text than a name is a mistake of the file, which is reported when it is read.
        Name::new(self.run_id.as_str()).ok()
    }

    /// The service's Deployment for a trial.
    pub fn target(&self, trial: &TrialId) -> Option<&Target> {
        self.targets.iter().find(|target| {
            (&target.service, &target.workload, &target.variant) == (&trial.service, &trial.workload, &trial.variant)
        })
    }

    /// The names of all Deployments of services, inference services and companions; names may repeat.
    pub fn deployments(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().flat_map(|target| {
            let inference_deployment = target.inference.iter().map(|inference| inference.deployment.as_str());
            let companions = target.companions.iter().map(|companion| companion.deployment.as_str());
            inference_deployment.chain(companions).chain([target.deployment.as_str()])
        })
    }

    /// The workers' Job for a trial.
    pub fn job(&self, trial: &TrialId) -> Option<&TierJob> {
        self.jobs.iter().find(|job| {
            (&job.service, &job.workload, &job.variant, job.tier)
                == (&trial.service, &trial.workload, &trial.variant, trial.tier)
        })
    }

    /// The registry that the plan is checked against.
    fn registry(&self) -> Registry {
        let service = |service: &ClusterService| Service {
            description: service.description.clone(),
            protocol: service.protocol.clone(),
            command: vec![service.image.clone()],
            version: Vec::new(),
            env: service.env.clone(),
            books: service.books,
            protocol_check: service.protocol_check,
            like: None,
            warmup_seconds: service.warmup_seconds,
            build: None,
            image: None,
            exceptions: BTreeMap::new(),
        };
        let inference = |entry: &ClusterInference| Inference {
            description: entry.description.clone(),
            command: vec![entry.image.clone()],
            version: Vec::new(),
            env: BTreeMap::new(),
        };
        Registry {
            root: "/".into(),
            protocols: self.protocols.clone(),
            inference: self.inference.iter().map(|(name, entry)| (name.clone(), inference(entry))).collect(),
            services: self.services.iter().map(|(name, entry)| (name.clone(), service(entry))).collect(),
        }
    }

    fn mistakes(&self, path: &Path) -> Vec<Mistake> {
        let mut found = Vec::new();
        let mut wrong = |place: &str, message: String| {
            found.push(Mistake { file: path.into(), place: place.into(), message });
        };
        if self.schema != SCHEMA {
            wrong(
                "schema",
                format!(
                    "{} is not {SCHEMA}, which this operator supports; chart and image must have the same version",
                    self.schema
                ),
            );
        }
        for (field, value) in [("release", &self.release), ("namespace", &self.namespace), ("lease", &self.lease)] {
            if value.is_empty() {
                wrong(field, "empty; the chart writes it".into());
            }
        }
        if let Err(description) = check_run_id(&self.run_id) {
            wrong("run_id", description);
        }
        for (name, service) in &self.services {
            if !self.protocols.contains_key(&service.protocol) {
                let known: Vec<&str> = self.protocols.keys().map(String::as_str).collect();
                let message = format!("no protocol \"{}\"; known: {}", service.protocol, known.join(", "));
                wrong(&format!("services.{name}.protocol"), message);
            }
        }
        for (name, protocol) in &self.protocols {
            if let Some(inference_name) =
                protocol.inference.as_ref().filter(|inference_name| !self.inference.contains_key(*inference_name))
            {
                wrong(
                    &format!("protocols.{name}.inference"),
                    format!("no inference \"{inference_name}\"; the chart writes it"),
                );
            }
        }
        for (index, target) in self.targets.iter().enumerate() {
            if target.replicas != 1 {
                let message = format!("{} pods; a trial is against one pod, give 1", target.replicas);
                wrong(&format!("targets[{index}].replicas"), message);
            }
            for (place, companion) in target.companions.iter().enumerate() {
                if let Err(description) = check_companion(target, place) {
                    wrong(
                        &format!("targets[{index}].companions[{place}].name"),
                        format!("{description}: {}", companion.name),
                    );
                }
            }
        }
        found
    }

    /// The Deployments and Jobs that the plan needs and the chart didn't create.
    fn missing_for(&self, plan: &Plan, path: &Path) -> Vec<Mistake> {
        let mut found: Vec<Mistake> = Vec::new();
        let mut wrong = |place: &str, message: String| {
            let mistake = Mistake { file: path.into(), place: place.into(), message };
            if !found.contains(&mistake) {
                found.push(mistake);
            }
        };
        for trial in plan.trials() {
            let TrialId { service, workload, variant, tier, .. } = &trial;
            if self.target(&trial).is_none() {
                wrong(
                    "targets",
                    format!("no Deployment for {service} in {workload}/{variant}; is it enabled in the values?"),
                );
            }
            let inference_name =
                self.services.get(service).and_then(|entry| self.protocols.get(&entry.protocol)?.inference.as_ref());
            if let (Some(inference_name), Some(Target { inference: None, .. })) = (inference_name, self.target(&trial))
            {
                wrong("targets", format!("no Deployment of {inference_name} behind {service} in {workload}/{variant}"));
            }
            if self.job(&trial).is_none() {
                wrong("jobs", format!("no Job for {service} in {workload}/{variant}, tier {tier}"));
            }
        }
        found
    }
}

/// Checks a companion's name: it becomes a file name, and must differ from those of the companions before it.
fn check_companion(target: &Target, place: usize) -> Result<(), &'static str> {
    let (before, name) = (&target.companions[..place], &target.companions[place].name);
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(good) {
        return Err("not a name; use lower-case letters, digits and `-`");
    }
    if before.iter().any(|other| other.name == *name) {
        return Err("listed twice");
    }
    Ok(())
}

/// Checks a run id: it becomes a folder name, and empty stands for no run.
///
/// # Errors
/// What is wrong, as text.
pub fn check_run_id(id: &str) -> Result<(), String> {
    if id.is_empty() { Ok(()) } else { Name::new(id).map(drop).map_err(|error| error.to_string()) }
}

#[cfg(test)]
pub(crate) mod fixture {
    use std::path::Path;

    use super::{CheckedInputs, ClusterFile};

    pub(crate) const CLUSTER: &str = r#"
schema: 1
run_id: "r1"
release: wsl
namespace: bench
lease: wsl-operator
coordinator_url: http://wsl-operator.bench.svc:8080
protocols:
  wse: { worker: wse-bench, workloads: [throughput], formats: [json] }
services:
  wse-server: { description: "ours", protocol: wse, books: connections, image: "local/wse-server:1" }
targets:
  - { service: wse-server, workload: throughput, variant: batch, deployment: wsl-wse-server, replicas: 1, ports: { ws: 5006, metrics: 9100, evidence: 9101 } }
jobs:
  - { service: wse-server, workload: throughput, variant: batch, tier: 100, job: wsl-wse-server-throughput-batch-100-abcdef12 }
"#;

    pub(crate) const PLAN: &str = "schema: 1\nname: small\nwhy: a test\nseed: 1\nservices: [wse-server]\n\
        window_seconds: 1\nladders:\n- workload: throughput\n  variant: batch\n  tiers: [100]\n  load: {model: closed}\n";

    pub(crate) fn cluster() -> ClusterFile {
        serde_saphyr::from_str(CLUSTER).unwrap()
    }

    pub(crate) fn inputs() -> CheckedInputs {
        let wire = operator::plan::read::parse(PLAN, Path::new("plan.yaml")).unwrap();
        CheckedInputs::check(wire, Path::new("plan.yaml"), cluster(), Path::new("cluster.yaml")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::*, *};

    fn description(plan: &str, cluster: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let (plan_path, cluster_path) = (folder.path().join("plan.yaml"), folder.path().join("cluster.yaml"));
        fs::write(&plan_path, plan).unwrap();
        fs::write(&cluster_path, cluster).unwrap();
        let Err(Mistakes(mistakes)) = CheckedInputs::read(&plan_path, &cluster_path) else { return Vec::new() };
        let folder = format!("{}/", folder.path().display());
        mistakes.iter().map(|mistake| mistake.to_string().replace(&folder, "")).collect()
    }

    #[test]
    fn the_charts_cluster_file_is_parsed() {
        assert_eq!(description(PLAN, CLUSTER), Vec::<String>::new());
        let inputs = inputs();
        let trial = &inputs.plan.trials()[0];
        assert_eq!(inputs.cluster.target(trial).unwrap().deployment, "wsl-wse-server");
        assert!(inputs.cluster.job(trial).unwrap().job.ends_with("-100-abcdef12"));
    }

    #[test]
    fn mistakes_in_both_files_are_named_at_once() {
        let found = description(&PLAN.replace("tiers: [100]", "teirs: [100]"), &CLUSTER.replace("lease:", "leese:"));
        assert!(found.iter().any(|description| description.contains("did you mean `tiers`?")), "{found:?}");
        assert!(
            found.iter().any(|description| description.starts_with("cluster.yaml: ") && description.contains("leese")),
            "{found:?}"
        );
    }

    #[test]
    fn a_tier_without_a_job_and_a_ladder_without_a_deployment_are_named() {
        let plan = PLAN.replace("tiers: [100]", "tiers: [100, 200]");
        let found = description(&plan, &CLUSTER.replace("variant: batch, deployment", "variant: dict, deployment"));
        assert_eq!(
            found,
            [
                "cluster.yaml: targets: no Deployment for wse-server in throughput/batch; is it enabled in the values?",
                "cluster.yaml: jobs: no Job for wse-server in throughput/batch, tier 200",
            ]
        );
    }

    #[test]
    fn a_search_is_refused_with_the_plan_the_ladder_and_a_remedy() {
        let search = "  search: {from: 1, to: 9, final_trial_seconds: 1, duration_sum_seconds: 1}\n";
        let objectives = "  objectives: [{figure: failed_share, at_most: 0}]\n";
        for tiers in ["  tiers: [100]\n", ""] {
            let plan = PLAN.replace("  tiers: [100]\n", tiers) + objectives + search;
            let found = description(&plan, CLUSTER);
            let ours = found
                .iter()
                .find(|description| description.contains("ladders[0].search"))
                .unwrap_or_else(|| panic!("{found:?}"));
            assert!(ours.contains("the search of throughput/batch in plan small can't be run in a cluster"), "{ours}");
            assert!(ours.ends_with("or search on one machine: ladder search small"), "{ours}");
        }
    }

    #[test]
    fn replicas_are_refused_with_the_remedy() {
        let plan = format!("workers: 2\n{PLAN}  replicas: 2\n");
        let found = description(&plan, CLUSTER);
        let ours = found
            .iter()
            .find(|description| description.contains("ladders[0].replicas: 2 replicas of a service are started"));
        assert!(ours.is_some_and(|description| description.ends_with("or climb there: ladder run small")), "{found:?}");
    }

    const WITH_COMPANIONS: &str = "evidence: 9101 }, companions: [\
        { name: redis, deployment: wsl-redis, image: r, ports: { evidence: 9101 } }, \
        { name: publisher, deployment: wsl-publisher, image: p, ports: { metrics: 9100, evidence: 9101 } }] }";

    #[test]
    fn deployments_of_companions_are_listed_in_the_order_of_their_start() {
        let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
        assert_eq!(description(PLAN, &text), Vec::<String>::new());
        let file: ClusterFile = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(file.deployments().collect::<Vec<_>>(), ["wsl-redis", "wsl-publisher", "wsl-wse-server"]);
        assert_eq!(file.targets[0].companions[0].ports.metrics, None);
    }

    #[test]
    fn a_duplicate_companion_and_one_named_like_a_path_are_refused() {
        let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
        let found = description(PLAN, &text.replace("name: publisher", "name: redis"));
        assert_eq!(found, ["cluster.yaml: targets[0].companions[1].name: listed twice: redis"]);
        let found = description(PLAN, &text.replace("name: redis", "name: ../redis"));
        assert!(found[0].starts_with("cluster.yaml: targets[0].companions[0].name: not a name"), "{found:?}");
    }

    #[test]
    fn an_invalid_run_id_and_an_unsupported_schema_are_reported_together() {
        let found = description(PLAN, &CLUSTER.replace("\"r1\"", "\"../r1\"").replace("schema: 1", "schema: 2"));
        assert!(found[0].starts_with("cluster.yaml: schema: 2 is not"), "{found:?}");
        assert!(found[1].starts_with("cluster.yaml: run_id: \"../r1\" is no name"), "{found:?}");
    }
}
