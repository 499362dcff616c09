//! Tests of the search against simulated services.

use proptest::prelude::*;

use super::{attempts::ATTEMPTS, *};

const LIMITS: (u32, u32) = (10, 2000);

fn settings(goals: Vec<Goal>) -> Settings {
    Settings { from: LIMITS.0, to: LIMITS.1, goals, start: Start::Low, sparing: false }
}

fn goal() -> Goal {
    Goal { duration_sum_seconds: 4.0, ..Goal::of_loss(0.01, 0.02) }
}

/// Runs a search against a function from (load, number of the trial) to an outcome.
fn search(settings: &Settings, service: impl Fn(u32, usize) -> Outcome) -> (SearchResult, Vec<Trial>) {
    let mut trials: Vec<Trial> = Vec::new();
    loop {
        match next(settings, &trials).unwrap() {
            Next::Measure { load, seconds } => {
                let outcome = service(load, trials.len());
                trials.push(Trial { load, seconds, outcome });
                assert!(trials.len() < 5000, "it does not end");
            }
            Next::SearchResult(found) => return (found, trials),
        }
    }
}

/// A service that loses nothing up to its capacity and everything above it.
fn carries(capacity: u32) -> impl Fn(u32, usize) -> Outcome {
    move |load, _| Outcome::Measured(vec![if load > capacity { 1.0 } else { 0.0 }; 3])
}

fn one(found: &SearchResult) -> GoalResult {
    let [goal] = found.goals[..] else { panic!("{found:?}") };
    goal
}

#[test]
fn a_search_begins_low_and_stays_near_the_capacity() {
    let (found, trials) = search(&settings(vec![goal()]), carries(100));
    let GoalResult { lower, upper, conditional_throughput } = one(&found);
    assert_eq!((lower, upper, conditional_throughput), (Some(100), Some(102), Some(100.0)));
    let loads: Vec<u32> = trials.iter().map(|trial| trial.load).collect();
    assert_eq!(loads[0], LIMITS.0);
    assert!(loads.iter().all(|load| *load <= 200), "a service of 100 sessions got {loads:?}");
}

#[test]
fn the_largest_load_that_passes_has_no_upper_bound() {
    let (found, _) = search(&settings(vec![goal()]), carries(u32::MAX));
    assert_eq!((one(&found).lower, one(&found).upper), (Some(LIMITS.1), None));
}

#[test]
fn the_smallest_load_that_fails_has_no_lower_bound() {
    let (found, _) = search(&settings(vec![goal()]), carries(0));
    let none = GoalResult { lower: None, upper: Some(LIMITS.0), conditional_throughput: None };
    assert_eq!(one(&found), none);
}

#[test]
fn goals_share_trials_and_have_bounds_of_their_own() {
    let losses = |load: u32| vec![if load > 300 { 0.3 } else { 0.0 }, if load > 100 { 0.02 } else { 0.0 }];
    let (found, _) = search(&settings(vec![goal(), goal()]), |load, _| Outcome::Measured(losses(load)));
    let bounds: Vec<_> = found.goals.iter().map(|goal| (goal.lower.unwrap(), goal.upper.unwrap())).collect();
    let [(first_low, first_high), (second_low, second_high)] = bounds[..] else { panic!("{bounds:?}") };
    assert!(first_low <= 300 && 300 < first_high && second_low <= 100 && 100 < second_high, "{bounds:?}");
}

#[test]
fn where_all_goals_count_together_nothing_is_measured_above_a_bound_of_the_strictest() {
    let losses = |load: u32| vec![if load > 300 { 0.3 } else { 0.0 }, if load > 100 { 0.02 } else { 0.0 }];
    let [each, together] = [false, true].map(|sparing| {
        let settings = Settings { sparing, ..settings(vec![goal(), goal()]) };
        search(&settings, |load, _| Outcome::Measured(losses(load)))
    });
    assert_eq!(together.0.goals[1], each.0.goals[1], "the strictest goal has the same bounds");
    assert!(together.0.goals[0].lower >= together.0.goals[1].lower && together.0.goals[0].upper.is_none());
    assert!(together.1.len() < each.1.len(), "{} and {} trials", together.1.len(), each.1.len());
    let highest = together.1.iter().map(|trial| trial.load).max();
    assert!(highest < Some(300), "{highest:?}");
}

