//! Checks what a `run.json` asks for before its run is resumed. Pure.
//!
//! The file may come from another person. A plan is code, so this is not a sandbox: it refuses what no run writes
//! (trials of another plan), and variables by which a bundle would make the programs of this checkout load other code.

use std::collections::BTreeMap;

use bench_format::{
    comparison::Comparison,
    run::{Run, Search},
    trial::TrialId,
};

use crate::{
    pilot,
    plan::{Ladder, Plan, TrialFilter},
    registry::Registry,
};

/// Prefixes of variables that make a program load code: of the dynamic loader and of interpreters.
const LOADERS: [&str; 12] =
    ["LD_", "DYLD_", "PYTHON", "NODE_", "NPM_", "PERL", "RUBY", "ERL_", "ELIXIR_", "JAVA_", "DOTNET_", "BASH_FUNC_"];
/// Variables that do the same and have no prefix in common.
const LOADER_NAMES: [&str; 14] = [
    "PATH",
    "ENV",
    "BASH_ENV",
    "BASHOPTS",
    "SHELLOPTS",
    "IFS",
    "HOME",
    "CLASSPATH",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "OPENSSL_CONF",
];

/// Why a run is not resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// A trial is not one of the plan's.
    #[error("trials: {0} is not a trial of its plan, so another program wrote or changed the file; start a new run")]
    Trial(TrialId),
    /// A search is not one of the plan's.
    #[error("searches: {0} is not a search of its plan, so another program wrote or changed the file; start a new run")]
    Search(String),
    /// The comparison is not one of the plan's.
    #[error(
        "comparison: {0} are not the services and the tier of its plan, so another program wrote or changed the file; start \
         a new run"
    )]
    Comparison(String),
    /// A variable would make a program load code.
    #[error(
        "ladders {ladder}: {name} in its environment makes programs load other code, and the registry doesn't set it so; \
         start a new run from a plan that you trust"
    )]
    Loader {
        /// Workload and variant of the ladder.
        ladder: String,
        /// Name of the variable.
        name: String,
    },
}

/// Checks that a run's trials and searches are those of its plan, and its variables harmless.
///
/// # Errors
/// The first [`ResumeError`].
pub fn check(run: &Run, plan: &Plan, registry: &Registry) -> Result<(), ResumeError> {
    check_trials(run, plan)?;
    plan.ladders.iter().try_for_each(|ladder| check_environment(ladder, registry))
}

/// Checks that a run's trials and searches are those of its plan.
///
/// # Errors
/// [`ResumeError::Trial`] or [`ResumeError::Search`].
pub fn check_trials(run: &Run, plan: &Plan) -> Result<(), ResumeError> {
    let same = |a: &Search, b: &Search| (&a.service, &a.workload, &a.variant) == (&b.service, &b.workload, &b.variant);
    let searches = plan.searches(&TrialFilter::default());
    if let Some(other) = run.searches.iter().find(|search| !searches.iter().any(|known| same(known, search))) {
        let Search { service, workload, variant, .. } = other;
        return Err(ResumeError::Search(format!("{service}/{workload}/{variant}")));
    }
    if let Some(comparison) = run.comparison.as_ref().filter(|comparison| !is_of(comparison, plan)) {
        let Comparison { a, b, workload, variant, tier, .. } = comparison;
        let (a, b) = (&a.service, &b.service);
        return Err(ResumeError::Comparison(format!("{a} and {b} on {workload}/{variant}/{tier}")));
    }
    let trials = plan.trials();
    let of_search = |trial: &TrialId| {
        let key = (&trial.service, &trial.workload, &trial.variant);
        run.searches.iter().any(|search| key == (&search.service, &search.workload, &search.variant))
    };
    let other = run.trials.iter().find(|entry| match (&entry.search, &entry.pilot) {
        (Some(_), _) => !of_search(&entry.trial),
        (None, Some(pilot)) => !pilot::is_of(plan, &entry.trial, pilot),
        (None, None) => !trials.contains(&entry.trial),
    });
    other.map_or(Ok(()), |entry| Err(ResumeError::Trial(entry.trial.clone())))
}

