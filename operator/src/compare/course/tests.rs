use bench_format::comparison::{ComparedSide, SideSource};

use super::*;
use ComparedFigure::{CpuPerMillion, DeliveredPerSecond, P99OfResponse};

fn comparison(pairs_at_most: u32, asked: &[ComparedFigure]) -> Comparison {
    let side = |name| ComparedSide {
        service: Name::from_static(name),
        registered: Name::from_static(name),
        source: SideSource::Registry,
        commit: String::new(),
    };
    Comparison {
        a: side("ours"),
        b: side("theirs"),
        workload: Name::from_static("throughput"),
        variant: Name::from_static("standard"),
        tier: 10,
        pairs_at_most,
        asked: asked.to_vec(),
        progress: ComparisonProgress::default(),
    }
}

const CLOSED: Load = Load::Closed { messages_per_connection: None, in_flight: 1 };

/// Measures until the comparison ends; `measure` gives the outcome of a trial.
fn run(comparison: &Comparison, mut measure: impl FnMut(&TrialId) -> Result<ProcessFigures, String>) -> Ran {
    let mut trials: Vec<FinishedTrial> = Vec::new();
    loop {
        let course = Course::after(comparison, &CLOSED, &trials).unwrap();
        let Some(trial) = course.next() else { return Ran { trials, progress: course.into_progress() } };
        let outcome = measure(&trial);
        trials.push(FinishedTrial { trial, outcome });
    }
}

struct Ran {
    trials: Vec<FinishedTrial>,
    progress: ComparisonProgress,
}

impl Ran {
    fn verdicts(&self) -> Vec<ComparisonVerdict> {
        self.progress.looks.last().unwrap().figures.iter().map(|figure| figure.verdict).collect()
    }

    /// The sides in the order of their trials: `ABBA`.
    fn order(&self) -> String {
        let letter = |one: &FinishedTrial| if one.trial.service == "ours" { 'A' } else { 'B' };
        self.trials.iter().map(letter).collect()
    }
}

fn figures(rate: f64, cpu: f64) -> Result<ProcessFigures, String> {
    let values = [(DeliveredPerSecond, rate), (CpuPerMillion, cpu)].into();
    Ok(ProcessFigures { values, generator_bound: false })
}

