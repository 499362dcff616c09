//! Checks the core of a service's contract before its first trial and after its last one in `ladder run`. The figures
//! of a service that breaks its protocol are not usable.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context;
use bench_format::{
    Name, SCHEMA,
    comparison::ComparisonEnd,
    contract::{CaseStatus, ContractCase, ContractCheck, ContractFile, ContractOutcome},
    run::{Run, TrialState},
};
use driver::clock;
use serde::Deserialize;

use crate::{
    contract::{self, Level, SELF_TEST},
    pilot,
    registry::{Registry, Service},
    step,
    store::{Store, read_contract, renew_list},
};

/// Whether `ladder run` checks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoreCheck {
    /// Checked before the first trial of a service and after its last one.
    BeforeAndAfter,
    /// Not checked, because the user passed [`SKIP_FLAG`].
    Skipped,
    /// Not checked, because the run is a search or has pilots. Services are checked separately from these.
    Never,
}

/// The flag that turns the check off.
pub(super) const SKIP_FLAG: &str = "--no-conformance";

/// Checks each service that has open trials and has not been checked yet. Marks the open trials of a service that does
/// not pass as failed.
pub(super) fn before(check: CoreCheck, registry: &Registry, store: &Store, run: &mut Run) -> anyhow::Result<()> {
    if check == CoreCheck::Never || !run.searches.is_empty() || pilot::has_pilots(run) {
        return Ok(());
    }
    if run.outside.is_some() {
        eprintln!(
            "the contract is not checked: ladder did not start the service; stt-conformance --service checks a running service"
        );
        return Ok(());
    }
    for (name, program) in services(registry, run) {
        if read_contract(store.folder(), &name)?.is_some_and(|file| file.before.is_some() || file.left_out.is_some()) {
            continue;
        }
        let mut file = ContractFile {
            schema: SCHEMA,
            service: name.clone(),
            program: program.clone(),
            level: Level::Core.to_string(),
            exceptions: registry.services[&name].exceptions.clone(),
            left_out: (check == CoreCheck::Skipped).then(|| SKIP_FLAG.into()),
            before: None,
            after: None,
        };
        if check == CoreCheck::BeforeAndAfter {
            let path = contract::find(&program)
                .with_context(|| format!("{name} can't be checked ({SKIP_FLAG} leaves it out)"))?;
            let checked = run_program(&path, registry, &name, store.folder())?;
            print_outcome(&name, "before its first trial", &checked);
            fail_open_trials(run, &name, &checked);
            end_comparison(run, &name, &checked);
            file.before = Some(checked);
        }
        store.save_contract(&file)?;
    }
    Ok(store.save_run(run)?)
}

/// Checks each measured service again and returns the names of those that break their contract now.
pub(super) fn after(registry: &Registry, bundle: &Path, run: &Run) -> anyhow::Result<Vec<String>> {
    let (store, _) = Store::open_folder(bundle.to_path_buf())?;
    let mut broken = Vec::new();
    let mut names: Vec<&Name> = run.trials.iter().map(|entry| &entry.trial.service).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let Some(mut file) = read_contract(store.folder(), name)? else { continue };
        if file.before.as_ref().is_none_or(|before| before.outcome != ContractOutcome::Passed) {
            continue;
        }
        let checked = match file.after.take() {
            Some(checked) => checked,
            None => run_program(&contract::find(&file.program)?, registry, name, store.folder())?,
        };
        print_outcome(name, "after its last trial", &checked);
        if checked.outcome != ContractOutcome::Passed {
            broken.push(name.to_string());
        }
        file.after = Some(checked);
        store.save_contract(&file)?;
        // The run has ended, and its list has the file as it was before.
        renew_list(store.folder(), &[format!("conformance/{name}.json")])?;
    }
    Ok(broken)
}

/// The services that have open trials and whose protocol has a conformance program, each once, with that program.
fn services(registry: &Registry, run: &Run) -> Vec<(Name, String)> {
    let mut services: Vec<(Name, String)> = Vec::new();
    let open = run.trials.iter().filter(|entry| step::is_open(&entry.state)).map(|entry| &entry.trial.service);
    // A comparison adds its trials as it goes.
    let compared = run.comparison.iter().filter(|comparison| comparison.progress.end.is_none());
    let sides = compared.flat_map(|comparison| [&comparison.a.service, &comparison.b.service]);
    for name in open.chain(sides) {
        let known = services.iter().any(|(known, _)| known == name) || name.starts_with(SELF_TEST);
        let of = |service: &Service| registry.protocol_of(service).conformance.clone();
        if let (false, Some(program)) = (known, registry.services.get(name).and_then(of)) {
            services.push((name.clone(), program));
        }
    }
    services
}

/// Marks the open trials of a service that did not pass the check as failed, so that they are not measured.
fn fail_open_trials(run: &mut Run, name: &str, checked: &ContractCheck) {
    if checked.outcome == ContractOutcome::Passed {
        return;
    }
    let reason = format!("not tried: {}", description(checked));
    for entry in run.trials.iter_mut().filter(|entry| entry.trial.service == name && step::is_open(&entry.state)) {
        entry.state = TrialState::Failed { reason: reason.clone() };
    }
}

/// Ends the comparison of a side that did not pass the check before it was measured.
fn end_comparison(run: &mut Run, name: &str, checked: &ContractCheck) {
    if let Some(comparison) = &mut run.comparison
        && checked.outcome != ContractOutcome::Passed
    {
        let reason = format!("{name} was not measured: {}", description(checked));
        comparison.progress.end = Some(ComparisonEnd::NotComparable { reason });
    }
}

