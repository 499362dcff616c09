//! Decides whether a trial may be used: the rules of `docs/METHODOLOGY.md`, "Validity", in order. Pure.
//!
//! The rules for attempts under load are in `validity/attempts.rs`, those for clocks in `validity/clocks.rs`, those for counters of a described service in
//! `validity/counters.rs`, those for the generator in `validity/generator.rs`, the rule for the inference simulator in
//! `validity/inference.rs`, the rule for the machine in `validity/machine.rs`. Each reason states the observed and the
//! allowed value.

mod attempts;
mod clocks;
mod counters;
#[cfg(test)]
mod fixture;
mod generator;
mod inference;
mod machine;

use bench_format::{
    histogram::{Recorder, percentile_ns, samples_needed},
    plan::Figure,
    result::{Books, Equation, Reading, Reason, ReasonKind, Validity, WorkerResult},
    trial_file::BookKeeping,
};

use self::{
    attempts::{attempts_late, attempts_not_made},
    clocks::{clock_step, start_skew},
    counters::{counter_fell, counters_missing},
    generator::{generator_cpu, generator_late, published_mode, published_rate, published_share, send_rate},
    inference::inference_cpu,
    machine::machine_busy,
};
use crate::{
    case::Case,
    edges::{Processes, ended_early, in_both},
};

/// Largest difference between the window and the time between the readings at its edges, as a share of the window.
const READING_SHARE: f64 = 0.05;
/// Difference that is always allowed, in nanoseconds, because reading a busy service takes time.
const READING_FLOOR_NS: u64 = 100_000_000;

/// Applies every rule; reasons found during the measurement come first.
pub(crate) fn validity(case: &Case<'_>, books: &Books) -> Validity {
    let mut reasons = case.trial.problems.clone();
    reasons.extend(unaccounted(books));
    reasons.extend(workers_missing(case));
    reasons.extend(start_skew(case));
    if case.trial.load.is_open() {
        reasons.extend(generator_late(case));
        reasons.extend(generator_cpu(case));
        reasons.extend(send_rate(case));
        reasons.extend(inference_cpu(case));
    }
    reasons.extend(attempts_late(case).or_else(|| attempts_not_made(case)));
    reasons.extend(published_rate(case).or_else(|| published_share(case)));
    reasons.extend(published_mode(case));
    reasons.extend(service_restarted(case).or_else(|| counter_fell(case)));
    reasons.extend(clock_step(case));
    reasons.extend(reading_late(case));
    reasons.extend(window_short(case));
    reasons.extend(conformance(case));
    reasons.extend(counters_missing(case));
    reasons.extend(case.trial.cpus.isolation.clone().map(|description| reason(ReasonKind::Isolation, description)));
    reasons.extend(machine_busy(case));
    if reasons.is_empty() { Validity::Valid } else { Validity::Invalid { reasons } }
}

/// Creates a reason from its rule and a description.
pub fn reason(kind: ReasonKind, detail: impl Into<String>) -> Reason {
    Reason { kind, detail: detail.into() }
}

fn unaccounted(books: &Books) -> Option<Reason> {
    let binding = books.equations.iter().filter(|equation| !equation.is_remark);
    let mut description: Vec<String> = binding.filter_map(Equation::difference).collect();
    if let Some(check) = books.connections.as_ref().filter(|check| check.mismatched > 0) {
        let example = check.examples.first().map(|example| format!(", for example {example}")).unwrap_or_default();
        description.push(format!("{} of {} connections differ{example}", check.mismatched, check.compared));
    }
    (!description.is_empty()).then(|| reason(ReasonKind::Unaccounted, description.join("; ")))
}

fn workers_missing(case: &Case<'_>) -> Option<Reason> {
    let (have, expected) = (case.uploads.len(), case.trial.workers as usize);
    (have < expected)
        .then(|| reason(ReasonKind::WorkersMissing, format!("{have} of {expected} workers delivered a result")))
}

fn service_restarted(case: &Case<'_>) -> Option<Reason> {
    let readings = &case.service.readings;
    let order = [&readings.before, &readings.window_start, &readings.window_end, &readings.after];
    let present: Vec<&Reading> = order.into_iter().flatten().collect();
    let changed = present.windows(2).find_map(|pair| {
        let (earlier, later) = (pair[0], pair[1]);
        if let (Some(was), Some(is)) = (earlier.pid, later.pid)
            && was != is
        {
            return Some(format!("process {was} was replaced by process {is}"));
        }
        let companion = replaced("companion", &earlier.companions, &later.companions);
        let replica = replaced("pod", &earlier.replicas, &later.replicas);
        let (before, after) = (earlier.stats.uptime_seconds, later.stats.uptime_seconds);
        companion
            .or(replica)
            .or_else(|| (after < before).then(|| format!("its uptime fell from {before:.1} s to {after:.1} s")))
    });
    changed.map(|description| reason(ReasonKind::ServiceRestarted, description))
}

