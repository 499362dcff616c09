//! `cluster.yaml`: what the chart made of the plan, so that the operator finds its Deployments and Jobs by name.
//!
//! Read together with the plan; every mistake in either is named at once.

use std::{collections::BTreeMap, fs, path::Path};

use bench_format::{
    plan::{WireLadder, WirePlan},
    trial::TrialId,
};
use operator::{
    plan::{self, Mistake, Mistakes, Plan, check::Surroundings},
    registry::{BookKeeping, Inference, Protocol, ProtocolCheck, Registry, Service},
};
use serde::Deserialize;

/// The newest `schema` of the file that is understood.
const SCHEMA: u32 = 1;

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// The format's number.
    pub schema: u32,
    /// The run to climb; empty: none.
    #[serde(default)]
    pub run_id: String,
    /// The Helm release.
    pub release: String,
    /// Its namespace.
    pub namespace: String,
    /// The Lease that the one climbing operator holds.
    pub lease: String,
    /// Where workers find the coordinator.
    pub coordinator_url: String,
    /// By name.
    pub protocols: BTreeMap<String, Protocol>,
    /// What stands behind services, by name.
    #[serde(default)]
    pub inference: BTreeMap<String, ClusterInference>,
    /// By name.
    pub services: BTreeMap<String, ClusterService>,
    /// The Deployment of each service in each ladder.
    pub targets: Vec<Target>,
    /// The Job of each service, ladder and tier.
    pub jobs: Vec<TierJob>,
}

/// One service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterService {
    /// In a line.
    pub description: String,
    /// Its protocol.
    pub protocol: String,
    /// What its books can answer.
    #[serde(default)]
    pub books: BookKeeping,
    /// Whether its protocol is checked around each trial.
    #[serde(default)]
    pub protocol_check: ProtocolCheck,
    /// At least so long it is loaded before each window.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Its environment, as the values give it; the ladder's comes on top.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its image.
    pub image: String,
}

/// An inference simulator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterInference {
    /// In a line.
    pub description: String,
    /// Its image.
    pub image: String,
}

/// Where a service is for one ladder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The service.
    pub service: String,
    /// The ladder's workload.
    pub workload: String,
    /// The ladder's variant.
    pub variant: String,
    /// Its Deployment.
    pub deployment: String,
    /// Pods while a trial runs.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Its ports.
    pub ports: Ports,
    /// Where the inference behind it is; absent where nothing stands behind it.
    #[serde(default)]
    pub inference: Option<InferenceTarget>,
    /// What belongs to it, in the order in which it is started; none where it stands alone.
    #[serde(default)]
    pub companions: Vec<CompanionTarget>,
}

/// Where a companion of a service is: another instance of it, a broker. The chart tells their addresses to each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionTarget {
    /// Its name in the values.
    pub name: String,
    /// Its Deployment.
    pub deployment: String,
    /// Its image.
    pub image: String,
    /// Its ports.
    pub ports: CompanionPorts,
}

/// Ports of a companion's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionPorts {
    /// `/readyz`; absent where it has no such path: then its pod being Ready has to do.
    #[serde(default)]
    pub metrics: Option<u16>,
    /// The container beside it that tells what it uses.
    pub evidence: u16,
}

/// Where the inference behind a service is. The chart tells its Service's address to the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceTarget {
    /// Its Deployment.
    pub deployment: String,
    /// Its ports.
    pub ports: InferencePorts,
}

/// Ports of an inference simulator's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferencePorts {
    /// Requests, `/readyz`.
    pub http: u16,
    /// The container beside it that tells what it uses.
    pub evidence: u16,
}

/// Ports of a service's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Clients.
    pub ws: u16,
    /// `/readyz`, `/stats`.
    pub metrics: u16,
    /// The container beside it that tells what the service uses.
    pub evidence: u16,
}

/// The workers of one tier.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierJob {
    /// The service that they load.
    pub service: String,
    /// The ladder's workload.
    pub workload: String,
    /// The ladder's variant.
    pub variant: String,
    /// The tier.
    pub tier: u32,
    /// Their Job.
    pub job: String,
}

fn one() -> i32 {
    1
}

/// Both files, checked.
#[derive(Clone, Debug)]
pub struct Orders {
    /// What the chart made.
    pub cluster: ClusterFile,
    /// The plan.
    pub plan: Plan,
    /// The services, as the climb looks for them.
    pub registry: Registry,
}

impl Orders {
    /// Reads and checks both files.
    ///
    /// # Errors
    /// With every mistake that could be told apart, in both.
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

