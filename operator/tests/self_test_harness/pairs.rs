//! `ladder compare` must tell a service with a known delay from one without, and a service from itself only as rarely as
//! it says.

use bench_format::comparison::{ComparedFigure, ComparisonEnd, ComparisonVerdict, FigureLook};

use crate::run::{Checked, Run, checkout, ensure, start_command};

/// Compares two services of `plans/self-test/pairs.yaml`, at the only tier of a workload.
fn compare(workload: &str, options: &[&str], a: &str, b: &str) -> Run {
    let arguments = ["compare", "--plan", "plans/self-test/pairs.yaml", "--only", workload];
    start_command(&checkout(), &[&arguments, options, &[a, b]].concat(), &[]).finish()
}

/// The deciding figures at the last look.
fn figures(run: &Run) -> Vec<FigureLook> {
    let comparison = run.file().comparison.expect("it is a comparison");
    comparison.progress.looks.last().map(|look| look.figures.clone()).unwrap_or_default()
}

/// Whether a comparison has found that the other side waits for 100 ms and more.
fn finds_the_delay(run: &Run, ratio_is: fn(f64) -> bool) -> Checked {
    let (figures, end) = (figures(run), run.file().comparison.and_then(|comparison| comparison.progress.end));
    ensure(end == Some(ComparisonEnd::Decided), || format!("it ended with {end:?}"))?;
    let [figure] = &figures[..] else { return Err(format!("{figures:?}")) };
    ensure(figure.figure == ComparedFigure::P50OfResponse && figure.verdict == ComparisonVerdict::Differs, || {
        format!("{figure:?}")
    })?;
    ensure(ratio_is(figure.ratio), || format!("the ratio is {}", figure.ratio))
}

#[test]
fn a_side_with_a_known_delay_differs_from_one_without() {
    let options = ["--figure", "p50-of-response"];
    let worse = compare("ping-latency", &options, "self-test-none", "self-test-delay");
    assert_eq!(finds_the_delay(&worse, |ratio| ratio < 0.5), Ok(()), "\n{}", worse.output);
    assert_eq!(worse.exit, Some(1), "B is worse:\n{}", worse.output);
    assert!(finds_the_delay(&worse, |ratio| ratio > 2.0).is_err(), "the check can fail");
    let better = compare("ping-latency", &options, "self-test-delay", "self-test-none");
    assert_eq!(finds_the_delay(&better, |ratio| ratio > 2.0), Ok(()), "\n{}", better.output);
    assert_eq!(better.exit, Some(0), "B is better:\n{}", better.output);
}

#[test]
fn a_service_does_not_differ_from_itself() {
    let measured = || compare("throughput", &["--pairs-at-most", "8"], "self-test-none", "self-test-none");
    let differs = |run: &Run| figures(run).iter().any(|figure| figure.verdict == ComparisonVerdict::Differs);
    let mut run = measured();
    // It may be wrong in 5 % of all comparisons, so in 0.25 % of two.
    if differs(&run) {
        run = measured();
    }
    assert!(!differs(&run), "{}", run.output);
    let found: Vec<ComparedFigure> = figures(&run).iter().map(|figure| figure.figure).collect();
    assert_eq!(found, [ComparedFigure::DeliveredPerSecond, ComparedFigure::CpuPerMillion], "\n{}", run.output);
    assert_eq!(run.file().plan.services, ["self-test-none-a", "self-test-none-b"]);
}