/// Noise of about `cv` that depends on the seed and the trial only.
fn noise(seed: u64, trial: &TrialId, cv: f64) -> f64 {
    let text = format!("{seed}/{trial}");
    let hash = |salt: u64| {
        let start = 0xcbf2_9ce4_8422_2325 ^ salt;
        let mixed = text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        // The last bytes of a text hardly reach the upper bits of FNV.
        ((mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64
    };
    // A sum of twelve uniform values has a standard deviation of 1.
    (((0..12).map(hash).sum::<f64>() - 6.0) * cv).exp()
}

#[test]
fn the_order_turns_with_each_pair_and_every_pair_has_fresh_processes() {
    let ran = run(&comparison(5, &[]), |trial| figures(100.0 * noise(1, trial, 0.2), 1.0 * noise(2, trial, 0.2)));
    assert_eq!(ran.order(), "ABBAABBAAB");
    let processes: Vec<u32> = ran.trials.iter().map(|one| one.trial.process).collect();
    assert_eq!(processes, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
}

#[test]
fn a_clear_difference_ends_with_the_fifth_pair() {
    let measure = |trial: &TrialId| {
        let factor = if trial.service == "ours" { 1.0 } else { 0.8 };
        figures(factor * 100.0 * noise(1, trial, 0.01), noise(2, trial, 0.01) / factor)
    };
    let ran = run(&comparison(60, &[]), measure);
    assert_eq!(ran.progress.end, Some(ComparisonEnd::Decided));
    assert_eq!(ran.verdicts(), [ComparisonVerdict::Differs; 2]);
    let last = ran.progress.looks.last().unwrap();
    assert!(ran.progress.looks.len() <= 6, "{last:?}");
    assert!((last.figures[0].ratio - 1.25).abs() < 0.05 && b_is_worse(&last.figures[0]), "{last:?}");
    assert!((last.figures[1].ratio - 0.8).abs() < 0.05 && b_is_worse(&last.figures[1]), "more CPU is worse: {last:?}");
    let ratio = last.figures[0].a / last.figures[0].b;
    assert!((ratio - last.figures[0].ratio).abs() < 1e-9, "the columns give the ratio");
}

#[test]
fn a_service_against_itself_is_rarely_said_to_differ() {
    let (mut differs, mut same, mut pairs) = (0, 0, 0);
    for seed in 0..200 {
        let measure = |trial: &TrialId| figures(100.0 * noise(2 * seed, trial, 0.03), noise(2 * seed + 1, trial, 0.03));
        let ran = run(&comparison(60, &[]), measure);
        differs += usize::from(ran.verdicts().contains(&ComparisonVerdict::Differs));
        same += usize::from(ran.verdicts() == [ComparisonVerdict::Same; 2]);
        pairs += ran.progress.looks.len();
    }
    // 5 % would be 10; the bound of all looks is far from sharp.
    assert!(differs <= 6 && same >= 190, "{differs} differ, {same} are the same");
    assert!((10..25).contains(&(pairs / 200)), "{} pairs on average", pairs / 200);
}

#[test]
fn figures_share_the_level_so_that_two_need_wider_intervals_than_one() {
    let measure = |trial: &TrialId| figures(100.0 * noise(1, trial, 0.05), noise(2, trial, 0.05));
    let width = |asked: &[ComparedFigure]| {
        let ran = run(&comparison(12, asked), measure);
        let RatioInterval { low, high } = ran.progress.looks[5].figures[0].interval.unwrap();
        high / low
    };
    assert!(width(&[DeliveredPerSecond, CpuPerMillion]) > width(&[DeliveredPerSecond]));
}

#[test]
fn a_decided_figure_stays_decided_while_another_one_is_measured() {
    // Six pairs with a clear difference in the rate, which later pairs take back.
    let measure = |trial: &TrialId| {
        let factor = if trial.service == "ours" && trial.process <= 6 { 1.3 } else { 1.0 };
        figures(factor * 100.0 * noise(1, trial, 0.001), noise(2, trial, 0.3))
    };
    let ran = run(&comparison(30, &[]), measure);
    assert_eq!(ran.progress.end, Some(ComparisonEnd::PairsAtMost));
    let last = ran.progress.looks.last().unwrap();
    assert_eq!(ran.verdicts(), [ComparisonVerdict::Differs, ComparisonVerdict::NotShown]);
    assert_eq!((last.figures[0].pairs, last.figures[1].pairs), (6, 30));
    assert!(last.figures[0].pairs_needed.is_none() && last.figures[1].pairs_needed.is_some_and(|pairs| pairs > 30));
}

#[test]
fn an_invalid_trial_drops_its_pair_which_is_measured_again_in_the_same_order() {
    let measure = |trial: &TrialId| match (trial.process, trial.service.as_str()) {
        (2, "theirs") | (5, "ours") => Err("the machine was busy".into()),
        _ => figures(100.0 * noise(1, trial, 0.001), noise(2, trial, 0.001)),
    };
    let ran = run(&comparison(60, &[]), measure);
    // AB, B, BA, AB, BA, BA, AB, BA: the second pair begins with B, which is invalid, so that A isn't measured.
    assert_eq!(ran.order(), "ABBBAABBABAABBA");
    let dropped: Vec<(u32, &str)> =
        ran.progress.dropped.iter().map(|pair| (pair.pair, pair.service.as_str())).collect();
    assert_eq!(dropped, [(2, "theirs"), (5, "ours")]);
    let counted: Vec<u32> = ran.progress.looks.iter().map(|look| look.pair).collect();
    assert_eq!(counted, [1, 3, 4, 6, 7, 8]);
    assert_eq!(ran.progress.end, Some(ComparisonEnd::Decided));
}

#[test]
fn a_side_that_never_counts_ends_the_comparison_with_the_reason() {
    let measure = |trial: &TrialId| match trial.service.as_str() {
        "ours" => figures(1.0, 1.0),
        _ => Err("it did not become ready".into()),
    };
    let ran = run(&comparison(60, &[]), measure);
    let Some(ComparisonEnd::NotComparable { reason }) = &ran.progress.end else { panic!("{:?}", ran.progress) };
    assert_eq!(reason, "5 pairs in a row don't count; the last, of theirs: it did not become ready");
    assert_eq!(ran.trials.len(), 10);
}

#[test]
fn a_side_that_often_fails_ends_the_comparison_after_twice_its_pairs() {
    let measure = |trial: &TrialId| match trial.process % 3 {
        0 => figures(100.0 * noise(1, trial, 0.3), noise(2, trial, 0.3)),
        _ => Err("busy".into()),
    };
    let ran = run(&comparison(6, &[]), measure);
    let Some(ComparisonEnd::NotComparable { reason }) = &ran.progress.end else { panic!("{:?}", ran.progress) };
    assert!(reason.starts_with("only 4 of 12 pairs count"), "{reason}");
    assert!(ran.trials.iter().all(|one| one.trial.process <= 12));
}

#[test]
fn a_figure_that_the_results_lack_is_named_with_those_that_they_have() {
    let ran = run(&comparison(60, &[P99OfResponse]), |_| figures(1.0, 1.0));
    let Some(ComparisonEnd::NotComparable { reason }) = &ran.progress.end else { panic!("{:?}", ran.progress) };
    let expected = "no p99-of-response in its result, which has delivered-per-second, cpu-per-million";
    assert!(reason.ends_with(expected), "{reason}");
}

#[test]
fn rates_that_the_generator_limits_decide_nothing_and_end_the_comparison() {
    let bound = |sides: &'static [&'static str]| {
        move |trial: &TrialId| {
            let factor = if trial.service == "ours" { 1.0 } else { 0.8 };
            let figures = figures(factor * 100.0 * noise(1, trial, 0.001), noise(2, trial, 0.001))?;
            Ok(ProcessFigures { generator_bound: sides.contains(&trial.service.as_str()), ..figures })
        }
    };
    let verdict = |sides| run(&comparison(60, &[DeliveredPerSecond]), bound(sides)).verdicts()[0];
    assert_eq!(verdict(&["ours", "theirs"]), ComparisonVerdict::GeneratorBound);
    assert_eq!(verdict(&["theirs"]), ComparisonVerdict::GeneratorBound, "the smaller one may be larger");
    assert_eq!(verdict(&["ours"]), ComparisonVerdict::Differs, "the larger one can only be larger still");
    let cpu = run(&comparison(60, &[CpuPerMillion]), bound(&["ours", "theirs"]));
    assert_eq!(cpu.verdicts(), [ComparisonVerdict::Same], "a cost is no rate");
}

#[test]
fn a_comparison_goes_on_where_it_stopped_and_refuses_other_trials() {
    let comparison = comparison(60, &[]);
    let ran = run(&comparison, |trial| figures(100.0 * noise(1, trial, 0.02), noise(2, trial, 0.02)));
    for stopped in 0..ran.trials.len() {
        let course = Course::after(&comparison, &CLOSED, &ran.trials[..stopped]).unwrap();
        assert_eq!(course.next().as_ref(), Some(&ran.trials[stopped].trial));
    }
    let mut other = ran.trials.clone();
    other.swap(2, 3);
    let error = Course::after(&comparison, &CLOSED, &other).unwrap_err();
    assert_eq!((error.number, error.planned.starts_with("measure theirs/")), (3, true), "{error}");
    other = ran.trials.clone();
    other.push(ran.trials[0].clone());
    assert!(Course::after(&comparison, &CLOSED, &other).unwrap_err().to_string().contains("have ended before it"));
}

#[test]
fn figures_beside_the_deciding_ones_are_over_the_pairs_that_count() {
    let mut comparison = comparison(60, &[CpuPerMillion]);
    let ran = run(&comparison, |trial| match trial.process {
        1 => Err("busy".into()),
        _ => figures(if trial.service == "ours" { 90.0 } else { 100.0 }, noise(2, trial, 0.001)),
    });
    comparison.progress = ran.progress.clone();
    let found = beside(&comparison, &ran.trials);
    assert_eq!(found.len(), 1);
    let (figure, a, b, pairs) = found[0];
    assert_eq!((figure, pairs), (DeliveredPerSecond, ran.progress.looks.len()));
    assert!((a - 90.0).abs() < 1e-9 && (b - 100.0).abs() < 1e-9);
}