#[test]
fn a_sparing_search_offers_at_most_twice_the_largest_load_before() {
    for capacity in [15, 100, 1500, u32::MAX] {
        let settings = Settings { sparing: true, ..settings(vec![Goal { width: 0.2, ..goal() }]) };
        let (found, trials) = search(&settings, carries(capacity));
        let mut largest = LIMITS.0;
        for Trial { load, .. } in trials {
            assert!(load <= 2 * largest, "{load} after {largest}");
            largest = largest.max(load);
        }
        assert!(one(&found).lower.is_some_and(|lower| lower <= capacity), "{found:?}");
    }
}

#[test]
fn the_search_stops_below_the_load_that_the_generator_cannot_offer() {
    let (found, trials) = search(&settings(vec![goal()]), |load, number| match load {
        load if load > 300 => Outcome::Invalid(Fault::Generator),
        _ => carries(1000)(load, number),
    });
    let limit = found.generator_limit.unwrap();
    let GoalResult { lower, upper, .. } = one(&found);
    assert!(limit > 300 && limit <= 307 && upper.is_none(), "{found:?}");
    assert!(lower.unwrap() <= 300 && lower.unwrap() >= 290, "{found:?}");
    let at_the_limit = |trial: &&Trial| trial.load == limit;
    assert_eq!(trials.iter().filter(at_the_limit).count(), ATTEMPTS);
    let invalid = trials.iter().filter(|trial| trial.load > 300).count();
    assert!(invalid <= 8 * ATTEMPTS, "{invalid} trials beyond the generator's limit");
}

#[test]
fn a_generator_that_cannot_offer_the_smallest_load_finds_nothing() {
    let (found, trials) = search(&settings(vec![goal()]), |_, _| Outcome::Invalid(Fault::Generator));
    assert_eq!((found.generator_limit, one(&found).lower, trials.len()), (Some(LIMITS.0), None, ATTEMPTS));
}

#[test]
fn an_invalid_trial_is_repeated_and_decides_nothing() {
    let disturbed = |load, number: usize| match number % 3 {
        1 => Outcome::Invalid(Fault::Other),
        _ => carries(100)(load, number),
    };
    let (found, _) = search(&settings(vec![goal()]), disturbed);
    assert_eq!(found, search(&settings(vec![goal()]), carries(100)).0);
}

#[test]
fn a_machine_that_is_busy_for_a_while_does_not_end_the_search() {
    let busy = |from: usize| {
        move |load, number: usize| match number {
            number if (3..from).contains(&number) => Outcome::Invalid(Fault::Machine),
            _ => carries(100)(load, number),
        }
    };
    let (found, trials) = search(&settings(vec![goal()]), busy(10));
    let (quiet, undisturbed) = search(&settings(vec![goal()]), carries(100));
    assert_eq!((found, trials.len()), (quiet, undisturbed.len() + 7));
    assert_eq!(search(&settings(vec![goal()]), busy(5000)).0.given_up_at, Some(trials[3].load));
}

#[test]
fn a_load_that_stays_invalid_ends_the_search_with_the_known_bounds() {
    let (found, _) = search(&settings(vec![goal()]), |load, number| match load {
        load if load > 50 => Outcome::Invalid(Fault::Other),
        _ => carries(1000)(load, number),
    });
    assert!(found.given_up_at.is_some_and(|load| load > 50) && found.generator_limit.is_none(), "{found:?}");
}

#[test]
fn trials_of_another_search_are_refused_with_the_reason() {
    let (_, trials) = search(&settings(vec![goal()]), carries(100));
    let other = Settings { from: 20, ..settings(vec![goal()]) };
    assert_eq!(
        next(&other, &trials).unwrap_err().to_string(),
        "trial 1 of the search is 10 for 1 s, but the search would measure 20 for 1 s; start a new run"
    );
    let more = [&trials[..], &trials[..1]].concat();
    assert!(next(&settings(vec![goal()]), &more).unwrap_err().to_string().contains("would measure none"));
}

fn any_goal() -> impl Strategy<Value = Goal> {
    let durations = (1_u32..4, 1_u32..5, 1_u32..4);
    (0.0..0.6, 0.0..0.8, 0.003..0.5, durations, 1_u32..4, 2_usize..5).prop_map(
        |(loss_ratio, exceed_ratio, width, (initial, longer, more), preceding_targets, expansion)| Goal {
            loss_ratio,
            exceed_ratio,
            width,
            initial_trial_seconds: f64::from(initial),
            final_trial_seconds: f64::from(initial * longer),
            duration_sum_seconds: f64::from(initial * longer * more),
            preceding_targets,
            expansion,
        },
    )
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let start = prop_oneof![Just(Start::Low), Just(Start::High)];
    (1_u32..500, 1_u32..5000, proptest::collection::vec(any_goal(), 1..4), start)
        .prop_map(|(from, more, goals, start)| Settings { from, to: from + more, goals, start, sparing: false })
}

