//! Builds the call of the program that checks a protocol's contract: for a service, at a level, with the exceptions
//! that the registry declares.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use clap::ValueEnum;

use crate::registry::{Registry, Service, worker_program};

/// Prefix of services for the harness's own tests. They break the contract on purpose.
pub const SELF_TEST: &str = "self-test-";

/// How much of the contract is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What a measurement needs, and what an application decides through its library.
    Core,
    /// All rules of the contract.
    #[default]
    Strict,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Strict => "strict",
        })
    }
}

/// The conformance program is neither beside `ladder` nor on `PATH`.
#[derive(Debug, thiserror::Error)]
#[error("no program \"{0}\" beside ladder or on PATH; build it: cargo build --release -p stt-bench")]
pub struct NoProgram(String);

/// The path of a conformance program.
///
/// # Errors
/// When it is neither beside `ladder` nor on `PATH`.
pub fn find(program: &str) -> Result<PathBuf, NoProgram> {
    worker_program(program).ok_or_else(|| NoProgram(program.into()))
}

/// The command that checks a service. The program starts the service itself. `results` are the options that make it
/// write its results.
pub fn command(
    path: &Path,
    registry: &Registry,
    (name, service): (&str, &Service),
    level: Level,
    results: &[String],
) -> Command {
    let mut command = Command::new(path);
    command.args(["--level", &level.to_string()]);
    for (case, instead) in &service.exceptions {
        command.arg("--except").arg(format!("{case}={instead}"));
    }
    command.args(results).args(["--start", name, "--"]).args(&service.command);
    command.envs(&service.env).current_dir(service.root(&registry.root));
    command
}
