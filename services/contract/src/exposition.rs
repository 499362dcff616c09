//! The Prometheus text format of `/metrics`. The names of the metrics are in [`crate::metrics`].

use std::fmt::{Display, Write as _};

/// Prometheus text (format 0.0.4), written one metric family at a time.
///
/// Each family follows its help and type lines without interruption. One space separates a sample's name from its
/// value, because scripts written for the reference implementation split the line there.
#[derive(Clone, Debug, Default)]
pub struct Exposition(String);

/// A value of a sample. It is written without a decimal point if it is a whole number, also as an `f64`.
pub trait Number: Display {}

impl Number for u64 {}
impl Number for usize {}
impl Number for f64 {}

/// The number of observations in each bucket of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    /// The largest value of each bucket except the last, which has no bound.
    pub bounds: &'a [f64],
    /// Observations in each bucket alone, not cumulative. There is one more count than bounds.
    pub counts: &'a [u64],
    /// Sum of all observed values.
    pub sum: f64,
}

impl Exposition {
    /// Writes a counter: a value that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Number) {
        self.head(name, help, "counter");
        self.sample(name, value);
    }

    /// Writes a gauge: a value that grows and shrinks.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Number) {
        self.head(name, help, "gauge");
        self.sample(name, value);
    }

    /// Writes a family of counters, one for each value of a label.
    pub fn counters<Value: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl IntoIterator<Item = (Value, u64)>,
    ) {
        self.head(name, help, "counter");
        for (value, count) in counts {
            self.labelled(name, label, value.as_ref(), count);
        }
    }

    /// Writes a histogram, with cumulative buckets.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram<'_>) {
        self.head(name, help, "histogram");
        let (bucket, mut count) = (format!("{name}_bucket"), 0);
        let bounds = histogram.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, within) in bounds.zip(histogram.counts) {
            count += within;
            self.labelled(&bucket, "le", &bound, count);
        }
        self.sample(&format!("{name}_sum"), histogram.sum);
        self.sample(&format!("{name}_count"), count);
    }

    /// The complete text, for the response to `GET /metrics`.
    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, value: impl Number) {
        self.line(format_args!("{name} {value}"));
    }

    /// Writes a sample with a label. The label's value is escaped, because a client may have chosen it (the name of a
    /// topic).
    fn labelled(&mut self, name: &str, label: &str, value: &str, count: u64) {
        let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        self.line(format_args!("{name}{{{label}=\"{value}\"}} {count}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a String cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Exposition)) -> String {
        let mut text = Exposition::default();
        write(&mut text);
        text.into_text()
    }

    #[test]
    fn a_family_has_its_help_and_its_type_before_its_samples() {
        let counter = text(|text| text.counter("a_total", "All of it", 7_u64));
        assert_eq!(counter, "# HELP a_total All of it\n# TYPE a_total counter\na_total 7\n");
        let gauge = text(|text| text.gauge("a", "Some of it", 2_usize));
        assert_eq!(gauge, "# HELP a Some of it\n# TYPE a gauge\na 2\n");
    }

    #[test]
    fn each_label_value_has_its_sample_after_one_head() {
        let counters = text(|text| text.counters("a_total", "By b", "b", [("x", 1), ("y", 0)]));
        assert_eq!(counters, "# HELP a_total By b\n# TYPE a_total counter\na_total{b=\"x\"} 1\na_total{b=\"y\"} 0\n");
        let none = text(|text| text.counters("a_total", "By b", "b", [("", 0); 0]));
        assert_eq!(none, "# HELP a_total By b\n# TYPE a_total counter\n");
    }

    #[test]
    fn label_values_and_help_texts_are_escaped() {
        let counters = text(|text| text.counters("a", "b", "topic", [("x\"} 9\ny\\n", 1)]));
        assert_eq!(counters.lines().last(), Some(r#"a{topic="x\"} 9\ny\\n"} 1"#));
        let help = text(|text| text.gauge("a", "b\\c\nd", 1_u64));
        assert_eq!(help.lines().next(), Some(r"# HELP a b\\c\nd"));
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let histogram = Histogram { bounds: &[0.000_25, 0.5, 5.0], counts: &[2, 0, 1, 4], sum: 30.25 };
        let expected = "# HELP a b\n# TYPE a histogram\na_bucket{le=\"0.00025\"} 2\na_bucket{le=\"0.5\"} 2\n\
            a_bucket{le=\"5\"} 3\na_bucket{le=\"+Inf\"} 7\na_sum 30.25\na_count 7\n";
        assert_eq!(text(|text| text.histogram("a", "b", &histogram)), expected);
    }

    #[test]
    fn numbers_are_exact_and_one_space_precedes_them() {
        let text = text(|text| {
            text.counter("a", "b", u64::MAX);
            text.gauge("c", "d", 1e21);
            text.gauge("e", "f", 3.0);
        });
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["a 18446744073709551615", "c 1000000000000000000000", "e 3"]);
    }
}
