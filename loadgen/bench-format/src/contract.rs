//! `conformance/<service>.json`: the outcome of each conformance case of a service, before its first trial and after
//! its last.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// The conformance checks of one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractFile {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Name of the service in the registry.
    pub service: Name,
    /// Program that runs the checks: `conformance` of the service's protocol in the registry.
    pub program: String,
    /// Level of the checks, as the program's `--level` spells it.
    pub level: String,
    /// Exceptions that the registry declares, by case, with what the service does instead. Some may not apply at this
    /// level.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exceptions: BTreeMap<String, String>,
    /// Why no check ran; absent if one ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The check before the first trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContractCheck>,
    /// The check after the last trial; absent before that, and if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ContractCheck>,
}

/// One run of the conformance program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractCheck {
    /// Start time, RFC 3339.
    pub at: String,
    /// Outcome of the check.
    pub outcome: ContractOutcome,
    /// Why no case could be checked; absent if cases were checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The outcome of each case; empty if no case could be checked.
    pub cases: Vec<ContractCase>,
}

/// Outcome of a conformance check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContractOutcome {
    /// No case failed; some may be excepted or skipped.
    Passed,
    /// At least one case failed.
    Failed,
    /// No case could be checked.
    NotChecked,
}

/// One conformance case and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractCase {
    /// Name of the case.
    pub name: String,
    /// Outcome of the case.
    pub status: CaseStatus,
    /// Behaviour that the contract requires; absent if the case didn't run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Behaviour that was observed; absent if the case didn't run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Why the case was skipped; absent if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Outcome of a conformance case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CaseStatus {
    /// The service behaves as the contract requires.
    Passed,
    /// The service differs from the contract.
    Failed,
    /// The service differs from the contract in a way that the registry declares.
    Excepted,
    /// The case didn't run.
    Skipped,
}

impl ContractCheck {
    /// Iterates over the cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &ContractCase> {
        self.cases.iter().filter(|case| case.status == CaseStatus::Failed)
    }
}
