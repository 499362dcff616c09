//! The page of a described service's counters: each line is a sample, an error or nothing, a sample is found by its own name
//! and labels, and sums are counts.
#![no_main]

use driver::exposition::{LARGEST_COUNT, Sample, Selector, samples, sums};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (text, page) = input;
    let selector = text.parse::<Selector>();
    let found: Vec<(usize, Sample<'_>)> = samples(page).flatten().collect();
    for (line, sample) in &found {
        assert!(*line >= 1 && !sample.name.is_empty());
        assert!(Selector::of_name(&sample.name).selects(sample));
    }
    let Ok(selector) = selector else { return };
    let selected = found.iter().filter(|(_, sample)| selector.selects(sample)).count();
    if let Ok(sums) = sums(page, std::slice::from_ref(&selector)) {
        assert_eq!(sums[0].is_some(), selected > 0);
        assert!(sums[0].is_none_or(|sum| sum <= LARGEST_COUNT));
    }
});
