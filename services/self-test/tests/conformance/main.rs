//! Runs `stt-conformance` against the gateway with each flaw: exactly the expected cases must fail.

use std::{collections::BTreeMap, net::SocketAddr};

use clap::ValueEnum;
use futures_util::{StreamExt, stream};
use self_test_service::gateway::Flaw;
use stt_bench::conformance::{
    case::{Case, Status},
    cases::CASES,
    gateway::Launch,
    inference::Inference,
    level::{Exceptions, Level},
    run::{Origin, ServiceResult, run},
    scope::Scope,
};

/// Gateways that are checked at once, in each of the rounds: a gateway mostly waits.
const CONCURRENCY: [usize; 3] = [4, 2, 1];

/// A flaw, and the cases that it fails.
type Row = (Flaw, &'static [&'static str]);

/// All flaws with the cases that they fail.
const FLAWS: &[Row] = &[
    (Flaw::None, &[]),
    (Flaw::Delay, &[]),
    (Flaw::SilentDrop, &["coverage", "batches", "at-rest"]),
    (Flaw::LostFrame, &["coverage", "contents", "batches"]),
    (
        Flaw::LostBatch,
        &["cadence", "coverage", "batches", "recovery", "skip-tick", "overflow", "slow-consumer", "drain"],
    ),
    (Flaw::RepeatedBatch, &["cadence", "coverage", "batches", "recovery", "skip-tick", "slow-consumer", "drain"]),
    (Flaw::SwappedFrames, &["contents", "batches"]),
    (
        Flaw::TwoInFlight,
        &["one-in-flight", "skip-tick", "metrics", "close-during-inference", "overflow", "bounded-memory"],
    ),
    // By chance others of those above fail too: each of them has few sessions.
    (Flaw::RacyTwoInFlight, &["one-in-flight"]),
    (Flaw::EagerFlush, &["skip-tick"]),
    (Flaw::DriftingTimer, &["schedule", "stall"]),
    (Flaw::ScheduleFromConnect, &["first-tick"]),
    (Flaw::AccumulatingLateness, &["stall"]),
    (
        Flaw::CloseCode,
        &[
            "invalid-start",
            "invalid-frame",
            "extra-key",
            "binary-first",
            "text-after-start",
            "oversized",
            "oversized-fragments",
            "unmasked",
            "reserved",
            "bad-control",
        ],
    ),
    (Flaw::ExtraKey, &["extra-key"]),
    (Flaw::Unmasked, &["unmasked"]),
    (Flaw::NoFragments, &["fragmentation", "oversized-fragments"]),
    (Flaw::NoPong, &["ping-before-start", "ping-after-start"]),
    (Flaw::DeafToClose, &["ready", "close", "close-during-inference"]),
    (Flaw::MissingKey, &["partial"]),
    (Flaw::SurplusKey, &["partial"]),
    (Flaw::WrongEcho, &["echo"]),
    (Flaw::MissingErrorKey, &["error-frame"]),
    (
        Flaw::SilentError,
        &[
            "error-frame",
            "recovery",
            "timeout",
            "http-5xx",
            "http-429",
            "http-4xx",
            "reset",
            "garbage",
            "unknown-field",
            "wrong-counts",
            "books",
            "metrics",
            "overflow",
        ],
    ),
    (Flaw::DeadAfterError, &["recovery", "books-under-load"]),
    (Flaw::EndlessWait, &["timeout"]),
    (Flaw::LenientParse, &["unknown-field"]),
    (Flaw::UnboundedBuffer, &["overflow", "bounded-memory"]),
    (Flaw::UnboundedOutbox, &["slow-consumer"]),
    (Flaw::Leak, &["close-during-inference", "at-rest"]),
    (Flaw::LyingBooks, &["books", "books-under-load", "at-rest"]),
    (Flaw::AbruptEnd, &["drain"]),
];

/// The flaw that affects only some sessions: which other cases fail is chance.
const NONDETERMINISTIC: Flaw = Flaw::RacyTwoInFlight;

async fn check(flaw: Flaw) -> ServiceResult {
    check_cases(flaw, Scope::default()).await
}

