//! The outcome of `ladder verify`: a check has a summary, its findings, and what could not be checked.

use std::{fmt::Write, path::PathBuf};

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Number of findings of one check that are printed. `--json` has all of them.
const MOST_PRINTED: usize = 50;
/// Width of the column of checks' names.
const WIDTH: usize = 11;

/// All checks of a bundle.
#[derive(Clone, Debug)]
pub struct Report {
    /// The bundle's folder, as it was given.
    pub bundle: PathBuf,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

/// One check of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// What was checked, with counts.
    pub summary: String,
    /// What is wrong, each with its place.
    pub findings: Vec<Finding>,
    /// What could not be checked, each with the reason.
    pub not_checked: Vec<String>,
    /// Whether a bundle is verified although something of this check could not be checked.
    #[serde(skip)]
    pub optional: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Path of the file in the bundle.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Check {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// A check with one finding.
    pub(super) fn failed(name: &'static str, place: &str, reason: String) -> Self {
        let mut check = Self::new(name);
        check.find(place, reason);
        check
    }

    /// A check that could not be made.
    pub(super) fn skipped(name: &'static str, reason: &str) -> Self {
        Self { not_checked: vec![reason.into()], ..Self::new(name) }
    }

    pub(super) fn find(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), reason: reason.into() });
    }

    /// Whether nothing is wrong and nothing that is needed was left unchecked.
    pub fn holds(&self) -> bool {
        self.findings.is_empty() && (self.optional || self.not_checked.is_empty())
    }

    fn state(&self) -> &'static str {
        match (self.findings.is_empty(), self.not_checked.is_empty(), self.summary.is_empty()) {
            (false, _, _) => "FAILED",
            (true, false, true) => "skipped",
            (true, false, false) => "partly",
            (true, true, _) => "ok",
        }
    }
}

impl Report {
    /// Whether the bundle is what its run left.
    pub fn verified(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    /// The report for the terminal: a line for each check, finding, and thing that was not checked.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            line(&mut text, &format!("{:8}{:WIDTH$}{}", check.state(), check.name, check.summary));
            for Finding { place, reason } in check.findings.iter().take(MOST_PRINTED) {
                line(&mut text, &format!("        {place}: {reason}"));
            }
            let more = check.findings.len().saturating_sub(MOST_PRINTED);
            if more > 0 {
                line(&mut text, &format!("        and {more} more; --json prints all"));
            }
            for reason in &check.not_checked {
                line(&mut text, &format!("        not checked: {reason}"));
            }
        }
        line(&mut text, &format!("{}: {}", self.bundle.display(), self.conclusion()));
        text
    }

    fn conclusion(&self) -> String {
        let findings: usize = self.checks.iter().map(|check| check.findings.len()).sum();
        let unchecked: usize = self.checks.iter().map(|check| check.not_checked.len()).sum();
        let unchecked = if unchecked > 0 { format!("; not checked: {unchecked}") } else { String::new() };
        match self.verified() {
            true => format!("verified{unchecked}"),
            false => format!("not verified; findings: {findings}{unchecked}"),
        }
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 3)?;
        report.serialize_field("bundle", &self.bundle)?;
        report.serialize_field("verified", &self.verified())?;
        report.serialize_field("checks", &self.checks)?;
        report.end()
    }
}

/// A number of things, with the noun in the right form: `1 trial`, `2 trials`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Appends a line. What a bundle contains must not control the terminal.
fn line(text: &mut String, line: &str) {
    let printable = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    let line: String = line.trim_end().chars().map(printable).collect();
    writeln!(text, "{line}").expect("a string takes all that is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: Vec<Check>) -> Report {
        Report { bundle: "results/r".into(), checks }
    }

    #[test]
    fn each_check_and_finding_is_a_line_without_control_characters() {
        let mut check = Check { summary: "2 files".into(), ..Check::new("files") };
        check.find("a\u{1b}[2J", "altered");
        assert_eq!(
            report(vec![check]).text(),
            "FAILED  files      2 files\n        a\u{fffd}[2J: altered\nresults/r: not verified; findings: 1\n"
        );
    }

    #[test]
    fn unchecked_items_are_printed_and_only_optional_checks_may_leave_any() {
        let skipped = Check::skipped("files", "no list");
        let optional = Check { optional: true, ..skipped.clone() };
        assert!(!report(vec![skipped]).verified());
        let report = report(vec![optional]);
        assert!(report.verified());
        assert!(
            report.text().contains("not checked: no list\nresults/r: verified; not checked: 1"),
            "{}",
            report.text()
        );
    }

    #[test]
    fn the_json_says_whether_the_bundle_is_verified() {
        let json = serde_json::to_value(report(vec![Check::failed("run", "run.json", "bad".into())])).unwrap();
        assert_eq!(json["verified"], false);
        assert_eq!(json["checks"][0]["findings"][0]["place"], "run.json");
    }
}
