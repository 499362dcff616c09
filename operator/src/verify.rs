//! `ladder verify`: checks that a bundle is what its run left, and that its figures are what its measurements give.
//! Reads only.
//!
//! In the order of the output: [`signature`] (who signed the list of files), [`files`] (each file against the
//! list), `listing` (`run.json` against the folders of trials), `trials` (each trial judged again, by
//! [`rejudge`](crate::rejudge), and compared with what is stored), `planned` (each trial against the plan), `searches`
//! (each search decided again), `comparison` (its pairs decided again). [`difference`] finds the first field that
//! differs, [`report`] holds the findings.
//!
//! A bundle may come from another person: the size of what is read is limited, links are not followed, and what can't
//! be checked is reported as not checked.

use std::{
    io,
    path::{Path, PathBuf},
};

use bench_format::run::{Run, RunState};

use crate::{
    signing::PublicKey,
    store::{self, manifest},
};

mod comparison;
pub mod difference;
pub mod files;
mod listing;
mod planned;
pub mod report;
mod searches;
pub mod signature;
mod trials;

pub use report::{Check, Finding, Report};

/// Why a bundle can't be verified at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is not a bundle.
    #[error("{0} has neither run.json nor MANIFEST.sha256, so it is not a bundle; give a folder in results/")]
    NoBundle(PathBuf),
    /// The folder can't be read.
    #[error("failed to read {path}")]
    Read {
        /// Path of the bundle, as it was given.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
}

/// Verifies a bundle. With `key`, the bundle must be signed by it.
///
/// # Errors
/// [`Error`] when the folder is not a bundle or can't be read.
pub fn bundle(folder: &Path, key: Option<&PublicKey>) -> Result<Report, Error> {
    if !folder.join("run.json").exists() && !folder.join(manifest::MANIFEST).exists() {
        return Err(Error::NoBundle(folder.into()));
    }
    let walk = manifest::walk(folder).map_err(|source| Error::Read { path: folder.into(), source })?;
    let mut checks = vec![signature::check(folder, key), files::check(folder, &walk)];
    match store::read_run(folder) {
        Err(error) => checks.push(Check::failed("run", "run.json", driver::http::chain(&error))),
        // A link could lead out of the bundle, and a pipe could block its reader.
        Ok(_) if !walk.foreign.is_empty() => {
            checks.push(Check::skipped("run", "the bundle has entries of other kinds"))
        }
        Ok(run) => {
            let bundle = Bundle { folder, files: &walk.files, run: &run };
            checks.push(bundle.state());
            checks.push(listing::check(&bundle));
            checks.extend(trials::check(&bundle));
            checks.push(searches::check(&bundle));
            checks.extend(run.comparison.as_ref().map(|own| comparison::check(&bundle, own)));
        }
    }
    Ok(Report { bundle: folder.into(), checks })
}

/// A bundle whose `run.json` can be read.
struct Bundle<'a> {
    folder: &'a Path,
    files: &'a std::collections::BTreeMap<String, u64>,
    run: &'a Run,
}

impl Bundle<'_> {
    fn state(&self) -> Check {
        let Run { id, state, version, .. } = self.run;
        let mut check = Check::new("run");
        check.summary = format!("{id}, of version {version}");
        if *state == RunState::Running {
            let reason = "the run has not ended: its state is running; resume it, and verify its bundle then";
            check.find("run.json", reason);
        }
        check
    }

    /// What to add to a difference if another version of ladder wrote the bundle.
    fn note(&self) -> String {
        let own = env!("CARGO_PKG_VERSION");
        if self.run.version == own {
            return String::new();
        }
        format!("; the bundle is of version {}, and this is {own}, whose rules may differ", self.run.version)
    }
}