    /// Checks a plan against the cluster's file; for a run that is resumed the plan is the one that it began with.
    ///
    /// # Errors
    /// With every mistake.
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
        // A protocol that isn't there is named above; the plan can't be checked against it.
        let sound = registry.services.values().all(|service| registry.protocols.contains_key(&service.protocol));
        let surroundings = Surroundings { cpus: usize::MAX, no_fractions: None };
        match sound.then(|| Plan::check(wire, plan_path, &registry, &surroundings)) {
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

/// The searches of a plan: the chart makes a Job for each tier that the plan names, and a search decides its loads as it goes.
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

/// The ladders of a plan that want several processes of a service: workers are told one address, that of its pod.
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
    /// The service of a trial.
    pub fn target(&self, trial: &TrialId) -> Option<&Target> {
        self.targets.iter().find(|target| {
            (&target.service, &target.workload, &target.variant) == (&trial.service, &trial.workload, &trial.variant)
        })
    }

    /// Every Deployment of ours, some more than once: services, and what stands behind them.
    pub fn deployments(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().flat_map(|target| {
            let behind = target.inference.iter().map(|inference| inference.deployment.as_str());
            let companions = target.companions.iter().map(|companion| companion.deployment.as_str());
            behind.chain(companions).chain([target.deployment.as_str()])
        })
    }

    /// The workers of a trial.
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
                format!("{} is not the {SCHEMA} of this operator; chart and image must be of one version", self.schema),
            );
        }
        for (field, value) in [("release", &self.release), ("namespace", &self.namespace), ("lease", &self.lease)] {
            if value.is_empty() {
                wrong(field, "empty; the chart writes it".into());
            }
        }
        if let Err(words) = check_run_id(&self.run_id) {
            wrong("run_id", words);
        }
        for (name, service) in &self.services {
            if !self.protocols.contains_key(&service.protocol) {
                let known: Vec<&str> = self.protocols.keys().map(String::as_str).collect();
                let message = format!("no protocol \"{}\"; known: {}", service.protocol, known.join(", "));
                wrong(&format!("services.{name}.protocol"), message);
            }
        }
        for (name, protocol) in &self.protocols {
            if let Some(wanted) = protocol.inference.as_ref().filter(|wanted| !self.inference.contains_key(*wanted)) {
                wrong(
                    &format!("protocols.{name}.inference"),
                    format!("no inference \"{wanted}\"; the chart writes it"),
                );
            }
        }
        for (index, target) in self.targets.iter().enumerate() {
            if target.replicas != 1 {
                let message = format!("{} pods; a trial is against one pod, give 1", target.replicas);
                wrong(&format!("targets[{index}].replicas"), message);
            }
            for (place, companion) in target.companions.iter().enumerate() {
                if let Err(words) = check_companion(target, place) {
                    wrong(
                        &format!("targets[{index}].companions[{place}].name"),
                        format!("{words}: {}", companion.name),
                    );
                }
            }
        }
        found
    }

    /// What the plan needs and the chart didn't make.
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
            let wanted =
                self.services.get(service).and_then(|entry| self.protocols.get(&entry.protocol)?.inference.as_ref());
            if let (Some(wanted), Some(Target { inference: None, .. })) = (wanted, self.target(&trial)) {
                wrong("targets", format!("no Deployment of {wanted} behind {service} in {workload}/{variant}"));
            }
            if self.job(&trial).is_none() {
                wrong("jobs", format!("no Job for {service} in {workload}/{variant}, tier {tier}"));
            }
        }
        found
    }
}

/// A companion's name is that of a file, and tells it from the others.
fn check_companion(target: &Target, place: usize) -> Result<(), &'static str> {
    let (before, name) = (&target.companions[..place], &target.companions[place].name);
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(good) {
        return Err("not a name; use small letters, digits and `-`");
    }
    if before.iter().any(|other| other.name == *name) {
        return Err("there twice");
    }
    Ok(())
}

/// A run id is a folder name; empty is none.
///
/// # Errors
/// In words.
pub fn check_run_id(id: &str) -> Result<(), String> {
    let good = !id.starts_with('.') && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if good { Ok(()) } else { Err(format!("\"{id}\" is no run id; use letters, digits, `-`, `_` and `.`")) }
}

#[cfg(test)]
pub(crate) mod fixture {
    use std::path::Path;

    use super::{ClusterFile, Orders};

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

