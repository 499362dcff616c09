use bench_format::result::{InferenceCounts, ProcessReading, Reading, ThreadReading, ThreadsUse};

use super::*;
use crate::fixture::{Files, flood, open, sessions};

const SECOND: u64 = 1_000_000_000;

fn bound_of(files: &Files) -> Option<BoundBy> {
    files.judge().unwrap().result.bound_by
}

/// The share that was looked at on a side, with its limit.
fn looked_at(files: &Files, side: BoundSide, measure: BoundMeasure) -> Option<(f64, f64)> {
    let checks = files.judge().unwrap().result.bound_checks.unwrap();
    let found = checks.iter().find(|check| check.side == side && check.measure == measure);
    found.map(|check| (check.share, check.limit))
}

/// The readings at the window's edges, which are two seconds apart.
fn edges(files: &mut Files) -> [&mut Reading; 2] {
    let readings = &mut files.service.readings;
    [readings.window_start.as_mut().unwrap(), readings.window_end.as_mut().unwrap()]
}

/// Three threads, of which one ran and waited for these shares of the two seconds.
fn threads(ran: f64, waited: f64) -> [Option<Vec<ThreadReading>>; 2] {
    let ns = |share: f64| (share * 2.0 * SECOND as f64) as u64;
    let thread = |id, cpu_ns, wait_ns| ThreadReading {
        id,
        name: format!("thread-{id}"),
        cpu_ns,
        wait_ns: Some(wait_ns),
        turns: Some(1),
    };
    let from = vec![thread(1, 9 * SECOND, 0), thread(2, SECOND, SECOND)];
    let to = vec![thread(1, 9 * SECOND, 0), thread(2, SECOND + ns(ran), SECOND + ns(waited)), thread(3, 1, 0)];
    [Some(from), Some(to)]
}

/// A service that may use four CPUs and whose busiest thread ran and waited for these shares of the window.
fn with_service_thread(mut files: Files, ran: f64, waited: f64) -> Files {
    for (reading, threads) in edges(&mut files).into_iter().zip(threads(ran, waited)) {
        (reading.threads, reading.cpu_limit) = (threads, Some(4.0));
    }
    files
}

/// A service that was throttled in so many of 200 periods.
fn throttled(mut files: Files, periods: u64) -> Files {
    let [start, end] = edges(&mut files);
    (start.throttled_periods, start.periods) = (Some(70), Some(1000));
    (end.throttled_periods, end.periods) = (Some(70 + periods), Some(1200));
    files
}

/// Inference that answered 200 results in the window, so many of them late.
fn with_late_inference(mut files: Files, late: u64) -> Files {
    let [start, end] = edges(&mut files);
    let counts = |answered, late| ProcessReading {
        cpu_limit: 1.0,
        counts: Some(InferenceCounts { answered, late }),
        ..ProcessReading::default()
    };
    (start.inference, end.inference) = (Some(counts(1000, 30)), Some(counts(1200, 30 + late)));
    files
}

/// The same trial with an objective that it misses.
fn failed(mut files: Files) -> Files {
    let figure = bench_format::plan::Figure::DeliveredPerSecond;
    files.trial.objectives = vec![bench_format::plan::Objective { figure, at_most: None, at_least: Some(1e9) }];
    files
}

#[test]
fn one_busy_thread_bounds_a_load_on_a_machine_with_idle_cpus() {
    let files = with_service_thread(flood(), 0.95, 0.0);
    assert_eq!(looked_at(&files, BoundSide::Service, BoundMeasure::Cpu), Some((0.125, 0.9)));
    assert_eq!(looked_at(&files, BoundSide::Service, BoundMeasure::Thread), Some((0.95, 0.9)));
    assert_eq!(bound_of(&files), Some(BoundBy::Service));
    assert_eq!(bound_of(&with_service_thread(flood(), 0.85, 0.0)), Some(BoundBy::Neither));
    let checks = files.judge().unwrap().result.bound_checks.unwrap();
    assert!(checks.iter().any(|check| check.thread.as_deref() == Some("thread-2")), "{checks:?}");
}

#[test]
fn a_busy_thread_of_a_worker_bounds_the_generator() {
    let mut files = with_service_thread(flood(), 0.2, 0.0);
    let busy = |cpu_ns| ThreadsUse { busiest: "load-0".into(), busiest_cpu_ns: cpu_ns, ..ThreadsUse::default() };
    files.uploads[0].evidence.threads = Some(busy(2 * SECOND));
    assert_eq!(bound_of(&files), Some(BoundBy::Generator));
    files = with_service_thread(files, 1.0, 0.0);
    assert_eq!(bound_of(&files), Some(BoundBy::Both));
    files.uploads[0].evidence.threads = Some(busy(SECOND));
    assert_eq!(bound_of(&files), Some(BoundBy::Service));
}

