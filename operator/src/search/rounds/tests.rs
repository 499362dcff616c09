//! Tests of the rounds: what is measured next after which outcomes, and where they end.

use super::*;
use crate::search::attempts::{ATTEMPTS, ATTEMPTS_ON_A_BUSY_MACHINE};
use TrialOutcome::{Failed, Invalid, Passed};

const LIMITS: Limits = Limits { from: 100, to: 5000 };

fn settings() -> WireRounds {
    WireRounds::default()
}

fn bounds(lower: u32, upper: u32) -> Bounds {
    let known = |load| (load > 0).then_some(load);
    Bounds { lower: known(lower), upper: known(upper) }
}

/// Runs the rounds against a function from (step, load, number of the trial) to the outcome; returns the steps.
fn run(
    bounds: Bounds,
    service: impl Fn(SearchStep, u32, usize) -> TrialOutcome,
) -> (RoundsResult, Vec<(SearchStep, u32)>) {
    let settings = settings();
    let mut rounds = Rounds::new(&settings, LIMITS, bounds);
    let mut made = Vec::new();
    while let Some((step, load)) = rounds.next() {
        rounds.record(service(step, load, made.len()));
        made.push((step, load));
        assert!(made.len() < 200, "it does not end");
    }
    (rounds.result, made)
}

fn below(capacity: u32) -> impl Fn(SearchStep, u32, usize) -> TrialOutcome {
    move |_, load, _| if load <= capacity { Passed } else { Failed }
}

fn count(made: &[(SearchStep, u32)], step: SearchStep) -> usize {
    made.iter().filter(|(of, _)| *of == step).count()
}

#[test]
fn a_clean_edge_takes_the_least_rounds_and_five_trials_at_each_tested_load() {
    let (result, made) = run(bounds(990, 1010), below(1000));
    assert_eq!(count(&made, SearchStep::Round), 12);
    let test = |load, passed, failed| Some(LoadTest { load, passed, failed, succeeded: true });
    let (confirmed, failed) = (result.confirm.unwrap().load, result.fail.unwrap().load);
    assert!((960..=1000).contains(&confirmed) && (1001..1045).contains(&failed), "{result:?}");
    assert_eq!((result.confirm, result.fail), (test(confirmed, 5, 0), test(failed, 0, 5)));
}

#[test]
fn an_even_service_gets_loads_at_above_and_below_its_capacity() {
    let (_, made) = run(bounds(990, 1010), below(1000));
    let [first, second, third] = [made[0].1, made[1].1, made[2].1];
    assert!((990..=1010).contains(&first) && second > first && third < second, "{made:?}");
}

#[test]
fn one_failure_among_the_first_five_takes_four_more_trials() {
    let once = |at: usize| {
        move |step, load, number: usize| match step {
            SearchStep::Confirm if number == 12 + at => Failed,
            _ => below(1000)(step, load, number),
        }
    };
    let (result, made) = run(bounds(990, 1010), once(4));
    let confirm = result.confirm.unwrap();
    assert_eq!((confirm.passed, confirm.failed, confirm.succeeded), (8, 1, true));
    assert_eq!(count(&made, SearchStep::Confirm), 9);
}

#[test]
fn two_failures_end_a_test_and_the_next_load_down_is_tested_once() {
    let (result, made) = run(bounds(990, 1010), |step, load, number| match step {
        SearchStep::Confirm => Failed,
        _ => below(1000)(step, load, number),
    });
    let tested: Vec<u32> =
        made.iter().filter(|(step, _)| *step == SearchStep::Confirm).map(|(_, load)| *load).collect();
    assert!(tested.len() == 4 && tested[0] == tested[1] && tested[2] == tested[3] && tested[2] < tested[0]);
    assert!(!result.confirm.unwrap().succeeded, "not confirmed");
}

#[test]
fn a_start_at_twice_the_capacity_or_half_of_it_takes_a_few_more_rounds() {
    for (start, most) in [(2000, 16), (500, 16), (1000, 8)] {
        let settings = WireRounds { precision: 0.03, at_least: 6, at_most: 8, ..settings() };
        let mut rounds = Rounds::new(&settings, LIMITS, bounds(start - 10, start + 10));
        let mut made = 0;
        while let Some((step @ SearchStep::Round, load)) = rounds.next() {
            rounds.record(below(1000)(step, load, 0));
            made += 1;
        }
        let found = rounds.estimate().unwrap();
        assert!(made <= most && (970.0..1030.0).contains(&found.load), "{start}: {made} rounds, {found:?}");
        assert!(found.low <= 1001.0 && 1000.0 <= found.high, "{start}: {found:?}");
    }
}