/// A pseudo-random number from 0 to 1 that depends only on the seed and the number.
fn hash(seed: u64, number: usize) -> f64 {
    let mixed = (seed ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f64 / (1_u64 << 24) as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_search_ends_within_its_limits_for_every_service(
        settings in any_settings(),
        seed: u64,
        faults in 0.0..0.4,
    ) {
        let count = settings.goals.len();
        let (found, trials) = search(&settings, |_, number| match hash(seed, number) {
            luck if luck < faults / 3.0 => Outcome::Invalid(Fault::Generator),
            luck if luck < faults / 1.5 => Outcome::Invalid(Fault::Machine),
            luck if luck < faults => Outcome::Invalid(Fault::Other),
            _ => Outcome::Measured((0..count).map(|goal| hash(!seed, number * 4 + goal)).collect()),
        });
        for load in trials.iter().map(|trial| trial.load) {
            prop_assert!((settings.from..=settings.to).contains(&load));
        }
        for goal in &found.goals {
            if let (Some(lower), Some(upper)) = (goal.lower, goal.upper) {
                prop_assert!(lower < upper);
            }
        }
    }

    #[test]
    fn the_capacity_of_an_orderly_service_is_found_within_the_width(settings in any_settings(), share in 0.0_f64..1.2) {
        let span = f64::from(settings.to - settings.from);
        let capacity = f64::from(settings.from) + (span * share).floor();
        let count = settings.goals.len();
        let (found, _) = search(&settings, |load, _| {
            Outcome::Measured(vec![if f64::from(load) > capacity { 1.0 } else { 0.0 }; count])
        });
        for (goal, found) in settings.goals.iter().zip(&found.goals) {
            let lower = f64::from(found.lower.expect("the smallest load passes"));
            prop_assert!(lower <= capacity);
            match found.upper.map(f64::from) {
                None => prop_assert_eq!(lower, f64::from(settings.to)),
                Some(upper) => {
                    prop_assert!(upper > capacity);
                    // For small loads, each place of a goal's width may be one whole load.
                    let places = settings.grid().place(upper) - settings.grid().place(lower);
                    prop_assert!((upper - lower) / upper <= goal.width + 1e-9 || upper - lower <= places as f64);
                }
            }
        }
    }

    #[test]
    fn the_lowest_capacity_is_found_within_the_width_where_all_goals_count_together(
        settings in any_settings(),
        shares in proptest::collection::vec(0.0_f64..1.2, 3),
    ) {
        let goal = settings.goals[0];
        let goals = settings.goals.iter().map(|other| Goal { loss_ratio: other.loss_ratio, ..goal }).collect();
        let settings = Settings { sparing: true, goals, ..settings };
        let span = f64::from(settings.to - settings.from);
        let capacity = |share: &f64| f64::from(settings.from) + (span * share).floor();
        let capacities: Vec<f64> = shares[..settings.goals.len()].iter().map(capacity).collect();
        let loss = |load: u32, capacity: f64| if f64::from(load) > capacity { 1.0 } else { 0.0 };
        let (found, _) = search(&settings, |load, _| {
            Outcome::Measured(capacities.iter().map(|capacity| loss(load, *capacity)).collect())
        });
        let lowest = capacities.iter().copied().fold(f64::INFINITY, f64::min);
        let lower = found.goals.iter().map(|goal| goal.lower).min().flatten().expect("the smallest load passes");
        prop_assert!(f64::from(lower) <= lowest);
        match found.goals.iter().filter_map(|goal| goal.upper).min() {
            None => prop_assert_eq!(lower, settings.to),
            Some(upper) => {
                prop_assert!(f64::from(upper) > lowest);
                let places = settings.grid().place(upper.into()) - settings.grid().place(lower.into());
                let narrow = f64::from(upper - lower) / f64::from(upper) <= goal.width + 1e-9;
                prop_assert!(narrow || upper - lower <= places as u32);
            }
        }
    }

    #[test]
    fn a_resumed_search_makes_the_same_decisions(
        settings in any_settings(),
        sparing: bool,
        capacity in 1_u32..3000,
    ) {
        let settings = Settings { sparing, ..settings };
        let (found, trials) = search(&settings, carries(capacity));
        for known in 0..trials.len() {
            let expected = Next::Measure { load: trials[known].load, seconds: trials[known].seconds };
            prop_assert_eq!(next(&settings, &trials[..known]).unwrap(), expected);
        }
        prop_assert_eq!(next(&settings, &trials).unwrap(), Next::SearchResult(found));
    }
}