#[test]
fn a_thread_that_waits_for_a_cpu_that_others_use_is_bound_by_the_machine() {
    // A compiler has the other half of its CPU.
    assert_eq!(bound_of(&with_service_thread(flood(), 0.5, 0.5)), Some(BoundBy::Machine));
    assert_eq!(bound_of(&with_service_thread(open(), 0.5, 0.5)), Some(BoundBy::Machine));
    let mut unread = with_service_thread(flood(), 0.5, 0.5);
    edges(&mut unread).into_iter().for_each(|reading| (reading.cpu_ns, reading.cpu_limit) = (None, None));
    assert_eq!(bound_of(&unread), None, "too little is known");
    // It waits, but also has nothing to do for half of the time.
    assert_eq!(bound_of(&with_service_thread(flood(), 0.3, 0.2)), Some(BoundBy::Neither));
    // It hardly waits, so it is the bound itself.
    assert_eq!(bound_of(&with_service_thread(flood(), 0.88, 0.05)), Some(BoundBy::Service));
}

#[test]
fn threads_that_wait_for_the_cpus_of_their_own_side_are_bound_by_it() {
    let mut files = with_service_thread(flood(), 0.5, 0.5);
    // Its threads used one second of the two that it may use half of.
    edges(&mut files).into_iter().for_each(|reading| reading.cpu_limit = Some(0.5));
    assert_eq!(bound_of(&files), Some(BoundBy::Service));
}

#[test]
fn a_service_that_its_quota_holds_back_bounds_the_load() {
    let files = throttled(flood(), 20);
    assert_eq!(looked_at(&files, BoundSide::Service, BoundMeasure::Quota), Some((0.1, 0.1)));
    assert_eq!(bound_of(&files), Some(BoundBy::Service));
    assert_eq!(bound_of(&throttled(flood(), 19)), Some(BoundBy::Neither));
    assert_eq!(bound_of(&throttled(open(), 20)), Some(BoundBy::Service), "an open loop says it, too");
}

#[test]
fn inference_that_is_late_bounds_sessions() {
    assert_eq!(bound_of(&with_late_inference(sessions(), 9)), None);
    let files = with_late_inference(sessions(), 10);
    assert_eq!(looked_at(&files, BoundSide::Inference, BoundMeasure::Late), Some((0.05, 0.05)));
    assert_eq!(bound_of(&files), Some(BoundBy::Inference));
}

#[test]
fn an_open_loop_that_met_its_objectives_is_bound_by_its_schedule_and_a_failed_one_says_by_what() {
    assert_eq!(bound_of(&open()), None);
    assert_eq!(bound_of(&failed(open())), Some(BoundBy::Neither));
    assert_eq!(bound_of(&failed(with_service_thread(open(), 0.95, 0.0))), Some(BoundBy::Service));
    assert_eq!(bound_of(&failed(sessions())), Some(BoundBy::Neither));
    assert_eq!(bound_of(&sessions()), None);
}

#[test]
fn a_trial_from_before_these_readings_is_judged_as_it_was() {
    let mut files = throttled(with_service_thread(flood(), 0.95, 0.0), 200);
    files.trial.bound_rules = None;
    let result = files.judge().unwrap().result;
    assert_eq!((result.bound_by, result.bound_checks), (Some(BoundBy::Neither), None));
}

#[test]
fn by_cpu_shares_alone_a_closed_loop_is_bound_by_the_side_that_used_up_its_cpu() {
    let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
    let bound = |service, worker| {
        let figures = Figures { service_cpu_share: service, worker_cpu_share: worker, ..Figures::default() };
        by_cpu_shares(&closed, &figures, None, 0.9)
    };
    assert_eq!(bound(Some(0.9), Some(0.89)), Some(BoundBy::Service));
    assert_eq!(bound(Some(0.1), Some(0.95)), Some(BoundBy::Generator));
    assert_eq!(bound(Some(1.0), Some(1.0)), Some(BoundBy::Both));
    assert_eq!(bound(Some(0.5), Some(0.5)), Some(BoundBy::Neither));
    assert_eq!(bound(None, Some(0.5)), None);
    assert_eq!(bound(None, Some(0.9)), Some(BoundBy::Generator), "a lower bound, since the service's CPU isn't known");
    assert_eq!(bound(Some(0.95), None), None);
}

#[test]
fn by_cpu_shares_alone_an_open_loop_is_bound_by_its_schedule() {
    let open = Load::Open { rate_per_second: 1.0, arrivals: Default::default() };
    let figures = Figures { service_cpu_share: Some(1.0), worker_cpu_share: Some(1.0), ..Figures::default() };
    assert_eq!(by_cpu_shares(&open, &figures, None, 0.9), None);
}

#[test]
fn by_cpu_shares_alone_failed_sessions_report_their_bound_and_passed_ones_only_a_used_up_cpu() {
    let sessions = Load::Sessions { ramp_seconds: 0.0, spread_ms: 0.0, in_flight: 1 };
    let bound = |service, inference, passed| {
        let figures = Figures {
            service_cpu_share: Some(service),
            worker_cpu_share: Some(0.1),
            inference_cpu_share: Some(inference),
            ..Figures::default()
        };
        let verdict = Verdict { passed, objectives: vec![] };
        by_cpu_shares(&sessions, &figures, Some(&verdict), 0.9)
    };
    assert_eq!(bound(0.5, 0.1, true), None);
    assert_eq!(bound(0.5, 0.1, false), Some(BoundBy::Neither));
    assert_eq!(bound(0.95, 0.1, true), Some(BoundBy::Service));
    assert_eq!(bound(0.95, 0.95, false), Some(BoundBy::Inference));
}
