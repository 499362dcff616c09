//! Checks of the cluster file: by itself, and against the plan.

use std::path::Path;

use bench_format::{Name, run::Search, trial::TrialId};
use operator::plan::{Mistake, Plan, TrialFilter};

use super::{ClusterFile, Isolation, SCHEMA, Target};

impl ClusterFile {
    /// The mistakes of the file that need no plan to be found.
    pub(super) fn mistakes(&self, path: &Path) -> Vec<Mistake> {
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
        for (place, message) in self.described_target.iter().flat_map(|target| target.mistakes()) {
            wrong(place, message);
        }
        if let Some(message) = self.unknown_isolation() {
            wrong("isolation", message);
        }
        for (index, target) in self.targets.iter().enumerate() {
            if let Err(description) = check_replicas(target) {
                wrong(&format!("targets[{index}].replicas"), description);
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

    /// Why the isolation that is required can't be judged; `None` if it can.
    fn unknown_isolation(&self) -> Option<String> {
        let target = self.described_target.as_ref()?;
        match self.isolation {
            Isolation::Cpuset => {
                Some("the CPUs of a service that the release doesn't start are not known; give none or node".into())
            }
            Isolation::Node if target.pods.is_none() => Some(
                "without its pods, the node of the service is not known; set target.pods.labels, or give none".into(),
            ),
            Isolation::Node | Isolation::None => None,
        }
    }

    /// The Deployments and Jobs that the plan needs and the chart didn't create.
    pub(super) fn missing_for(&self, plan: &Plan, path: &Path) -> Vec<Mistake> {
        let mut found: Vec<Mistake> = Vec::new();
        let mut wrong = |place: &str, message: String| {
            let mistake = Mistake { file: path.into(), place: place.into(), message };
            if !found.contains(&mistake) {
                found.push(mistake);
            }
        };
        let tiers = plan.trials().into_iter().map(|trial| (format!("tier {}", trial.tier), trial));
        let searched = searched(plan).into_iter().map(|trial| ("the search".to_owned(), trial));
        let is_described = self.described_target.is_some();
        for (load, trial) in tiers.chain(searched) {
            let TrialId { service, workload, variant, .. } = &trial;
            if !is_described && self.target(&trial).is_none() {
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
            let planned = plan.ladder_of(&trial).map_or(1, |ladder| ladder.replicas);
            if let Some(made) =
                self.target(&trial).map(|target| target.replicas).filter(|made| u32::try_from(*made) != Ok(planned))
            {
                let message = format!(
                    "{service} in {workload}/{variant} has {made} replicas, but the plan has {planned}; chart and image \
                     must have the same version"
                );
                wrong("targets", message);
            }
            if self.job(&trial).is_none() {
                wrong("jobs", format!("no Job for {service} in {workload}/{variant}, {load}"));
            }
        }
        found
    }
}

/// A trial of each search of the plan, at the smallest load.
fn searched(plan: &Plan) -> Vec<TrialId> {
    let first = |Search { service, workload, variant, .. }| {
        let tier = plan.ladder(&workload, &variant)?.search.as_ref()?.from;
        Some(TrialId { service, workload, variant, tier, process: 1, repeat: 1 })
    };
    plan.searches(&TrialFilter::default()).into_iter().filter_map(first).collect()
}

/// Checks the number of a service's pods. Companions find the service by one address, so they have one pod of it.
fn check_replicas(target: &Target) -> Result<(), String> {
    let replicas = target.replicas;
    if replicas < 1 {
        return Err(format!("{replicas} pods; a trial needs at least 1"));
    }
    if replicas > 1 && !target.companions.is_empty() {
        return Err(format!(
            "{replicas} pods of a service with companions, which know one; give the ladder replicas: 1"
        ));
    }
    Ok(())
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
