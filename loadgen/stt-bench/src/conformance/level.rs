//! How much of the contract is checked, and where a gateway is excepted from it.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;

/// How much of the contract is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What a measurement needs, and what an application decides through its library.
    Core,
    /// All of it: what a WebSocket or HTTP library does by itself, too.
    #[default]
    Strict,
}

impl Level {
    /// As the command line has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Strict => "strict",
        }
    }
}

/// Cases that a gateway is known to fail: what it does instead, by the name of the case.
pub type Exceptions = BTreeMap<String, String>;