/// Whether a comparison has the services and the tier of the plan, and nothing else is in it.
fn is_of(comparison: &Comparison, plan: &Plan) -> bool {
    let sides = [&comparison.a.service, &comparison.b.service];
    let ladder = plan.ladder(&comparison.workload, &comparison.variant);
    ladder.is_some_and(|ladder| ladder.services.iter().eq(sides) && ladder.tiers == [comparison.tier])
}

/// Refuses a loader's variable, unless the registry sets it to the same value for each program that gets it.
fn check_environment(ladder: &Ladder, registry: &Registry) -> Result<(), ResumeError> {
    let services = || ladder.services.iter().filter_map(|name| registry.services.get(name));
    let own: Vec<_> = services().map(|service| &service.env).collect();
    let behind: Vec<_> =
        services().filter_map(|service| registry.inference_of(service)).map(|(_, inference)| &inference.env).collect();
    let set_by = |all: &[&BTreeMap<String, String>], name: &str, value: &String| {
        !all.is_empty() && all.iter().all(|env| env.get(name) == Some(value))
    };
    for (env, all) in [(&ladder.service_env, &own), (&ladder.inference_env, &behind)] {
        if let Some((name, _)) = env.iter().find(|(name, value)| loads_code(name) && !set_by(all, name, value)) {
            let ladder = format!("{}/{}", ladder.workload, ladder.variant);
            return Err(ResumeError::Loader { ladder, name: name.clone() });
        }
    }
    Ok(())
}

fn loads_code(name: &str) -> bool {
    LOADERS.iter().any(|prefix| name.starts_with(prefix)) || LOADER_NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bench_format::{Name, run::TrialEntry};

    use super::*;
    use crate::plan::check::fixture::{self, machine_limits, minimal, registry};

    /// The check of the minimal plan's run, after a change of the plan's environment, the run and the registry.
    fn checked(env: &[(&str, &str)], change: impl FnOnce(&mut Run, &mut Registry)) -> Result<(), ResumeError> {
        let (mut wire, mut registry) = (minimal(), registry());
        wire.ladders[0].service_env = env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let plan = Plan::check(wire, Path::new("run.json"), &registry, &machine_limits()).unwrap();
        let trials = plan.trials().into_iter().map(TrialEntry::pending).collect();
        let mut run = Run { trials, ..fixture::run("r", plan.wire.clone()) };
        change(&mut run, &mut registry);
        check(&run, &plan, &registry)
    }

    #[test]
    fn a_run_resumes_with_the_trials_of_its_plan_only() {
        assert_eq!(checked(&[("DELIVERY", "batch")], |_, _| ()), Ok(()));
        let stray = checked(&[], |run, _| run.trials[0].trial.variant = Name::from_static("other"));
        assert!(matches!(stray, Err(ResumeError::Trial(trial)) if trial.variant == "other"));
        let search = Search {
            service: Name::from_static("ours"),
            workload: Name::from_static("throughput"),
            variant: Name::from_static("standard"),
            found: None,
        };
        let found = checked(&[], |run, _| run.searches.push(search));
        assert_eq!(found, Err(ResumeError::Search("ours/throughput/standard".into())));
    }

    #[test]
    fn a_resumed_plan_makes_no_program_load_other_code() {
        for name in ["LD_PRELOAD", "PYTHONPATH", "PATH", "NODE_OPTIONS", "ERL_FLAGS", "JAVA_TOOL_OPTIONS", "BASH_ENV"] {
            let found = checked(&[(name, "/tmp/x")], |_, _| ());
            assert!(matches!(found, Err(ResumeError::Loader { name: found, .. }) if found == name), "{name}");
        }
        let set = |value: &'static str| {
            move |_: &mut Run, registry: &mut Registry| {
                registry.services.get_mut("ours").unwrap().env.insert("PYTHONPATH".into(), value.into());
            }
        };
        assert_eq!(checked(&[("PYTHONPATH", "src")], set("src")), Ok(()));
        assert!(checked(&[("PYTHONPATH", "/tmp/x")], set("src")).is_err());
    }
}
