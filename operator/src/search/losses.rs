//! Converts objectives into the goals of a search, and finished trials into losses. Pure.
//!
//! "p95 of a histogram is at most T" allows 5 % loss, where a message counts as lost if it failed or took longer than
//! T. A share is already a loss ratio. Any other objective is all or nothing: the loss is 0 if it holds and 1 if it
//! doesn't.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    histogram::{Histogram, Recorder},
    plan::{Figure, Objective, Thresholds, WireSearch},
    result::{BoundBy, ConnectionCounts, ReasonKind, TrialResult, Validity},
    run::CrashCause,
};

use judge::verdict;

use super::{
    Fault, Goal, Outcome,
    gates::{Missed, late_share},
    rounds::TrialOutcome,
};

/// Number of targets with shorter trials before a goal's own; the value of MLRsearch.
const PRECEDING_TARGETS: u32 = 2;
/// Factor by which an interval grows while one bound is missing; the value of MLRsearch.
const EXPANSION: usize = 2;
/// Upper limit of a loss ratio: a goal of 1 could not be missed.
const LARGEST_RATIO: f64 = 0.999_999;

/// The goals of a search for a ladder's objectives, one for each.
pub fn goals(search: &WireSearch, objectives: &[Objective]) -> Vec<Goal> {
    let goal = |objective: &Objective| Goal {
        loss_ratio: loss_ratio(objective).clamp(0.0, LARGEST_RATIO),
        exceed_ratio: search.exceed_ratio,
        width: search.width,
        initial_trial_seconds: search.initial_trial_seconds.unwrap_or(search.final_trial_seconds),
        final_trial_seconds: search.final_trial_seconds,
        duration_sum_seconds: search.duration_sum_seconds,
        preceding_targets: PRECEDING_TARGETS,
        expansion: EXPANSION,
    };
    objectives.iter().map(goal).collect()
}

/// The share of loss that an objective allows.
fn loss_ratio(objective: &Objective) -> f64 {
    match (&objective.figure, objective.at_most, objective.at_least) {
        (Figure::PercentileMs { percentile, .. }, Some(_), None) => (100.0 - percentile) / 100.0,
        (Figure::FailedShare | Figure::ErrorShare, Some(share), None) => share,
        _ => 0.0,
    }
}

/// The facts about a finished trial that a search needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSummary {
    /// Loss ratios for the search of the bounds.
    pub outcome: Outcome,
    /// Outcome for the rounds and tests.
    pub full: TrialOutcome,
    /// The objectives that the trial missed.
    pub missed: Vec<Missed>,
    /// The party that limited the trial, if known.
    pub bound_by: Option<BoundBy>,
    /// How the service ended under the trial's load; absent if it did not, and in older bundles.
    pub crash: Option<CrashCause>,
}

impl TrialSummary {
    /// The summary of a trial with a result.
    pub fn of(result: &TrialResult, objectives: &[Objective], thresholds: &Thresholds) -> Self {
        let starved = starved(result, thresholds);
        // A loss ratio needs fewer samples than a percentile: short trials are added up, and only trials of rounds and
        // tests need a verdict.
        let short =
            has_only_reasons(&result.validity, &[ReasonKind::WindowShort]) && result.figures.window_seconds > 0.0;
        // No further sample of one objective makes up for another that was missed.
        let missed_without = short && objectives.iter().any(|objective| misses_by_count(objective, result));
        let fault = fault(&result.validity).filter(|_| starved.is_none() && !missed_without);
        let verdict =
            result.verdict.clone().or_else(|| verdict::verdict(objectives, &result.figures, &decoded(result), None));
        let judged = verdict.iter().flat_map(|verdict| &verdict.objectives);
        let missed = judged
            .filter(|judged| !judged.passed)
            .map(|judged| Missed::at_unknown_time(&judged.objective, judged.seen.is_some()));
        let passed = verdict.as_ref().is_some_and(|verdict| verdict.passed) && starved.is_none();
        Self {
            outcome: match (fault.filter(|_| !short), starved) {
                (Some(fault), _) => Outcome::Invalid(fault),
                (None, Some(Starved::Mute)) => Outcome::Measured(vec![1.0; objectives.len()]),
                (None, _) => Outcome::Measured(objectives.iter().map(|objective| loss(objective, result)).collect()),
            },
            full: match (fault, passed) {
                (Some(fault), _) => TrialOutcome::Invalid(fault),
                (None, true) => TrialOutcome::Passed,
                (None, false) => TrialOutcome::Failed,
            },
            missed: missed.collect(),
            bound_by: result.bound_by.or(starved.map(|_| BoundBy::Service)),
            crash: None,
        }
    }

