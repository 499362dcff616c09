//! Formats results as a table, as JSON and as JUnit XML. Pure: the caller writes the files.

use std::fmt::Write;

use serde::Serialize;

use super::{
    case::{CaseResult, Status},
    run::ServiceResult,
    text::excerpt,
};

/// Version of the JSON form.
const SCHEMA: u32 = 2;
/// Lateness of this program from which the table mentions it, in milliseconds.
const LATE_MS: u64 = 50;

/// All results of a run, as written to the JSON file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this form, at present 2.
    pub schema: u32,
    /// One entry per gateway that could be checked, in the order of the command line.
    pub services: Vec<ServiceResult>,
}

impl Report {
    /// Creates the report of these gateways, with the current version.
    pub fn new(services: Vec<ServiceResult>) -> Self {
        Self { schema: SCHEMA, services }
    }

    /// Number of cases with this status, over all gateways.
    pub fn count(&self, status: Status) -> usize {
        self.services.iter().map(|service| service.count(status)).sum()
    }
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Passed => "ok",
        Status::Failed => "FAILED",
        Status::Excepted => "excepted",
        Status::Skipped => "skipped",
    }
}

/// Formats one gateway's results: a line per case, with the evidence below failed and excepted cases, and a summary.
pub fn table(result: &ServiceResult) -> String {
    let width = result.cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut text = format!("{} ({})\n", result.service, result.level.word());
    let never_fails = "a String takes everything";
    for case in &result.cases {
        let CaseResult { name, status, proves, seconds, .. } = case;
        writeln!(text, "  {name:width$}  {:8}  {seconds:6.2} s  {proves}", word(*status)).expect(never_fails);
        let mut below = |label: &str, text_of: &str| {
            writeln!(text, "  {:width$}            {label} {}", "", excerpt(text_of)).expect(never_fails);
        };
        if let Some(reason) = &case.reason {
            below("because", reason);
        }
        if let Some(instead) = &case.instead {
            below("instead, as declared:", instead);
        }
        if let (Status::Failed | Status::Excepted, Some(evidence)) = (status, &case.evidence) {
            below("expected:", &evidence.expected);
            below("seen:", &evidence.seen);
        }
    }
    let count = |status| result.count(status);
    let (passed, failed) = (count(Status::Passed), count(Status::Failed));
    let (excepted, skipped) = (count(Status::Excepted), count(Status::Skipped));
    writeln!(
        text,
        "{}: {passed} passed, {failed} failed, {excepted} excepted, {skipped} skipped in {:.1} s",
        result.service, result.seconds
    )
    .expect(never_fails);
    if result.late_ms >= LATE_MS {
        let late = result.late_ms;
        writeln!(
            text,
            "  the machine kept this program waiting for up to {late} ms: what is about time may be its doing"
        )
        .expect(never_fails);
    }
    text
}

/// Formats a report as JUnit XML: a test suite per gateway, a test case per case.
pub fn junit(report: &Report) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for service in &report.services {
        let (failed, skipped) = (service.count(Status::Failed), service.count(Status::Skipped));
        writeln!(
            xml,
            "  <testsuite name=\"conformance {}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{:.3}\">\n    {}",
            escape(&service.service),
            service.cases.len(),
            service.seconds,
            properties(service)
        )
        .expect("a String takes everything");
        service.cases.iter().for_each(|case| xml += &test_case(&service.service, case));
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

/// JUnit properties of a suite: the level and the declared exceptions.
fn properties(service: &ServiceResult) -> String {
    let property =
        |name: &str, value: &str| format!("<property name=\"{}\" value=\"{}\"/>", escape(name), escape(value));
    let exceptions: String =
        service.exceptions.iter().map(|(case, instead)| property(&format!("exception {case}"), instead)).collect();
    format!("<properties>{}{exceptions}</properties>\n", property("level", service.level.word()))
}

fn test_case(service: &str, case: &CaseResult) -> String {
    let evidence = case.evidence.as_ref().map(|evidence| (escape(&evidence.expected), escape(&evidence.seen)));
    let (expected, observed) = evidence.unwrap_or_default();
    let inside = match case.status {
        Status::Passed => format!("<system-out>expected: {expected}\nseen: {observed}</system-out>"),
        // An excepted case does not count as a failure; its evidence is still reported.
        Status::Excepted => {
            let instead = escape(case.instead.as_deref().unwrap_or_default());
            format!("<system-out>excepted: {instead}\nexpected: {expected}\nseen: {observed}</system-out>")
        }
        Status::Failed => format!("<failure message=\"expected: {expected}\">seen: {observed}</failure>"),
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

/// Escapes a text for XML. Line feeds and tabs become spaces; other control characters, which XML may not contain,
/// become U+FFFD.
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
    use crate::conformance::{
        cases::CASES,
        finding::failed,
        level::{Exceptions, Level},
    };

    fn report() -> Report {
        use crate::conformance::finding::{NotPassed, passed};
        let exceptions = Exceptions::from([("unmasked".into(), "it & ends".into())]);
        let case = |name: &str| CASES.iter().find(|case| case.name == name).unwrap();
        let cases = [
            ("ready", passed("a", "b")),
            ("partial", Err(failed("x < \"y\"", "\u{1}&"))),
            ("metrics", Err(NotPassed::Skipped("no metrics".into()))),
            ("unmasked", Err(failed("Close 1002", "the end"))),
        ]
        .map(|(name, verdict)| CaseResult::new(case(name), verdict, Default::default()).excepted(&exceptions));
        Report::new(vec![ServiceResult {
            service: "one".into(),
            level: Level::Strict,
            seconds: 1.0,
            late_ms: 70,
            exceptions,
            cases: cases.into(),
        }])
    }

    #[test]
    fn the_table_has_a_line_per_case_and_the_evidence_of_failures() {
        let text = table(&report().services[0]);
        for part in [
            "one (strict)",
            "ok",
            "FAILED",
            "skipped",
            "because no metrics",
            "expected: x < \"y\"",
            "instead, as declared: it & ends",
            "seen: the end",
            "1 passed, 1 failed, 1 excepted, 1 skipped",
            "up to 70 ms",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn json_has_level_and_exceptions() {
        let json = serde_json::to_value(report()).unwrap();
        let service = &json["services"][0];
        assert_eq!((&service["level"], &service["exceptions"]["unmasked"]), (&"strict".into(), &"it & ends".into()));
        let case = &service["cases"][3];
        assert_eq!((&case["status"], &case["level"]), (&"excepted".into(), &"strict".into()));
        assert_eq!((&case["instead"], &case["evidence"]["seen"]), (&"it & ends".into(), &"the end".into()));
    }

    #[test]
    fn junit_counts_and_escapes() {
        let xml = junit(&report());
        assert!(xml.contains("tests=\"4\" failures=\"1\" skipped=\"1\""), "{xml}");
        assert!(xml.contains("<property name=\"exception unmasked\" value=\"it &amp; ends\"/>"), "{xml}");
        assert!(xml.contains("<system-out>excepted: it &amp; ends"), "{xml}");
        assert!(
            xml.contains("<failure message=\"expected: x &lt; &quot;y&quot;\">seen: \u{fffd}&amp;</failure>"),
            "{xml}"
        );
    }
}
