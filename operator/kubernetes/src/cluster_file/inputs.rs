//! The plan and the cluster file, read together; all mistakes in both are reported at once.

use std::{fs, path::Path};

use bench_format::plan::{WireLadder, WirePlan};
use operator::{
    plan::{self, Mistake, Mistakes, Plan, check::MachineLimits},
    registry::Registry,
};

use super::ClusterFile;

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
        found.extend(tiers_beside_a_search(&wire, plan_path));
        found.extend(described(&wire, plan_path));
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

/// Rejects services that only the plan describes: the chart has no pods for them.
fn described(wire: &WirePlan, path: &Path) -> Option<Mistake> {
    wire.websocket.as_ref()?;
    let message = format!(
        "plan {0} describes services itself, which can't be climbed in a cluster yet; climb it on one machine: ladder run {0}",
        wire.name
    );
    Some(Mistake { file: path.into(), place: "websocket".into(), message })
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