#[test]
fn a_failed_test_is_evidence_about_the_capacity() {
    let settings = settings();
    let mut rounds = Rounds::new(&settings, LIMITS, bounds(990, 1010));
    while rounds.next().is_some_and(|(step, _)| step == SearchStep::Round) {
        let (step, load) = rounds.next().unwrap();
        rounds.record(below(1000)(step, load, 0));
    }
    let before = rounds.estimate().unwrap();
    (0..2).for_each(|_| rounds.record(Failed));
    let after = rounds.estimate().unwrap();
    assert!(after.load < before.load && after.trials == before.trials + 2, "{after:?}");
}

#[test]
fn the_outermost_load_is_tested_first_where_a_bound_is_missing() {
    let (result, made) = run(bounds(5000, 0), below(9999));
    assert_eq!(made, [(SearchStep::Confirm, 5000); 5]);
    assert!(result.confirm.unwrap().succeeded && result.fail.is_none());
    let (result, made) = run(bounds(0, 100), below(0));
    assert_eq!(made, [(SearchStep::Fail, 100); 5]);
    assert!(result.fail.unwrap().succeeded && result.confirm.is_none());
    let (result, made) = run(bounds(5000, 0), below(4800));
    assert!(count(&made, SearchStep::Round) >= 12, "the test of 5000 fails, so there is an edge: {result:?}");
    assert!(result.confirm.unwrap().load <= 4800, "{result:?}");
}

#[test]
fn an_invalid_trial_is_made_again_in_the_same_turn_and_changes_nothing() {
    let settings = settings();
    let mut rounds = Rounds::new(&settings, LIMITS, bounds(990, 1010));
    let (next, turns) = (rounds.next(), rounds.turns());
    rounds.record(Invalid(Fault::Other));
    assert_eq!((rounds.next(), rounds.turns()), (next, turns));
    rounds.record(Passed);
    assert_eq!((rounds.turns(), rounds.estimate().unwrap().trials), (1, 1));
}

#[test]
fn trials_that_stay_invalid_end_the_search_or_lower_its_limit() {
    let (result, made) = run(bounds(990, 1010), |_, _, _| Invalid(Fault::Other));
    assert_eq!((result.given_up_at, made.len()), (Some(made[0].1), ATTEMPTS));
    let (result, made) = run(bounds(990, 1010), |step, load, number| match load {
        load if load > 995 => Invalid(Fault::Generator),
        _ => below(5000)(step, load, number),
    });
    let limit = result.generator_limit.unwrap();
    assert!((996..=1006).contains(&limit) && result.given_up_at.is_none(), "{result:?}");
    let confirm = result.confirm.unwrap();
    assert!(confirm.succeeded && confirm.load < limit && confirm.load >= 980, "{result:?} {made:?}");
}

#[test]
fn a_late_generator_at_a_load_that_it_has_offered_is_a_busy_machine() {
    let (result, made) = run(bounds(990, 1010), |step, load, number| match step {
        SearchStep::Confirm => Invalid(Fault::Generator),
        _ => below(1000)(step, load, number),
    });
    assert!(result.given_up_at.is_some() && result.generator_limit.is_none(), "{result:?}");
    assert_eq!(count(&made, SearchStep::Confirm), ATTEMPTS_ON_A_BUSY_MACHINE);
    let (disturbed, _) = run(bounds(990, 1010), |step, load, number| match number % 6 {
        0 => below(1000)(step, load, number),
        of if of < 3 => Invalid(Fault::Machine),
        _ => Invalid(Fault::Generator),
    });
    assert!(disturbed.given_up_at.is_none() && disturbed.confirm.is_some_and(|test| test.succeeded), "{disturbed:?}");
}

#[test]
fn a_limit_of_the_generator_is_found_in_growing_strides() {
    let (result, made) = run(bounds(2000, 2100), |step, load, number| match load {
        load if load > 1500 => Invalid(Fault::Generator),
        _ => below(5000)(step, load, number),
    });
    let beyond = made.iter().filter(|(_, load)| *load > 1500).count();
    assert!(beyond <= 6 * ATTEMPTS, "{beyond} trials beyond the limit");
    assert!(result.confirm.is_some_and(|test| test.succeeded && test.load > 1200), "{result:?}");
}

#[test]
fn a_chance_of_one_half_confirms_with_four_percent() {
    // 5 of 5, or one failure among the first five and then four passes.
    let chance: f64 = 0.5_f64.powi(5) + 5.0 * 0.5_f64.powi(5) * 0.5_f64.powi(4);
    let succeeds = |bits: u32| {
        let settings = settings();
        let mut rounds = Rounds::new(&settings, LIMITS, bounds(5000, 0));
        let mut bit = 0;
        while rounds.next().is_some_and(|(step, _)| step == SearchStep::Confirm) && bit < 9 {
            rounds.record(if bits >> bit & 1 == 1 { Passed } else { Failed });
            bit += 1;
        }
        rounds.result.confirm.is_some_and(|test| test.succeeded)
    };
    let share = (0..512).filter(|bits| succeeds(*bits)).count() as f64 / 512.0;
    assert!((share - chance).abs() < 1e-12, "{share}");
}