    pub(crate) fn orders() -> Orders {
        let wire = operator::plan::read::parse(PLAN, Path::new("plan.yaml")).unwrap();
        Orders::check(wire, Path::new("plan.yaml"), cluster(), Path::new("cluster.yaml")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::*, *};

    fn words(plan: &str, cluster: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let (plan_path, cluster_path) = (folder.path().join("plan.yaml"), folder.path().join("cluster.yaml"));
        fs::write(&plan_path, plan).unwrap();
        fs::write(&cluster_path, cluster).unwrap();
        let Err(Mistakes(mistakes)) = Orders::read(&plan_path, &cluster_path) else { return Vec::new() };
        let folder = format!("{}/", folder.path().display());
        mistakes.iter().map(|mistake| mistake.to_string().replace(&folder, "")).collect()
    }

    #[test]
    fn what_the_chart_writes_is_understood() {
        assert_eq!(words(PLAN, CLUSTER), Vec::<String>::new());
        let orders = orders();
        let trial = &orders.plan.trials()[0];
        assert_eq!(orders.cluster.target(trial).unwrap().deployment, "wsl-wse-server");
        assert!(orders.cluster.job(trial).unwrap().job.ends_with("-100-abcdef12"));
    }

    #[test]
    fn mistakes_in_both_files_are_named_at_once() {
        let found = words(&PLAN.replace("tiers: [100]", "teirs: [100]"), &CLUSTER.replace("lease:", "leese:"));
        assert!(found.iter().any(|words| words.contains("did you mean `tiers`?")), "{found:?}");
        assert!(found.iter().any(|words| words.starts_with("cluster.yaml: ") && words.contains("leese")), "{found:?}");
    }

    #[test]
    fn a_tier_without_a_job_and_a_ladder_without_a_deployment_are_named() {
        let plan = PLAN.replace("tiers: [100]", "tiers: [100, 200]");
        let found = words(&plan, &CLUSTER.replace("variant: batch, deployment", "variant: dict, deployment"));
        assert_eq!(
            found,
            [
                "cluster.yaml: targets: no Deployment for wse-server in throughput/batch; is it enabled in the values?",
                "cluster.yaml: jobs: no Job for wse-server in throughput/batch, tier 200",
            ]
        );
    }

    #[test]
    fn a_search_is_refused_with_the_plan_the_ladder_and_the_way_out() {
        let search = "  search: {from: 1, to: 9, final_trial_seconds: 1, duration_sum_seconds: 1}\n";
        let objectives = "  objectives: [{figure: failed_share, at_most: 0}]\n";
        for tiers in ["  tiers: [100]\n", ""] {
            let plan = PLAN.replace("  tiers: [100]\n", tiers) + objectives + search;
            let found = words(&plan, CLUSTER);
            let ours =
                found.iter().find(|words| words.contains("ladders[0].search")).unwrap_or_else(|| panic!("{found:?}"));
            assert!(ours.contains("the search of throughput/batch in plan small can't be run in a cluster"), "{ours}");
            assert!(ours.ends_with("or search on one machine: ladder search small"), "{ours}");
        }
    }

    #[test]
    fn replicas_are_refused_with_the_way_out() {
        let plan = format!("workers: 2\n{PLAN}  replicas: 2\n");
        let found = words(&plan, CLUSTER);
        let ours =
            found.iter().find(|words| words.contains("ladders[0].replicas: 2 replicas of a service are started"));
        assert!(ours.is_some_and(|words| words.ends_with("or climb there: ladder run small")), "{found:?}");
    }

    const WITH_COMPANIONS: &str = "evidence: 9101 }, companions: [\
        { name: redis, deployment: wsl-redis, image: r, ports: { evidence: 9101 } }, \
        { name: publisher, deployment: wsl-publisher, image: p, ports: { metrics: 9100, evidence: 9101 } }] }";

    #[test]
    fn companions_are_known_by_their_deployments_in_the_order_of_their_start() {
        let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
        assert_eq!(words(PLAN, &text), Vec::<String>::new());
        let file: ClusterFile = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(file.deployments().collect::<Vec<_>>(), ["wsl-redis", "wsl-publisher", "wsl-wse-server"]);
        assert_eq!(file.targets[0].companions[0].ports.metrics, None);
    }

    #[test]
    fn a_companion_that_is_there_twice_or_named_like_a_path_is_refused() {
        let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
        let found = words(PLAN, &text.replace("name: publisher", "name: redis"));
        assert_eq!(found, ["cluster.yaml: targets[0].companions[1].name: there twice: redis"]);
        let found = words(PLAN, &text.replace("name: redis", "name: ../redis"));
        assert!(found[0].starts_with("cluster.yaml: targets[0].companions[0].name: not a name"), "{found:?}");
    }

    #[test]
    fn a_run_id_that_is_no_folder_name_and_a_foreign_schema_are_named_together() {
        let found = words(PLAN, &CLUSTER.replace("\"r1\"", "\"../r1\"").replace("schema: 1", "schema: 2"));
        assert!(found[0].starts_with("cluster.yaml: schema: 2 is not"), "{found:?}");
        assert!(found[1].starts_with("cluster.yaml: run_id: \"../r1\" is no run id"), "{found:?}");
    }
}