async fn check_cases(flaw: Flaw, scope: Scope) -> ServiceResult {
    // Each gateway has its own inference: sessions are numbered per process, and gateways must not wait for each other.
    let inference = Inference::start(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let launch = Launch {
        program: env!("CARGO_BIN_EXE_self-test-gateway").into(),
        arguments: vec!["--flaw".into(), flaw.name()],
        environment: Vec::new(),
    };
    run(&flaw.name(), &Origin::Started(launch), &inference, &scope).await.unwrap()
}

/// The differences between a result and the expected failures.
fn unexpected_results(result: &ServiceResult, expected: &[&str]) -> Vec<String> {
    let wrong = |status: Status, name: &str| match status {
        Status::Passed => expected.contains(&name),
        Status::Failed => !expected.contains(&name),
        Status::Skipped | Status::Excepted => true,
    };
    let unexpected = result.cases.iter().filter(|case| wrong(case.status, case.name));
    unexpected.map(|case| format!("{}: {} {:?} {:?}", result.service, case.name, case.status, case.evidence)).collect()
}

/// The rows of `table` whose results differ, with the differences.
async fn failed_rows(table: Vec<Row>, concurrency: usize) -> Vec<(Row, Vec<String>)> {
    let checked = table.into_iter().map(|row| async move { (row, unexpected_results(&check(row.0).await, row.1)) });
    let checked = stream::iter(checked).buffer_unordered(concurrency);
    checked.filter(|(_, unexpected)| std::future::ready(!unexpected.is_empty())).collect().await
}

/// On a busy machine a gateway without the flaw may be too late. So rows that differ are checked again, with fewer at
/// once; a wrong table or case differs each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_flaw_fails_its_cases_and_no_other() {
    let only = std::env::var("FLAW").unwrap_or_default();
    let is_selected = |row: &Row| row.0 != NONDETERMINISTIC && (only.is_empty() || row.0.name() == only);
    let mut remaining: Vec<Row> = FLAWS.iter().copied().filter(is_selected).collect();
    let mut unexpected = Vec::new();
    for concurrency in CONCURRENCY {
        let failed_rows = failed_rows(remaining, concurrency).await;
        (remaining, unexpected) = failed_rows.into_iter().unzip();
    }
    assert!(remaining.is_empty(), "\n{}", unexpected.concat().join("\n"));
}

/// One attempt of a session is enough to miss this race; the case makes forty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_in_one_of_three_sessions_is_found_each_time() {
    for _ in 0..3 {
        let scope = Scope { only: vec!["one-in-flight".into()], ..Scope::default() };
        let result = check_cases(Flaw::RacyTwoInFlight, scope).await;
        assert_eq!(result.failed(), ["one-in-flight"], "{:?}", result.cases);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excepted_case_is_not_a_failure_and_core_skips_it() {
    let exceptions = Exceptions::from([("unmasked".into(), "frames without a mask are accepted".into())]);
    let scope = |level| Scope { level, only: Vec::new(), exceptions: exceptions.clone() };
    let (strict, core) = (scope(Level::Strict), scope(Level::Core));
    let (excepted, needless) = (check_cases(Flaw::Unmasked, strict.clone()), check_cases(Flaw::ExtraKey, strict));
    let (excepted, needless) = futures_util::future::join(excepted, needless).await;
    let status = |result: &ServiceResult, name| result.cases.iter().find(|case| case.name == name).unwrap().status;
    assert_eq!(status(&excepted, "unmasked"), Status::Excepted);
    assert_eq!(status(&needless, "unmasked"), Status::Failed);
    let core = check_cases(Flaw::Unmasked, core).await;
    assert_eq!((core.cases.len(), core.count(Status::Excepted)), (CASES.len() - 8, 0));
}

#[test]
fn the_table_has_every_flaw_and_only_cases_that_exist() {
    let listed: Vec<_> = FLAWS.iter().map(|(flaw, _)| *flaw).collect();
    assert_eq!(listed, Flaw::value_variants());
    let found: Vec<_> = FLAWS.iter().flat_map(|(_, cases)| cases.iter().copied()).collect();
    for name in &found {
        assert!(CASES.iter().any(|case| case.name == *name), "no case {name}");
    }
}

/// A table of the docs: the first two columns of each row in a section.
fn table_of_docs(heading: &str) -> BTreeMap<String, String> {
    let docs = include_str!("../../../../docs/CONFORMANCE.md");
    let section = docs.split("\n## ").find(|section| section.starts_with(heading)).expect("the heading exists");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(first, second)| (first.into(), second.into())).collect()
}

#[test]
fn the_docs_list_every_case_with_what_it_proves() {
    let row = |case: &Case| (case.name.to_owned(), format!("{} | {}", case.level.word(), case.proves));
    let cases = CASES.iter().map(row);
    assert_eq!(table_of_docs("Cases"), cases.collect());
}

#[test]
fn the_docs_list_every_flaw_with_the_cases_that_it_fails() {
    let cases = |cases: &[&str]| cases.iter().map(|case| format!("`{case}`")).collect::<Vec<_>>().join(", ");
    let row = |(flaw, failed): &Row| {
        let meaning = flaw.to_possible_value().and_then(|value| Some(value.get_help()?.to_string())).unwrap();
        let failed = match (failed.is_empty(), *flaw == NONDETERMINISTIC) {
            (true, _) => "none".to_owned(),
            (false, true) => format!("{}; by chance others of `two-in-flight`", cases(failed)),
            (false, false) => cases(failed),
        };
        (flaw.name(), format!("{} | {failed}", meaning.trim_end_matches('.')))
    };
    assert_eq!(table_of_docs("Flaws"), FLAWS.iter().map(row).collect());
}