    /// The summary of a trial during which the service ended: everything counts as lost.
    pub fn service_ended(objectives: &[Objective]) -> Self {
        Self {
            outcome: Outcome::Measured(vec![1.0; objectives.len()]),
            full: TrialOutcome::Failed,
            missed: objectives.iter().map(|objective| Missed::at_unknown_time(objective, false)).collect(),
            bound_by: None,
            crash: None,
        }
    }

    /// The summary of a trial without a result.
    pub fn not_measured() -> Self {
        let (outcome, full) = (Outcome::Invalid(Fault::Other), TrialOutcome::Invalid(Fault::Other));
        Self { outcome, full, missed: Vec::new(), bound_by: None, crash: None }
    }
}

/// Whether a trial is invalid, for no other reasons than these.
fn has_only_reasons(validity: &Validity, kinds: &[ReasonKind]) -> bool {
    matches!(validity, Validity::Invalid { reasons } if reasons.iter().all(|reason| kinds.contains(&reason.kind)))
}

/// How a service that has used up its CPU, or reads nothing more, made its own trial invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starved {
    /// It reads no more from its sockets, while the generator has CPU to spare. Such a trial has no usable latencies, but
    /// the unsent messages count as lost.
    Deaf,
    /// It answers a request for its counters or a protocol check too late, or was cut off with messages that it had not
    /// read. Everything counts as lost, because what was counted in between is not known.
    Mute,
}

/// Whether the service, and nothing else, made a trial invalid: it has used up its CPU, or it read so little that the
/// generator gave up connections. Most of the load may then have ended before the window, in which it has CPU to spare.
fn starved(result: &TrialResult, thresholds: &Thresholds) -> Option<Starved> {
    use ReasonKind::{Conformance, GeneratorLate, ReadingLate, SendRate, Unaccounted, WindowShort};
    let Validity::Invalid { reasons } = &result.validity else { return None };
    let used_up = result.figures.service_cpu_share.is_some_and(|share| share >= thresholds.bound_share);
    let unread = result.connections.closed_early.contains_key(ConnectionCounts::UNREAD);
    let has = |kinds: &[ReasonKind]| reasons.iter().any(|reason| kinds.contains(&reason.kind));
    let deaf = [SendRate, GeneratorLate, WindowShort];
    let mute = [Conformance, ReadingLate, Unaccounted];
    if !(used_up || unread) || !has_only_reasons(&result.validity, &[deaf, mute].concat()) {
        None
    } else if has(&mute) {
        Some(Starved::Mute)
    } else {
        has(&[SendRate]).then_some(Starved::Deaf)
    }
}

/// Whether a trial misses an objective that no percentile is needed for. A budget of errors is none: in a window that is
/// too short, a single error is above most of them.
fn misses_by_count(objective: &Objective, result: &TrialResult) -> bool {
    objective.figure != Figure::ErrorShare && verdict::met(objective, &result.figures) == Some(false)
}

fn decoded(result: &TrialResult) -> BTreeMap<Name, Recorder> {
    let decode = |(name, histogram): (&Name, &Histogram)| Some((name.clone(), Recorder::decode(histogram).ok()?));
    result.histograms.iter().filter_map(decode).collect()
}

/// The cause of an invalid trial; `None` for a valid one.
fn fault(validity: &Validity) -> Option<Fault> {
    let Validity::Invalid { reasons } = validity else { return None };
    let any = |of: fn(ReasonKind) -> bool| reasons.iter().any(|reason| of(reason.kind));
    // On a machine that others use, the generator is late at loads that it can offer.
    Some(if any(|kind| kind == ReasonKind::MachineBusy) {
        Fault::Machine
    } else if any(ReasonKind::is_ours) {
        Fault::Generator
    } else {
        Fault::Other
    })
}

