//! The levels of the contract, and the declared exceptions of a gateway.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;

/// How much of the contract is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What a measurement needs, and what an application decides through its library
    Core,
    /// The whole contract, including what a WebSocket or HTTP library does by itself
    #[default]
    Strict,
}

impl Level {
    /// Spelling on the command line and in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Strict => "strict",
        }
    }
}

/// Cases that a gateway is known to fail: what it does instead, by the name of the case.
pub type Exceptions = BTreeMap<String, String>;
