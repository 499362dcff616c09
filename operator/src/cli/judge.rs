//! `ladder judge`: judges stored trials again from the files in their folders.

use std::path::PathBuf;

use bench_format::result::{TrialResult, Validity};
use clap::Args;

use crate::{
    print,
    rejudge::{self, Error},
};

/// Exit code: everything was judged and is valid.
const VALID: u8 = 0;
/// Exit code: a trial could not be judged.
const UNREADABLE: u8 = 1;
/// Exit code: a trial is invalid.
const INVALID: u8 = 2;

/// Arguments of `ladder judge`.
#[derive(Debug, Args)]
pub(super) struct Judge {
    /// A trial's folder with trial.json, workers/ and service.json; or a bundle, whose finished trials are judged.
    #[arg(value_name = "TRIAL_FOLDER | BUNDLE")]
    folder: PathBuf,
}

/// Judges, prints a line for each trial, and returns the exit code.
pub(super) fn run(arguments: &Judge) -> u8 {
    let mut code = VALID;
    let mut print_outcome = |judged: Result<&TrialResult, Error>| match judged {
        Ok(result) => {
            println!("{}", print::line(result));
            if matches!(result.validity, Validity::Invalid { .. }) && code == VALID {
                code = INVALID;
            }
        }
        Err(error) => {
            eprintln!("ladder: {:#}", anyhow::Error::from(error));
            code = UNREADABLE;
        }
    };
    let folder = &arguments.folder;
    if folder.join("run.json").is_file() {
        if let Err(error) = rejudge::bundle(folder, &mut print_outcome) {
            print_outcome(Err(error));
        }
    } else {
        match rejudge::trial(folder) {
            Ok(result) => print_outcome(Ok(&result)),
            Err(error) => print_outcome(Err(error)),
        }
    }
    code
}