/// The share of a valid trial that counts as lost for an objective.
fn loss(objective: &Objective, result: &TrialResult) -> f64 {
    let figures = &result.figures;
    let lost = match (&objective.figure, objective.at_most, objective.at_least) {
        (Figure::PercentileMs { histogram, .. }, Some(most_ms), None) => {
            let failed = figures.failed_share.unwrap_or(0.0);
            let recorder = result.histograms.get(&*format!("{histogram}_ns")).and_then(|h| Recorder::decode(h).ok());
            let late = recorder.and_then(|recorder| late_share(&recorder, most_ms)).unwrap_or(1.0);
            failed + (1.0 - failed) * late
        }
        (Figure::FailedShare, Some(_), None) => figures.failed_share.unwrap_or(1.0),
        (Figure::ErrorShare, Some(_), None) => figures.error_share.unwrap_or(1.0),
        // A figure that could not be computed is no better than one that misses.
        _ => f64::from(u8::from(verdict::met(objective, figures) != Some(true))),
    };
    lost.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use bench_format::result::{Judged, Reason, Verdict};
    use judge::fixture::open;

    use super::*;

    fn percentile(percentile: f64, at_most: f64) -> Objective {
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile };
        Objective { figure, at_most: Some(at_most), at_least: None }
    }

    fn objective(figure: Figure, at_most: Option<f64>, at_least: Option<f64>) -> Objective {
        Objective { figure, at_most, at_least }
    }

    /// A valid trial with 90 responses of 100 ms and 10 of 400 ms.
    fn result() -> TrialResult {
        let mut result = open().judge().unwrap().result;
        let mut recorder = Recorder::new();
        (0..100).for_each(|number| recorder.record(if number < 90 { 100_000_000 } else { 400_000_000 }));
        result.histograms.insert(Name::from_static("response_ns"), recorder.encode());
        result.figures.failed_share = Some(0.0);
        result
    }

    fn losses(result: &TrialResult, objective: Objective) -> f64 {
        let Outcome::Measured(losses) = TrialSummary::of(result, &[objective], &Thresholds::default()).outcome else {
            panic!("invalid")
        };
        losses[0]
    }

    #[test]
    fn a_percentile_allows_the_rest_to_be_late() {
        assert_eq!([50.0, 95.0, 100.0].map(|p| loss_ratio(&percentile(p, 1.0))), [0.5, 0.05, 0.0]);
        assert_eq!(loss_ratio(&objective(Figure::ErrorShare, Some(1e-5), None)), 1e-5);
        assert_eq!(loss_ratio(&objective(Figure::DeliveredPerSecond, None, Some(9.0))), 0.0);
    }

    #[test]
    fn failed_and_late_requests_are_lost() {
        let mut result = result();
        let late = losses(&result, percentile(50.0, 200.0));
        assert!((late - 0.1).abs() < 1e-9, "{late}");
        result.figures.failed_share = Some(0.5);
        let both = losses(&result, percentile(50.0, 200.0));
        assert!((both - 0.55).abs() < 1e-9, "{both}");
        result.histograms.clear();
        assert_eq!(losses(&result, percentile(50.0, 200.0)), 1.0);
    }

    #[test]
    fn a_share_is_the_loss_itself_and_a_ceiling_is_met_or_missed() {
        let mut result = result();
        result.figures.failed_share = Some(0.25);
        assert_eq!(losses(&result, objective(Figure::FailedShare, Some(0.1), None)), 0.25);
        let ceiling = objective(Figure::ServiceBytesPerConnection, Some(10.0), None);
        result.figures.service_bytes_per_connection = Some(30.0);
        let judged = Judged { objective: ceiling.clone(), seen: Some(30.0), passed: false, budget: None };
        result.verdict = Some(Verdict { passed: false, objectives: vec![judged] });
        assert_eq!(losses(&result, ceiling.clone()), 1.0);
        assert_eq!(
            TrialSummary::of(&result, std::slice::from_ref(&ceiling), &Thresholds::default()).missed,
            [Missed::at_unknown_time(&ceiling, true)]
        );
    }

    #[test]
    fn a_window_too_short_for_a_percentile_still_has_a_loss_ratio() {
        let mut result = result();
        let reasons = |kind| vec![Reason { kind, detail: String::new() }];
        result.validity = Validity::Invalid { reasons: reasons(ReasonKind::WindowShort) };
        result.verdict = None;
        let late = losses(&result, percentile(50.0, 200.0));
        assert!((late - 0.1).abs() < 1e-9, "{late}");
        assert_eq!(
            TrialSummary::of(&result, &[], &Thresholds::default()).full,
            TrialOutcome::Invalid(Fault::Other),
            "it is not a trial of a round"
        );
        result.figures.window_seconds = 0.0;
        assert_eq!(
            TrialSummary::of(&result, &[], &Thresholds::default()).outcome,
            Outcome::Invalid(Fault::Other),
            "no window, no share"
        );
    }

    /// An invalid trial that loses a fifth, for these reasons.
    fn unusable(service_cpu_share: f64, kinds: &[ReasonKind]) -> TrialResult {
        let mut result = result();
        let reason = |kind: &ReasonKind| Reason { kind: *kind, detail: String::new() };
        result.validity = Validity::Invalid { reasons: kinds.iter().map(reason).collect() };
        (result.verdict, result.figures.failed_share) = (None, Some(0.2));
        result.figures.service_cpu_share = Some(service_cpu_share);
        result
    }

    fn invalid(service_cpu_share: f64, kinds: &[ReasonKind], objective: &Objective) -> TrialSummary {
        let result = unusable(service_cpu_share, kinds);
        TrialSummary::of(&result, std::slice::from_ref(objective), &Thresholds::default())
    }

    #[test]
    fn a_service_without_cpu_that_answers_no_reader_of_its_counters_has_lost_everything() {
        use ReasonKind::{Conformance, GeneratorLate, MachineBusy, ReadingLate, Unaccounted, WindowShort};
        let summary = |share, kinds: &[ReasonKind]| invalid(share, kinds, &percentile(50.0, 200.0));
        for kind in [ReadingLate, Conformance, Unaccounted] {
            for kinds in [vec![kind], vec![kind, WindowShort], vec![kind, GeneratorLate]] {
                let starved = summary(0.99, &kinds);
                assert_eq!((starved.outcome, starved.full), (Outcome::Measured(vec![1.0]), TrialOutcome::Failed));
                assert_eq!(starved.bound_by, Some(BoundBy::Service));
            }
            let of = |fault| (Outcome::Invalid(fault), TrialOutcome::Invalid(fault));
            let with_time = summary(0.5, &[kind]);
            assert_eq!((with_time.outcome, with_time.full), of(Fault::Other), "{kind}: the service had time");
            let disturbed = summary(0.99, &[kind, MachineBusy]);
            assert_eq!((disturbed.outcome, disturbed.full), of(Fault::Machine), "{kind}: others used the machine");
        }
    }

    #[test]
    fn a_service_whose_connections_the_generator_gave_up_has_lost_everything_with_cpu_to_spare() {
        use ReasonKind::{Conformance, MachineBusy, Unaccounted, WindowShort};
        let of = |kinds: &[ReasonKind], ended: &str| {
            let mut result = unusable(0.7, kinds);
            result.connections.closed_early.insert(ended.to_owned(), 1);
            TrialSummary::of(&result, &[percentile(50.0, 200.0)], &Thresholds::default()).full
        };
        assert_eq!(of(&[Unaccounted], ConnectionCounts::UNREAD), TrialOutcome::Failed);
        assert_eq!(of(&[Unaccounted, WindowShort, Conformance], ConnectionCounts::UNREAD), TrialOutcome::Failed);
        assert_eq!(of(&[Unaccounted], "reset"), TrialOutcome::Invalid(Fault::Other), "it may have been another's");
        let disturbed = of(&[Unaccounted, MachineBusy], ConnectionCounts::UNREAD);
        assert_eq!(disturbed, TrialOutcome::Invalid(Fault::Machine));
    }

    #[test]
    fn too_few_samples_of_one_objective_do_not_save_a_trial_that_misses_another() {
        let of = |objective| invalid(0.5, &[ReasonKind::WindowShort], &objective).full;
        assert_eq!(of(objective(Figure::FailedShare, Some(0.1), None)), TrialOutcome::Failed);
        let undecided = TrialOutcome::Invalid(Fault::Other);
        assert_eq!(of(objective(Figure::FailedShare, Some(0.3), None)), undecided, "it is met");
        assert_eq!(of(percentile(50.0, 10.0)), undecided, "that of a percentile may be by chance");
        assert_eq!(of(objective(Figure::ErrorShare, Some(1e-5), None)), undecided, "so may a single error");
    }

    #[test]
    fn messages_that_a_starved_service_does_not_read_count_as_its_loss() {
        let summary = |share, kinds: &[ReasonKind]| invalid(share, kinds, &percentile(50.0, 200.0));
        let (late, unsent) = (ReasonKind::GeneratorLate, ReasonKind::SendRate);
        let backpressured = summary(0.99, &[late, unsent]);
        let Outcome::Measured(losses) = backpressured.outcome else { panic!("{backpressured:?}") };
        assert!((losses[0] - 0.28).abs() < 1e-9, "{losses:?}");
        assert_eq!(backpressured.full, TrialOutcome::Failed);
        let generator_fault = TrialOutcome::Invalid(Fault::Generator);
        assert_eq!(summary(0.5, &[late, unsent]).full, generator_fault, "the service had time");
        assert_eq!(summary(0.99, &[late]).full, generator_fault, "all was sent, only late");
        assert_eq!(
            summary(0.99, &[unsent, ReasonKind::GeneratorCpu]).full,
            generator_fault,
            "the generator had no time"
        );
    }

    #[test]
    fn an_invalid_trial_caused_by_the_generator_is_its_fault() {
        let fault = |kind| {
            let mut result = result();
            result.validity = Validity::Invalid { reasons: vec![Reason { kind, detail: String::new() }] };
            TrialSummary::of(&result, &[], &Thresholds::default()).full
        };
        assert_eq!(fault(ReasonKind::SendRate), TrialOutcome::Invalid(Fault::Generator));
        assert_eq!(fault(ReasonKind::ClockStep), TrialOutcome::Invalid(Fault::Other));
        assert_eq!(fault(ReasonKind::MachineBusy), TrialOutcome::Invalid(Fault::Machine));
    }
}
