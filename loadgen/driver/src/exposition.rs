//! Reads the Prometheus text format (0.0.4, and the quoted names of 1.0.0) and OpenMetrics, as far as sums of samples
//! need them. Pure.
//!
//! Help, types, timestamps and exemplars are skipped. A line that is not a sample is an error, so that an error page
//! doesn't look like a page without the counter.

use std::str::FromStr;

/// The largest count: up to it, a float has every whole number, and sums of counts don't overflow.
pub const LARGEST_COUNT: u64 = 1 << 53;

/// Why a page can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// A line is not a sample.
    #[error("line {line} is not a sample of the Prometheus text format: {reason}")]
    Malformed {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value is not a count.
    #[error(
        "the value of {name} in line {line} is {value}, which is not a count; name a counter, or a gauge of whole numbers"
    )]
    NoCount {
        /// Number of the line, from 1.
        line: usize,
        /// Name of the sample.
        name: String,
        /// The value as it stands there.
        value: String,
    },
}

/// A label's name and value.
type Label = (String, String);

/// One sample of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Name of the sample: that of its metric, or with a suffix such as `_total`.
    pub name: String,
    /// Labels with their values, in the order of the page.
    pub labels: Vec<(String, String)>,
    /// The value as it stands there.
    pub value: &'a str,
}

/// Which samples are added up: those with this name that have all these labels. Further labels don't matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    name: String,
    labels: Vec<Label>,
}

/// Why a text does not name samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; give a name of samples, with labels if it needs them: app_messages_total{{direction=\"in\"}}")]
pub struct SelectorError(&'static str);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut cursor = Cursor(text.trim());
        let (name, labels) = cursor.series().map_err(SelectorError)?;
        cursor.skip_blanks();
        if !cursor.0.is_empty() {
            return Err(SelectorError("something follows the name and its labels"));
        }
        Ok(Self { name, labels })
    }
}

impl Selector {
    /// Selects the samples of a name, with any labels.
    pub fn of_name(name: &str) -> Self {
        Self { name: name.into(), labels: Vec::new() }
    }

    /// Whether a sample is selected. A label that a sample doesn't have is the same as an empty one.
    pub fn selects(&self, sample: &Sample<'_>) -> bool {
        let value_of = |name: &str| sample.labels.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value);
        self.name == sample.name && self.labels.iter().all(|(name, value)| value_of(name) == value)
    }
}

/// The samples of a page with the numbers of their lines.
pub fn samples(page: &str) -> impl Iterator<Item = Result<(usize, Sample<'_>), ExpositionError>> {
    page.lines().enumerate().filter_map(|(index, line)| {
        let line_number = index + 1;
        let malformed = |reason| ExpositionError::Malformed { line: line_number, reason };
        sample(line).map_err(malformed).map(|sample| Some((line_number, sample?))).transpose()
    })
}

/// The sum of the selected samples for each selector; `None` where none is selected.
///
/// # Errors
/// [`ExpositionError`] for the first line that is not a sample, or whose value is selected and is not a count.
pub fn sums(page: &str, selectors: &[Selector]) -> Result<Vec<Option<u64>>, ExpositionError> {
    let mut sums = vec![None; selectors.len()];
    for found in samples(page) {
        let (line, sample) = found?;
        for (sum, selector) in sums.iter_mut().zip(selectors) {
            if selector.selects(&sample) {
                let so_far: u64 = sum.unwrap_or(0);
                let added = count(sample.value).map(|count| so_far + count).filter(|sum| *sum <= LARGEST_COUNT);
                let no_count =
                    || ExpositionError::NoCount { line, name: sample.name.clone(), value: sample.value.into() };
                *sum = Some(added.ok_or_else(no_count)?);
            }
        }
    }
    Ok(sums)
}

/// A value as a count; `None` if it is negative, not whole, or beyond [`LARGEST_COUNT`].
fn count(value: &str) -> Option<u64> {
    let float: f64 = value.parse().ok()?;
    ((0.0..=LARGEST_COUNT as f64).contains(&float) && float.fract() == 0.0).then_some(float as u64)
}

/// The sample of a line; `None` for an empty line and a comment.
fn sample(line: &str) -> Result<Option<Sample<'_>>, &'static str> {
    let mut cursor = Cursor(line.trim());
    if cursor.0.is_empty() || cursor.0.starts_with('#') {
        return Ok(None);
    }
    let (name, labels) = cursor.series()?;
    let value = cursor.token();
    if value.parse::<f64>().is_err() {
        return Err("no number follows the name");
    }
    let timestamp = cursor.token();
    let is_exemplar = timestamp == "#";
    let has_timestamp = timestamp.is_empty() || is_exemplar || timestamp.parse::<f64>().is_ok();
    let ends = is_exemplar || matches!(cursor.token(), "" | "#");
    if has_timestamp && ends { Ok(Some(Sample { name, labels, value })) } else { Err("more follows the value") }
}