fn print_outcome(name: &str, when: &str, checked: &ContractCheck) {
    eprintln!("{name}: {when}, {}", description(checked));
    for ContractCase { name, expected, seen, .. } in checked.failed() {
        let message = |text: &Option<String>| text.clone().unwrap_or_default();
        eprintln!("  {name}: expected: {}; observed: {}", message(expected), message(seen));
    }
}

fn description(checked: &ContractCheck) -> String {
    let failed: Vec<&str> = checked.failed().map(|case| case.name.as_str()).collect();
    match checked.outcome {
        ContractOutcome::Passed => {
            let passed = checked.cases.iter().filter(|case| case.status == CaseStatus::Passed).count();
            format!("it meets the core of its contract ({passed} passed)")
        }
        ContractOutcome::Failed => format!("it breaks the core of its contract ({})", failed.join(", ")),
        ContractOutcome::NotChecked => {
            format!(
                "the core of its contract could not be checked: {}",
                checked.problem.as_deref().unwrap_or("no reason")
            )
        }
    }
}

/// The part of the program's JSON output that the bundle keeps.
#[derive(Deserialize)]
struct Report {
    services: Vec<ServiceReport>,
}

#[derive(Deserialize)]
struct ServiceReport {
    cases: Vec<CaseReport>,
}

#[derive(Deserialize)]
struct CaseReport {
    name: String,
    status: CaseStatus,
    reason: Option<String>,
    evidence: Option<Evidence>,
}

#[derive(Deserialize)]
struct Evidence {
    expected: String,
    seen: String,
}

impl From<CaseReport> for ContractCase {
    fn from(case: CaseReport) -> Self {
        let CaseReport { name, status, reason, evidence } = case;
        let (expected, seen) = evidence.map(|evidence| (evidence.expected, evidence.seen)).unzip();
        Self { name, status, expected, seen, reason }
    }
}

/// Runs the conformance program on a service. The program starts the service itself.
fn run_program(path: &Path, registry: &Registry, name: &str, bundle: &Path) -> anyhow::Result<ContractCheck> {
    let at = clock::rfc3339(clock::unix_ns());
    let results_path: PathBuf = bundle.join(".conformance.json");
    let results = ["--json".to_owned(), results_path.display().to_string()];
    let mut command = contract::command(path, registry, (name, &registry.services[name]), Level::Core, &results);
    let ended = command.stdin(Stdio::null()).output().with_context(|| format!("failed to run {}", path.display()))?;
    let read = fs::read(&results_path)
        .context("it left no results")
        .and_then(|text| Ok(serde_json::from_slice::<Report>(&text)?));
    let _ = fs::remove_file(&results_path);
    let cases =
        |report: Report| report.services.into_iter().flat_map(|service| service.cases).map(Into::into).collect();
    Ok(match (ended.status.code(), read) {
        (Some(0), Ok(report)) => {
            ContractCheck { at, outcome: ContractOutcome::Passed, problem: None, cases: cases(report) }
        }
        (Some(1), Ok(report)) => {
            ContractCheck { at, outcome: ContractOutcome::Failed, problem: None, cases: cases(report) }
        }
        (_, read) => {
            let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
            let why =
                read.err().filter(|_| message.is_empty()).map(|error| format!(" ({error:#})")).unwrap_or_default();
            let problem = if message.is_empty() { format!("it ended with {}{why}", ended.status) } else { message };
            ContractCheck { at, outcome: ContractOutcome::NotChecked, problem: Some(problem), cases: Vec::new() }
        }
    })
}

#[cfg(test)]
mod tests {
    use driver::fixture::write_program;
    use tempfile::TempDir;

    use super::*;
    use crate::plan::check::fixture;

    /// A stub conformance program that writes `results` and ends with exit code `code`.
    fn program(folder: &TempDir, results: &str, code: i32) -> PathBuf {
        let path = folder.path().join("program");
        // The fourth argument is the path of the results file.
        let text =
            format!("#!/bin/sh\n[ -z '{results}' ] || echo '{results}' > \"$4\"\necho no gateway >&2\nexit {code}\n");
        write_program(&path, &text);
        path
    }

    fn checked(results: &str, code: i32) -> ContractCheck {
        let folder = tempfile::tempdir().unwrap();
        let program = program(&folder, results, code);
        let checked = run_program(&program, &fixture::registry(), "ours", folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the program is left");
        checked
    }

    fn results(status: &str) -> String {
        format!(
            r#"{{"schema":2,"services":[{{"service":"ours","level":"core","cases":[
            {{"name":"batches","status":"{status}","evidence":{{"expected":"all","seen":"some"}},"seconds":1}}]}}]}}"#
        )
    }

    #[test]
    fn the_findings_of_the_program_are_stored_case_by_case() {
        let passed = checked(&results("passed"), 0);
        assert_eq!((passed.outcome, passed.cases[0].status), (ContractOutcome::Passed, CaseStatus::Passed));
        assert_eq!(description(&passed), "it meets the core of its contract (1 passed)");
        let failed = checked(&results("failed"), 1);
        assert_eq!((failed.outcome, failed.cases[0].seen.as_deref()), (ContractOutcome::Failed, Some("some")));
        assert_eq!(description(&failed), "it breaks the core of its contract (batches)");
    }

    #[test]
    fn a_program_that_checks_nothing_is_reported_with_its_reason() {
        let none = checked("", 2);
        assert_eq!((none.outcome, none.problem.as_deref()), (ContractOutcome::NotChecked, Some("no gateway")));
        // Success without results counts as not checked, too.
        assert_eq!(checked("", 0).outcome, ContractOutcome::NotChecked);
    }
}
