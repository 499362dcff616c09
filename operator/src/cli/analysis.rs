//! The subcommands that read finished bundles: `ladder compare`, `ladder history` and `ladder export`. The Python
//! analysis of this checkout does their work; JUnit XML of a bundle is written here, as `ladder assert` writes it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Args, ValueEnum};

use crate::{assert, report};

/// How the analysis is started.
#[derive(Debug, Args)]
struct Analysis {
    /// The root of the checkout whose analysis is used.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    checkout: PathBuf,
    /// The command that starts the analysis; the subcommand and its arguments are appended.
    #[arg(long, default_value = ".venv/bin/python -m ws_ladder_analysis", value_name = "COMMAND")]
    analysis_command: String,
}

/// Options for the comparison of finished bundles.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options without --plan")]
pub(super) struct Finished {
    /// The service of A, and then that of B; default: the services that both bundles have.
    #[arg(long = "service", value_name = "NAME")]
    pub(super) services: Vec<String>,
    #[command(flatten)]
    analysis: Analysis,
}

/// Arguments of `ladder history`.
#[derive(Debug, Args)]
pub(super) struct History {
    /// The folder that holds the bundles, such as results.
    folder: PathBuf,
    /// A YAML file of changes that are known: plan, figure, commits (BEFORE..AFTER), why.
    #[arg(long, value_name = "FILE")]
    acknowledged: Option<PathBuf>,
    /// The form in which the changes are printed.
    #[arg(long, value_enum, default_value = "text")]
    format: HistoryFormat,
    /// The folder for history.html; default: FOLDER/history.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Take all machines of one kind for one machine, as for CI machines whose host names change.
    #[arg(long)]
    any_host: bool,
    #[command(flatten)]
    analysis: Analysis,
}

/// Arguments of `ladder export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The bundle, a folder in results/.
    bundle: PathBuf,
    /// The format that is written.
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// The file, or for fortio the folder; default: standard output, or fortio/ inside the bundle.
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    #[command(flatten)]
    analysis: Analysis,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HistoryFormat {
    /// A table of changes.
    Text,
    /// All series with their points and changes.
    Json,
    /// JUnit XML with a test case for each series.
    Junit,
    /// Bencher Metric Format of the newest runs.
    Bencher,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// JUnit XML with a test case for each trial.
    Junit,
    /// Bencher Metric Format with every figure.
    Bencher,
    /// Fortio's results, one file for each histogram of a tier.
    Fortio,
}

/// Compares finished bundles and returns the exit code.
pub(super) fn compare(finished: &Finished, bundles: &[PathBuf], json: bool) -> anyhow::Result<u8> {
    let mut words: Vec<OsString> = vec!["compare".into()];
    words.extend(finished.services.iter().map(|name| format!("--service={name}").into()));
    words.extend(json.then(|| "--json".into()));
    run(&finished.analysis, words, bundles)
}

/// Reads the history and returns the exit code.
pub(super) fn history(arguments: &History) -> anyhow::Result<u8> {
    let mut words: Vec<OsString> = vec!["history".into(), "--format".into(), word(arguments.format)];
    words.extend(option("--acknowledged", arguments.acknowledged.as_deref()));
    words.extend(option("--output", arguments.output.as_deref()));
    words.extend(arguments.any_host.then(|| "--any-host".into()));
    run(&arguments.analysis, words, std::slice::from_ref(&arguments.folder))
}

/// Exports and returns the exit code.
pub(super) fn export(arguments: &Export) -> anyhow::Result<u8> {
    if arguments.format == ExportFormat::Junit {
        return junit(&arguments.bundle, arguments.output.as_deref()).map(|()| 0);
    }
    let mut words: Vec<OsString> = vec!["export".into(), "--format".into(), word(arguments.format)];
    words.extend(option("--output", arguments.output.as_deref()));
    run(&arguments.analysis, words, std::slice::from_ref(&arguments.bundle))
}

/// Writes the trials as JUnit XML to a file, or to standard output.
fn junit(bundle: &Path, output: Option<&Path>) -> anyhow::Result<()> {
    let text = assert::junit(assert::run_name(bundle), &assert::bundle(bundle)?);
    match output {
        Some(path) => fs::write(path, text).with_context(|| format!("failed to write {}", path.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

fn run(analysis: &Analysis, mut words: Vec<OsString>, paths: &[PathBuf]) -> anyhow::Result<u8> {
    // A path may begin with a dash.
    words.push("--".into());
    words.extend(paths.iter().map(Into::into));
    let root = fs::canonicalize(&analysis.checkout)
        .with_context(|| format!("failed to find the checkout {}", analysis.checkout.display()))?;
    report::analyse(&analysis.analysis_command, &root, &words)
}

fn option(name: &str, path: Option<&Path>) -> Option<OsString> {
    path.map(|path| {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(path);
        word
    })
}

/// The word of a format on the command line.
fn word(format: impl ValueEnum) -> OsString {
    format.to_possible_value().expect("no format is hidden").get_name().into()
}
