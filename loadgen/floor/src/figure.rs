//! A figure of a run, and the figures of a histogram.

use bench_format::histogram::{Histogram, Recorder, percentile_ns};

/// A figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Value of the figure; absent if there were too few samples.
    pub value: Option<f64>,
}

/// The 50th and 99th percentile of a histogram, under these names.
pub(crate) fn percentiles(names: [&'static str; 2], histogram: Option<&Histogram>) -> Vec<Figure> {
    let values = histogram.and_then(|histogram| Recorder::decode(histogram).ok());
    let figure = |(name, at)| {
        let value = values.as_ref().and_then(|values| percentile_ns(values, at)).map(|ns| ns as f64);
        Figure { name, unit: "ns", value }
    };
    names.into_iter().zip([50.0, 99.0]).map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_without_enough_samples_has_no_value() {
        let mut values = Recorder::new();
        (1..=400).for_each(|value| values.record(value));
        let few: Vec<_> = percentiles(["a", "b"], Some(&values.encode())).iter().map(|figure| figure.value).collect();
        assert_eq!(few, [Some(200.0), None]);
        assert!(percentiles(["a", "b"], None).iter().all(|figure| figure.value.is_none()));
    }
}
