//! The plan and the cluster file, read together; all mistakes in both are reported at once.

use std::{env, fs, path::Path};

use bench_format::plan::{WireLadder, WirePlan};
use operator::{
    plan::{self, Mistake, Mistakes, Plan, check::MachineLimits},
    registry::Registry,
    websocket::{self, MissingVariable},
};

use super::{ClusterFile, DescribedTarget};

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
        let target = cluster.as_ref().ok().and_then(|cluster| cluster.described_target.as_ref());
        let wire = read_plan(plan_path, target);
        match (cluster, wire) {
            (Ok(cluster), Ok(wire)) => {
                let wire = match &cluster.described_target {
                    Some(target) => against_target(target, wire, plan_path)?,
                    None => wire,
                };
                Self::check(wire, plan_path, cluster, cluster_path)
            }
            (cluster, wire) => {
                let (cluster, wire) = (cluster.err().map(|m| m.0), wire.err().map(|m| m.0));
                Err(Mistakes(wire.into_iter().chain(cluster).flatten().collect()))
            }
        }
    }

    /// Checks a plan against the cluster file. For a resumed run it is the plan that the run began with. A service that the
    /// plan describes is already described as it is found in the cluster.
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
        found.extend(tiers_beside_a_search(&wire, plan_path));
        found.extend(without_target(&wire, &cluster, plan_path));
        found.extend(unusable_hosts(&wire, &cluster, plan_path));
        let registry = cluster.registry(&wire);
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

/// Reads the plan. A preset that is a file is one of the user's files in the cluster.
fn read_plan(path: &Path, target: Option<&DescribedTarget>) -> Result<WirePlan, Mistakes> {
    let Some(target) = target else { return plan::read::read(path) };
    let mistake =
        |place: &str, message: String| Mistakes(vec![Mistake { file: path.into(), place: place.into(), message }]);
    let text = fs::read_to_string(path).map_err(|error| mistake("", format!("failed to read the plan: {error}")))?;
    let mut wire = plan::read::parse(&text, path)?;
    if let Some(section) = &mut wire.websocket {
        let wrong = |message| mistake("websocket.extends", message);
        if let Some(name) = section.extends.as_mut().filter(|name| name.contains('/')) {
            *name = target.file(name).map_err(wrong)?;
        }
        // The path of a file is absolute by now.
        websocket::extend(section, Path::new("/")).map_err(wrong)?;
    }
    Ok(wire)
}

/// The plan as it is climbed against the target; what changes is logged.
fn against_target(target: &DescribedTarget, wire: WirePlan, path: &Path) -> Result<WirePlan, Mistakes> {
    let mistake = |(place, message)| Mistake { file: path.into(), place, message };
    let (wire, notes) = target.applied(wire).map_err(|found| Mistakes(found.into_iter().map(mistake).collect()))?;
    notes.iter().for_each(|note| eprintln!("{}: {note}", path.display()));
    Ok(wire)
}

/// Rejects services that only the plan describes, if the chart's values don't say where they are.
fn without_target(wire: &WirePlan, cluster: &ClusterFile, path: &Path) -> Option<Mistake> {
    if wire.websocket.is_none() || cluster.described_target.is_some() {
        return None;
    }
    let message = format!(
        "plan {} describes a service itself, and nothing says where it is: set target.url, or target.service.name and \
         target.service.port, in the chart's values",
        wire.name
    );
    Some(Mistake { file: path.into(), place: "websocket".into(), message })
}

/// Rejects load on public hosts that the chart's values don't allow by name, and says where a variable that is missing has
/// to be.
fn unusable_hosts(wire: &WirePlan, cluster: &ClusterFile, path: &Path) -> Option<Mistake> {
    let (section, target) = (wire.websocket.as_ref()?, cluster.described_target.as_ref()?);
    let mistake = |place: String, message| Some(Mistake { file: path.into(), place, message });
    match websocket::filled(section, |name| env::var(name).ok()) {
        Ok(section) => mistake("websocket.services".into(), target.check_hosts(&section).err()?),
        Err(MissingVariable { place, name }) => {
            let message = format!("{name} is a key of the Secret that target.envSecret names; it isn't there");
            mistake(format!("websocket.{place}"), message)
        }
    }
}

/// Rejects tiers in a plan with a search. On one machine the command says which of the two is meant.
fn tiers_beside_a_search(wire: &WirePlan, path: &Path) -> Vec<Mistake> {
    if wire.ladders.iter().all(|ladder| ladder.search.is_none()) {
        return Vec::new();
    }
    let with_tiers = wire.ladders.iter().enumerate().filter(|(_, ladder)| !ladder.tiers.is_empty());
    let mistake = |(index, ladder): (usize, &WireLadder)| {
        let message = format!(
            "plan {} has a search, so its run searches and climbs no tiers; give the tiers of {}/{} a plan and a run.id \
             of their own",
            wire.name, ladder.workload, ladder.variant
        );
        Mistake { file: path.into(), place: format!("ladders[{index}].tiers"), message }
    };
    with_tiers.map(mistake).collect()
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
