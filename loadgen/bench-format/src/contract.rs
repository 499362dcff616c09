//! `conformance/<service>.json`: whether a service kept the contract of its protocol before its first trial and after its
//! last, case by case.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of a service's contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractFile {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// The service.
    pub service: String,
    /// The program that checks it: `conformance` of its protocol in the registry.
    pub program: String,
    /// How much of the contract it checks, as its `--level` spells it.
    pub level: String,
    /// Exceptions that the registry declares, used at this level or not: what the service does instead, by case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exceptions: BTreeMap<String, String>,
    /// Why nothing was checked; absent where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The check before the first trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContractCheck>,
    /// The check after the last trial; absent until then, and where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ContractCheck>,
}

/// One run of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractCheck {
    /// When it began, RFC 3339.
    pub at: String,
    /// How it ended.
    pub outcome: ContractOutcome,
    /// Why nothing could be checked; absent where it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Each case; empty where nothing could be checked.
    pub cases: Vec<ContractCase>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ContractOutcome {
    /// No case failed.
    Passed,
    /// A case failed.
    Failed,
    /// Nothing could be checked.
    NotChecked,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContractCase {
    /// Its name.
    pub name: String,
    /// What became of it.
    pub status: CaseStatus,
    /// What the contract asks for; absent where it wasn't run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was seen; absent where it wasn't run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CaseStatus {
    /// As the contract says.
    Passed,
    /// Not as the contract says.
    Failed,
    /// Not as the contract says, as the registry declares.
    Excepted,
    /// Not run.
    Skipped,
}

impl ContractCheck {
    /// The cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &ContractCase> {
        self.cases.iter().filter(|case| case.status == CaseStatus::Failed)
    }
}
