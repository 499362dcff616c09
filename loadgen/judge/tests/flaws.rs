//! Applies every flaw to a trial of every kind and checks that the same rule finds it, or none where it can't apply.

use bench_format::{
    histogram::Recorder,
    result::{Conformance, Reading, ReasonKind, Validity},
};
use judge::fixture::{Files, flood, open, publisher, sessions, with_replies};

/// A change that makes a trial invalid.
type Flaw = fn(&mut Files);
/// The reasons for an application's flood, an application at a rate, replies, a publisher and sessions.
type ExpectedReasons = [Option<ReasonKind>; 5];

fn families() -> [(&'static str, Files); 5] {
    [
        ("a flood into an application", flood()),
        ("an application at a rate", open()),
        ("replies of the service", with_replies()),
        ("a publisher's receivers", publisher()),
        ("sessions of a gateway", sessions()),
    ]
}

fn reasons(files: &Files) -> Vec<ReasonKind> {
    match files.judge().unwrap().result.validity {
        Validity::Valid => Vec::new(),
        Validity::Invalid { reasons } => reasons.into_iter().map(|reason| reason.kind).collect(),
    }
}

fn readings(files: &mut Files) -> impl Iterator<Item = &mut Reading> {
    let readings = &mut files.service.readings;
    let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
    all.into_iter().flatten()
}

fn last(files: &mut Files) -> &mut Reading {
    readings(files).last().expect("there is one after the drain")
}

/// Records a delay of one second for every message in the histogram by which the generator is judged.
fn late_generator(files: &mut Files) {
    let mut recorder = Recorder::new();
    recorder.record_n(1_000_000_000, 1000);
    files.uploads[0].histograms.insert(bench_format::Name::from_static("lateness_ns"), recorder.encode());
    // No more are due than the histogram holds.
    files.uploads[0].window.due = files.uploads[0].window.due.min(1000);
}

fn late_reading(files: &mut Files) {
    let end = files.service.readings.window_end.as_mut().expect("there is one");
    end.unix_ns += 3_000_000_000;
}

fn failed_check(files: &mut Files) {
    let check = Conformance { before: vec!["no answer".into()], ..Conformance::default() };
    files.uploads[0].conformance = Some(check);
}

#[test]
fn consistent_trials_of_every_family_are_valid() {
    for (family, files) in families() {
        assert_eq!(reasons(&files), [], "{family}");
    }
}

/// The flaws, each with its name and the reason that it is for each family.
fn flaws() -> Vec<(&'static str, Flaw, ExpectedReasons)> {
    use ReasonKind::{
        ClockStep, Conformance as Check, GeneratorCpu, GeneratorLate, Isolation, ReadingLate, SendRate,
        ServiceRestarted, StartSkew, Unaccounted, WindowShort, WorkersMissing,
    };
    let all = |kind| [Some(kind); 5];
    // A flood has no schedule to miss.
    let all_but_floods = |kind| [None, Some(kind), Some(kind), Some(kind), Some(kind)];
    vec![
        ("a message that nothing explains", |files| last(files).stats.messages.received += 1, all(Unaccounted)),
        (
            "an accepted connection that no worker has",
            |files| last(files).stats.connections.accepted += 1,
            all(Unaccounted),
        ),
        ("a worker without a result", |files| files.trial.workers = 2, all(WorkersMissing)),
        ("a start that is late", |files| files.uploads[0].evidence.start_skew_ns = 60_000_000, all(StartSkew)),
        ("a generator that is late", late_generator, all_but_floods(GeneratorLate)),
        (
            "a generator without CPU",
            |files| files.uploads[0].window.cpu_ns = 1_990_000_000,
            all_but_floods(GeneratorCpu),
        ),
        ("a schedule that was not sent", |files| files.uploads[0].window.due = 4000, all_but_floods(SendRate)),
        ("another process", |files| last(files).pid = Some(99), all(ServiceRestarted)),
        ("a clock that jumps", |files| files.uploads[0].evidence.clock_step_ns = 20_000_000, all(ClockStep)),
        ("a reading that is late", late_reading, all(ReadingLate)),
        ("a window without time", |files| files.uploads[0].window.duration_ns = 0, all(WindowShort)),
        ("a protocol check that failed", failed_check, all(Check)),
        ("a CPU that is shared", |files| files.trial.cpus.isolation = Some("shared".into()), all(Isolation)),
    ]
}

#[test]
fn a_flaw_is_the_same_reason_for_every_family() {
    for (name, flaw, expected_reasons) in flaws() {
        for ((family, mut files), expected) in families().into_iter().zip(expected_reasons) {
            flaw(&mut files);
            let reasons = reasons(&files);
            match expected {
                Some(kind) => assert!(reasons.contains(&kind), "{name}, {family}: {reasons:?}"),
                None => assert_eq!(reasons, [], "{name}, {family}"),
            }
        }
    }
}