/// The first of these processes that has another process id in the later reading.
fn replaced(kind: &str, earlier: &Processes, later: &Processes) -> Option<String> {
    let (name, was, is) = in_both(earlier, later).find(|(_, was, is)| was.pid != is.pid)?;
    Some(format!("process {} of its {kind} {name} was replaced by process {}", was.pid, is.pid))
}

fn reading_late(case: &Case<'_>) -> Option<Reason> {
    let (Some(start), Some(end)) = (&case.service.readings.window_start, &case.service.readings.window_end) else {
        return None;
    };
    if case.trial.keeping == BookKeeping::None && start.cpu_ns.is_none() {
        // Nothing was read, so no figure depends on the time of the reading.
        return None;
    }
    let between_ns = end.unix_ns.saturating_sub(start.unix_ns);
    let deviation_ns = between_ns.abs_diff(case.trial.window_ns);
    let allowed_ns = ((case.trial.window_ns as f64 * READING_SHARE) as u64).max(READING_FLOOR_NS);
    (deviation_ns > allowed_ns && !ended_early(case)).then(|| {
        let (between, window) = (between_ns as f64 / 1e9, case.trial.window_ns as f64 / 1e9);
        let description = format!("the service's counters were read {between:.2} s apart for a window of {window} s");
        reason(ReasonKind::ReadingLate, description)
    })
}

fn window_short(case: &Case<'_>) -> Option<Reason> {
    let mut description: Vec<String> = case
        .trial
        .objectives
        .iter()
        .filter_map(|objective| match &objective.figure {
            Figure::PercentileMs { histogram, percentile } => Some((histogram, *percentile)),
            _ => None,
        })
        .filter_map(|(name, percentile)| {
            let recorder = case.merged.histograms.get(&*format!("{name}_ns"));
            let have = recorder.map_or(0, Recorder::total);
            let need = samples_needed(percentile);
            let judged = recorder.is_some_and(|recorder| percentile_ns(recorder, percentile).is_some());
            (!judged && have < need).then(|| format!("p{percentile} of {name} needs {need} samples, there are {have}"))
        })
        .collect();
    if case.merged.window.duration_ns == 0 && !case.uploads.is_empty() {
        description.push("the load ended before the window began; give the ladder `warmup_seconds: 0`".into());
    }
    (!description.is_empty()).then(|| reason(ReasonKind::WindowShort, description.join("; ")))
}

fn conformance(case: &Case<'_>) -> Option<Reason> {
    let describe = |(when, findings): (&str, &Vec<String>)| {
        (!findings.is_empty())
            .then(|| format!("the service failed its protocol check {when} the load: {}", findings.join(", ")))
    };
    let checks = results(case).filter_map(|result| result.conformance.as_ref());
    let description: Vec<String> =
        checks.flat_map(|check| [("before", &check.before), ("after", &check.after)]).filter_map(describe).collect();
    (!description.is_empty()).then(|| reason(ReasonKind::Conformance, description.join("; ")))
}

