//! Results as a table, as JSON and as JUnit XML. Pure.

use std::fmt::Write;

use serde::Serialize;

use super::{
    case::{CaseResult, Status},
    run::ServiceResult,
    text::excerpt,
};

/// The version of the JSON.
const SCHEMA: u32 = 1;
/// From here on our own lateness is worth a word, in milliseconds.
const LATE_MS: u64 = 50;

/// All results of a run, as written to the JSON file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// One entry per gateway.
    pub services: Vec<ServiceResult>,
}

impl Report {
    /// Of these gateways.
    pub fn new(services: Vec<ServiceResult>) -> Self {
        Self { schema: SCHEMA, services }
    }

    /// How many cases of all gateways ended like this.
    pub fn count(&self, status: Status) -> usize {
        self.services.iter().map(|service| service.count(status)).sum()
    }
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Passed => "ok",
        Status::Failed => "FAILED",
        Status::Skipped => "skipped",
    }
}

/// One gateway's cases: a line each, and what was expected and seen below those that failed.
pub fn table(result: &ServiceResult) -> String {
    let width = result.cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut text = format!("{}\n", result.service);
    let takes_everything = "a String takes everything";
    for case in &result.cases {
        let CaseResult { name, status, proves, seconds, .. } = case;
        writeln!(text, "  {name:width$}  {:7}  {seconds:6.2} s  {proves}", word(*status)).expect(takes_everything);
        if let Some(reason) = &case.reason {
            writeln!(text, "  {:width$}           because {reason}", "").expect(takes_everything);
        }
        if let (Status::Failed, Some(evidence)) = (status, &case.evidence) {
            let (expected, seen) = (excerpt(&evidence.expected), excerpt(&evidence.seen));
            writeln!(text, "  {:width$}           expected: {expected}", "").expect(takes_everything);
            writeln!(text, "  {:width$}           seen: {seen}", "").expect(takes_everything);
        }
    }
    let count = |status| result.count(status);
    let (passed, failed, skipped) = (count(Status::Passed), count(Status::Failed), count(Status::Skipped));
    writeln!(
        text,
        "{}: {passed} passed, {failed} failed, {skipped} skipped in {:.1} s",
        result.service, result.seconds
    )
    .expect(takes_everything);
    if result.late_ms >= LATE_MS {
        let late = result.late_ms;
        writeln!(
            text,
            "  the machine kept this program waiting for up to {late} ms: what is about time may be its doing"
        )
        .expect(takes_everything);
    }
    text
}

/// As JUnit XML: a suite per gateway.
pub fn junit(report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for service in &report.services {
        let (failed, skipped) = (service.count(Status::Failed), service.count(Status::Skipped));
        writeln!(
            xml,
            "  <testsuite name=\"conformance {}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{:.3}\">",
            escape(&service.service),
            service.cases.len(),
            service.seconds
        )
        .expect("a String takes everything");
        service.cases.iter().for_each(|case| xml += &test_case(&service.service, case));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

fn test_case(service: &str, case: &CaseResult) -> String {
    let evidence = case.evidence.as_ref().map(|evidence| (escape(&evidence.expected), escape(&evidence.seen)));
    let (expected, seen) = evidence.unwrap_or_default();
    let inside = match case.status {
        Status::Passed => format!("<system-out>expected: {expected}\nseen: {seen}</system-out>"),
        Status::Failed => format!("<failure message=\"expected: {expected}\">seen: {seen}</failure>"),
        Status::Skipped => {
            format!("<skipped message=\"{}\"/>", escape(case.reason.as_deref().unwrap_or_default()))
        }
    };
    format!(
        "    <testcase classname=\"{}\" name=\"{}: {}\" time=\"{:.3}\">{inside}</testcase>\n",
        escape(service),
        case.name,
        escape(case.proves),
        case.seconds
    )
}

/// What XML can hold: its own signs escaped, and control characters, which no XML may contain, replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(' '),
            character if character.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&character) => {
                escaped.push('\u{fffd}')
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{cases::CASES, finding::failed};

    fn report() -> Report {
        use crate::conformance::finding::{Trouble, passed};
        let verdicts =
            [passed("a", "b"), Err(failed("x < \"y\"", "\u{1}&")), Err(Trouble::Skipped("no metrics".into()))];
        let cases =
            verdicts.into_iter().zip(CASES).map(|(verdict, case)| CaseResult::new(case, verdict, Default::default()));
        Report::new(vec![ServiceResult { service: "one".into(), seconds: 1.0, late_ms: 70, cases: cases.collect() }])
    }

    #[test]
    fn the_table_has_a_line_per_case_and_the_evidence_of_failures() {
        let text = table(&report().services[0]);
        for part in [
            "ok",
            "FAILED",
            "skipped",
            "because no metrics",
            "expected: x < \"y\"",
            "1 passed, 1 failed, 1 skipped",
            "up to 70 ms",
            "up to 70 ms",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn junit_counts_and_escapes() {
        let xml = junit(&report());
        assert!(xml.contains("tests=\"3\" failures=\"1\" skipped=\"1\""), "{xml}");
        assert!(
            xml.contains("<failure message=\"expected: x &lt; &quot;y&quot;\">seen: \u{fffd}&amp;</failure>"),
            "{xml}"
        );
    }
}