/// The rest of a line.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start();
    }

    /// Takes a character if it is the next one.
    fn take(&mut self, character: char) -> bool {
        match self.0.strip_prefix(character) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Takes everything up to the next blank.
    fn token(&mut self) -> &'a str {
        self.skip_blanks();
        let (token, rest) = self.0.split_at(self.0.find(char::is_whitespace).unwrap_or(self.0.len()));
        self.0 = rest;
        token
    }

    /// Takes a name; empty if there is none.
    fn name(&mut self) -> &'a str {
        let is_part = |(index, character): (usize, char)| match character {
            '0'..='9' => index > 0,
            _ => character.is_ascii_alphabetic() || matches!(character, '_' | ':'),
        };
        let end = self.0.char_indices().find(|part| !is_part(*part)).map_or(self.0.len(), |(index, _)| index);
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        name
    }

    /// Takes a text in quotes, without them and with its escapes resolved; `None` if there is none.
    fn quoted(&mut self) -> Result<Option<String>, &'static str> {
        if !self.take('"') {
            return Ok(None);
        }
        let mut text = String::new();
        let mut rest = self.0.char_indices();
        while let Some((index, character)) = rest.next() {
            match character {
                '"' => {
                    self.0 = &self.0[index + 1..];
                    return Ok(Some(text));
                }
                '\\' => match rest.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, escaped @ ('\\' | '"'))) => text.push(escaped),
                    // As Prometheus reads it.
                    Some((_, other)) => text.extend(['\\', other]),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Err("a quote is not closed")
    }

    /// Takes a name and the labels that may follow it. A name in quotes stands among the labels.
    fn series(&mut self) -> Result<(String, Vec<Label>), &'static str> {
        let mut name = self.name().to_owned();
        let mut labels = Vec::new();
        self.skip_blanks();
        if self.take('{') {
            self.labels(&mut name, &mut labels)?;
        }
        if name.is_empty() { Err("it begins with no name") } else { Ok((name, labels)) }
    }

    fn labels(&mut self, name: &mut String, labels: &mut Vec<Label>) -> Result<(), &'static str> {
        loop {
            self.skip_blanks();
            if self.take('}') {
                return Ok(());
            }
            let quoted = self.quoted()?;
            let is_quoted = quoted.is_some();
            let label = quoted.unwrap_or_else(|| self.name().to_owned());
            self.skip_blanks();
            if self.take('=') {
                self.skip_blanks();
                let value = self.quoted()?.ok_or("the value of a label is not in quotes")?;
                if label.is_empty() {
                    return Err("a label has no name");
                }
                labels.push((label, value));
            } else if is_quoted && name.is_empty() {
                *name = label;
            } else {
                return Err("no = follows the name of a label");
            }
            self.skip_blanks();
            if !self.take(',') && !self.0.starts_with('}') {
                return Err("no comma follows a label");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(page: &str, selector: &str) -> Result<Option<u64>, String> {
        let selectors = [selector.parse::<Selector>().unwrap()];
        sums(page, &selectors).map(|sums| sums[0]).map_err(|error| error.to_string())
    }

    /// The example of Prometheus's documentation, with its exotic lines, and a part of that of OpenMetrics.
    const PAGE: &str = r#"# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000

msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE.TXT\""} 1.458255915e9
metric_without_timestamp_and_labels 12.47
something_weird{problem="division by zero"} +Inf -3982045
rpc_duration_seconds{quantile="0.01"} 3102
foo_bucket{le="0.01"} 0
foo_bucket{le="+Inf"} 17 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67 1520879606.0
foo_count 17 # {} 9.8
{"app.messages", direction="in" , } 1e3
# EOF
"#;

    #[test]
    fn samples_of_a_name_and_its_labels_are_added_up() {
        assert_eq!(sum(PAGE, "http_requests_total"), Ok(Some(1030)));
        assert_eq!(sum(PAGE, r#"http_requests_total{code="400"}"#), Ok(Some(3)));
        assert_eq!(sum(PAGE, r#"http_requests_total{ method = "post", code="200", }"#), Ok(Some(1027)));
        assert_eq!(sum(PAGE, r#"http_requests_total{code="500"}"#), Ok(None));
        assert_eq!(sum(PAGE, r#"foo_bucket{le="+Inf"}"#), Ok(Some(17)));
        assert_eq!(sum(PAGE, r#"foo_count{handler=""}"#), Ok(Some(17)), "a missing label is an empty one");
        assert_eq!(sum(PAGE, r#"{"app.messages"}"#), Ok(Some(1000)));
    }

    #[test]
    fn escapes_and_labels_are_read_as_prometheus_reads_them() {
        let all: Vec<Sample<'_>> = samples(PAGE).map(|found| found.unwrap().1).collect();
        assert_eq!(all.len(), 10);
        assert_eq!(all[2].labels[0].1, r"C:\DIR\FILE.TXT");
        assert_eq!(all[2].labels[1].1, "Cannot find file:\n\"FILE.TXT\"");
        assert_eq!((all[9].name.as_str(), all[9].value), ("app.messages", "1e3"));
    }

    #[test]
    fn only_whole_numbers_are_counts() {
        for (value, expected) in [("1.234567e+06", 1_234_567), ("0", 0), ("9007199254740992", 1 << 53), ("7.0", 7)] {
            assert_eq!(sum(&format!("a {value}"), "a"), Ok(Some(expected)), "{value}");
        }
        for value in ["-1", "0.5", "NaN", "+Inf", "1e300", "9007199254740994"] {
            let message = sum(&format!("b 1\na {value}"), "a").unwrap_err();
            assert!(
                message.starts_with(&format!("the value of a in line 2 is {value}, which is not a count")),
                "{message}"
            );
            assert_eq!(sum(&format!("b 1\na {value}"), "b"), Ok(Some(1)), "a value that no selector names");
        }
        assert!(sum("a 9007199254740992\na 1", "a").is_err(), "a sum that is too large");
    }

    #[test]
    fn a_page_in_another_format_is_an_error_with_its_line() {
        for (page, message) in [
            ("<html>", "line 1 is not a sample of the Prometheus text format: it begins with no name"),
            ("a 1\nNot Found", "line 2 is not a sample of the Prometheus text format: no number follows the name"),
            ("a{b=\"c} 1", "line 1 is not a sample of the Prometheus text format: a quote is not closed"),
            ("a{b=1} 1", "line 1 is not a sample of the Prometheus text format: the value of a label is not in quotes"),
            ("a{b} 1", "line 1 is not a sample of the Prometheus text format: no = follows the name of a label"),
            ("a{b=\"1\" c=\"2\"} 1", "line 1 is not a sample of the Prometheus text format: no comma follows a label"),
            ("a 1 2 3", "line 1 is not a sample of the Prometheus text format: more follows the value"),
            ("{\"a\":1}", "line 1 is not a sample of the Prometheus text format: no comma follows a label"),
        ] {
            assert_eq!(sum(page, "a"), Err(message.to_owned()), "{page}");
        }
    }

    #[test]
    fn a_selector_that_is_none_is_refused_with_an_example() {
        for text in ["", "a b", "a{", "a{b!=\"c\"}", "a{b=~\"c\"}", "sum(a)", "{b=\"c\"}"] {
            let message = text.parse::<Selector>().unwrap_err().to_string();
            assert!(message.ends_with("app_messages_total{direction=\"in\"}"), "{text}: {message}");
        }
    }

    proptest! {
        /// What the harness's own services write is read back, with any label.
        #[test]
        fn what_our_services_write_is_read_back(label in "\\PC{0,12}", counts in prop::collection::vec(any::<u32>(), 1..5)) {
            let mut text = bench_format::service::Exposition::default();
            let labels = (0..counts.len()).map(|index| format!("{label}{index}"));
            text.counters("a_total", &label, "b", labels.zip(counts.iter().map(|count| u64::from(*count))));
            let page = text.into_text();
            let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            prop_assert_eq!(sums(&page, &[Selector::of_name("a_total")]), Ok(vec![Some(all)]));
            let last = counts.len() - 1;
            let selector = Selector { name: "a_total".into(), labels: vec![("b".into(), format!("{label}{last}"))] };
            prop_assert_eq!(sums(&page, &[selector]), Ok(vec![Some(u64::from(counts[last]))]));
        }

        /// No text makes the parser panic, and each line is a sample, an error or nothing.
        #[test]
        fn any_text_is_read_or_refused(page in "[a-c{}=\",\\\\# 0-9.e+\n-]{0,60}") {
            let found = samples(&page).count();
            prop_assert!(found <= page.lines().count());
        }

        /// A selector names the samples that a page has in the same notation.
        #[test]
        fn a_sample_is_selected_by_its_own_text(name in "[a-z_:][a-z0-9_:]{0,8}", value in "[a-z0-9 ]{0,8}") {
            let series = format!("{name}{{in=\"{value}\"}}");
            let selectors = [series.parse::<Selector>().unwrap()];
            prop_assert_eq!(sums(&format!("{series} 4\n{name}{{in=\"other{value}\"}} 8\n"), &selectors), Ok(vec![Some(4)]));
        }
    }
}