fn results<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a WorkerResult> {
    case.uploads.iter().copied()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use bench_format::{
        histogram::Recorder,
        plan::Objective,
        result::{ConnectionCheck, ProcessReading},
    };

    use super::fixture::{reasons, result};
    use super::*;
    use crate::fixture::{flood, open};

    #[test]
    fn a_trial_without_flaws_is_valid() {
        assert_eq!(reasons(flood(), |_| ()), Vec::<String>::new());
        assert_eq!(reasons(open(), |_| ()), Vec::<String>::new());
    }

    #[test]
    fn unaccounted_names_the_equation_with_both_sides() {
        let books = Books {
            equations: vec![Equation::new("sent = delivered", 10, [("delivered".into(), 9)])],
            connections: Some(ConnectionCheck {
                compared: 5,
                mismatched: 1,
                examples: vec!["a: sent 10, received 9".into()],
            }),
        };
        let files = flood();
        let uploads: Vec<_> = files.uploads.iter().collect();
        let case = Case::new(&files.trial, &uploads, &files.service).unwrap();
        let Validity::Invalid { reasons } = validity(&case, &books) else { panic!("valid") };
        assert_eq!(
            reasons[0].detail,
            "sent = delivered: 10 against 9 (delivered 9); 1 of 5 connections differ, for example a: sent 10, received 9"
        );
    }

    #[test]
    fn a_worker_without_a_result_is_missing() {
        assert_eq!(
            reasons(flood(), |files| files.trial.workers = 2),
            ["WorkersMissing: 1 of 2 workers delivered a result"]
        );
    }

    #[test]
    fn starts_may_differ_by_50_ms_and_no_more() {
        let skewed = |ns| reasons(flood(), |files| result(files).evidence.start_skew_ns = ns);
        assert_eq!(skewed(50_000_000), Vec::<String>::new());
        assert_eq!(skewed(50_100_000), ["StartSkew: workers started 50.1 ms apart, allowed 50 ms"]);
        assert_eq!(skewed(-60_000_000), ["StartSkew: workers started 60.0 ms apart, allowed 50 ms"]);
    }

    #[test]
    fn a_service_with_another_process_id_or_a_shorter_uptime_was_restarted() {
        let restarted = reasons(flood(), |files| files.service.readings.after.as_mut().unwrap().pid = Some(99));
        assert_eq!(restarted, ["ServiceRestarted: process 7 was replaced by process 99"]);
        let restarted_again =
            reasons(flood(), |files| files.service.readings.after.as_mut().unwrap().stats.uptime_seconds = 0.5);
        assert_eq!(restarted_again, ["ServiceRestarted: its uptime fell from 1.0 s to 0.5 s"]);
    }

    #[test]
    fn a_companion_with_another_process_id_was_restarted_like_the_service() {
        let restarted = reasons(flood(), |files| {
            let readings = &mut files.service.readings;
            let both = [readings.window_start.as_mut().unwrap(), readings.window_end.as_mut().unwrap()];
            for (reading, pid) in both.into_iter().zip([7, 8]) {
                let process = ProcessReading { pid, ..ProcessReading::default() };
                reading.companions.insert("redis".into(), process);
            }
        });
        assert_eq!(restarted, ["ServiceRestarted: process 7 of its companion redis was replaced by process 8"]);
    }

    #[test]
    fn one_of_several_pods_with_another_process_id_was_restarted() {
        let restarted = reasons(flood(), |files| {
            let readings = &mut files.service.readings;
            let both = [readings.window_start.as_mut().unwrap(), readings.window_end.as_mut().unwrap()];
            for (reading, pid) in both.into_iter().zip([7, 8]) {
                let process = ProcessReading { pid, ..ProcessReading::default() };
                reading.replicas.insert("ours-2".into(), process);
            }
        });
        assert_eq!(restarted, ["ServiceRestarted: process 7 of its pod ours-2 was replaced by process 8"]);
    }

    #[test]
    fn counters_that_were_read_too_late_make_the_trial_invalid() {
        let late = |ns| reasons(flood(), |files| files.service.readings.window_end.as_mut().unwrap().unix_ns += ns);
        assert_eq!(late(100_000_000), Vec::<String>::new());
        assert_eq!(
            late(3_000_000_000),
            ["ReadingLate: the service's counters were read 5.00 s apart for a window of 2 s"]
        );
    }

    #[test]
    fn a_load_that_ended_early_has_no_late_reading() {
        let early = reasons(flood(), |files| {
            result(files).window.duration_ns = 1_000_000_000;
            files.service.readings.window_end.as_mut().unwrap().unix_ns += 3_000_000_000;
        });
        assert_eq!(early, Vec::<String>::new());
    }

    #[test]
    fn readings_without_counters_are_never_late() {
        let nothing = |files: &mut crate::fixture::Files| {
            files.trial.keeping = BookKeeping::None;
            let readings = &mut files.service.readings;
            readings.window_end.as_mut().unwrap().unix_ns += 3_000_000_000;
            let edges = [&mut readings.window_start, &mut readings.window_end];
            edges.into_iter().flatten().for_each(|reading| reading.cpu_ns = None);
        };
        assert_eq!(reasons(flood(), nothing), Vec::<String>::new());
    }

    #[test]
    fn an_objective_needs_samples() {
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile: 99.0 };
        let objective = Objective { figure, at_most: Some(1.0), at_least: None };
        let with = |samples: u64| {
            reasons(open(), |files| {
                let mut recorder = Recorder::new();
                (0..samples).for_each(|_| recorder.record(1000));
                result(files).histograms.insert(bench_format::Name::from_static("response_ns"), recorder.encode());
                files.trial.objectives = vec![objective.clone()];
            })
        };
        assert_eq!(with(459), Vec::<String>::new());
        assert_eq!(with(458), ["WindowShort: p99 of response needs 459 samples, there are 458"]);
    }

    #[test]
    fn a_load_that_ended_in_its_warm_up_has_a_short_window() {
        let ended = reasons(flood(), |files| result(files).window.duration_ns = 0);
        assert!(ended[0].starts_with("WindowShort: the load ended before the window began"), "{ended:?}");
    }

    #[test]
    fn a_failed_protocol_check_is_a_reason_and_a_passed_one_is_not() {
        let checked = |after: &[&str]| {
            let after = after.iter().map(|description| (*description).to_owned()).collect();
            let check = bench_format::result::Conformance { after, ..Default::default() };
            reasons(open(), |files| result(files).conformance = Some(check))
        };
        assert_eq!(checked(&[]), Vec::<String>::new());
        assert_eq!(
            checked(&["no partial within 3 s"]),
            ["Conformance: the service failed its protocol check after the load: no partial within 3 s"]
        );
    }

    #[test]
    fn a_shared_cpu_is_a_reason() {
        let shared =
            reasons(flood(), |files| files.trial.cpus.isolation = Some("service and workers share CPU 0".into()));
        assert_eq!(shared, ["Isolation: service and workers share CPU 0"]);
    }
}
