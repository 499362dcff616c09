//! Judges trials again from their files on disk: `trial.json`, `workers/<n>.json`, `service.json`.
//!
//! [`TrialFiles`] reads and judges and writes nothing; [`trial`] and [`bundle`] also write the results.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bench_format::{
    SchemaTooNew, check_schema, histogram,
    result::{ServiceFile, TrialResult, WorkerResult},
    run::TrialState,
    trial_file::{BookKeeping, TrialFile},
};
use judge::{Judged, judge};
use serde::de::DeserializeOwned;

use crate::store::{
    self, Store,
    files::{self, Disk, LARGEST, replace},
    json_text,
};

/// Number of folders from a bundle to the folder of a trial.
const TRIAL_DEPTH: usize = 5;

/// Why a trial can't be judged again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder has no `trial.json`.
    #[error(
        "{0} has no trial.json, without which a trial can't be judged: it was measured by a ws-ladder from before schema 2, or \
         the path is not a trial's folder; its result.json is unchanged"
    )]
    NoTrialFile(PathBuf),
    /// A file or folder can't be read or written.
    #[error("failed to {verb} {path}")]
    File {
        /// The failed operation, as a verb for the message.
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file can't be parsed.
    #[error("{path}: {reason}")]
    Parse {
        /// The file that can't be parsed.
        path: PathBuf,
        /// The error of the JSON parser.
        reason: serde_json::Error,
    },
    /// A newer program wrote a file.
    #[error("{path}: {reason}")]
    Schema {
        /// The file with the newer schema.
        path: PathBuf,
        /// Carries the schema version in the file.
        reason: SchemaTooNew,
    },
    /// A histogram can't be decoded.
    #[error("{path}: a histogram can't be read: {reason}")]
    Histogram {
        /// Path of the trial's folder.
        path: PathBuf,
        /// The error of the histogram's decoder.
        reason: histogram::Error,
    },
    /// The bundle can't be opened or written.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The files by which a trial is judged.
#[derive(Debug)]
pub struct TrialFiles {
    folder: PathBuf,
    /// `trial.json`: the conditions of the trial.
    pub trial: TrialFile,
    /// `workers/<n>.json`: the workers' results, sorted by the worker's index.
    pub uploads: Vec<WorkerResult>,
    /// `service.json`: the service's side.
    pub service: ServiceFile,
}

impl TrialFiles {
    /// Reads the files in a trial's folder.
    ///
    /// # Errors
    /// When a file can't be read or parsed.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("trial.json");
        if !path.is_file() {
            return Err(Error::NoTrialFile(folder.into()));
        }
        let trial: TrialFile = read(&path, |trial: &TrialFile| trial.schema)?;
        let uploads = uploads(folder)?;
        let path = folder.join("service.json");
        let service = if trial.keeping == BookKeeping::None && !path.exists() {
            ServiceFile { schema: trial.schema, readings: Default::default(), connections: None, publisher_clock: None }
        } else {
            read(&path, |service: &ServiceFile| service.schema)?
        };
        Ok(Self { folder: folder.into(), trial, uploads, service })
    }

    /// Judges the trial and writes nothing.
    ///
    /// # Errors
    /// [`Error::Histogram`] when a histogram can't be read.
    pub fn judge(&self) -> Result<Judged, Error> {
        judge(&self.trial, &self.uploads.iter().collect::<Vec<_>>(), &self.service)
            .map_err(|reason| Error::Histogram { path: self.folder.clone(), reason })
    }
}

/// Judges the trial in a folder, writes its `result.json`, and renews its line in the list of the bundle's files.
///
/// # Errors
/// When a file can't be read or parsed, or `result.json` can't be written; the existing `result.json` is then
/// unchanged. When the list can't be renewed.
pub fn trial(folder: &Path) -> Result<TrialResult, Error> {
    let result = write_result(folder)?;
    let folder = folder.canonicalize().map_err(|source| Error::File { verb: "open", path: folder.into(), source })?;
    let bundle = folder.ancestors().nth(TRIAL_DEPTH).filter(|bundle| bundle.join("run.json").is_file());
    if let Some((bundle, path)) = bundle.and_then(|bundle| Some((bundle, folder.strip_prefix(bundle).ok()?))) {
        store::renew_list(bundle, &[path.join("result.json").display().to_string()])?;
    }
    Ok(result)
}

fn write_result(folder: &Path) -> Result<TrialResult, Error> {
    let result = TrialFiles::read(folder)?.judge()?.result;
    let path = folder.join("result.json");
    replace(&Disk, &path, &json_text(&result)).map_err(|source| Error::File { verb: "write", path, source })?;
    Ok(result)
}

/// Judges all finished trials of a bundle and writes their states into `run.json`. Calls `each` for every trial as soon
/// as it is judged. Renews the lines of the written files in the list of the bundle's files.
///
/// # Errors
/// When the bundle can't be opened or written. A trial that can't be judged keeps its state.
pub fn bundle(folder: &Path, mut each: impl FnMut(Result<&TrialResult, Error>)) -> Result<(), Error> {
    let folder = folder.canonicalize().map_err(|source| Error::File { verb: "open", path: folder.into(), source })?;
    let (store, mut run) = Store::open_folder(folder)?;
    let mut written = vec!["run.json".to_owned()];
    for entry in &mut run.trials {
        if !matches!(entry.state, TrialState::Finished { .. }) {
            continue;
        }
        match write_result(&store.trial_folder(&entry.trial)) {
            Ok(result) => {
                entry.state = store::state_of(&result);
                written.push(format!("trials/{}/result.json", entry.trial));
                each(Ok(&result));
            }
            Err(error) => each(Err(error)),
        }
    }
    store.save_run(&run)?;
    Ok(store::renew_list(store.folder(), &written)?)
}

/// The workers' results in a trial's folder, sorted by the worker's index.
///
/// # Errors
/// When a file can't be read or parsed, or has a newer schema.
pub fn uploads(folder: &Path) -> Result<Vec<WorkerResult>, Error> {
    let folder = folder.join("workers");
    let failed = |source| Error::File { verb: "read", path: folder.clone(), source };
    let mut uploads = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            uploads.push(read(&path, |result: &WorkerResult| result.schema)?);
        }
    }
    uploads.sort_by_key(|result| result.worker);
    Ok(uploads)
}

fn read<T: DeserializeOwned>(path: &Path, schema: impl FnOnce(&T) -> u32) -> Result<T, Error> {
    let text = files::read(path, LARGEST).map_err(|source| Error::File { verb: "read", path: path.into(), source })?;
    let value: T = serde_json::from_slice(&text).map_err(|reason| Error::Parse { path: path.into(), reason })?;
    check_schema(schema(&value)).map_err(|reason| Error::Schema { path: path.into(), reason })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bench_format::result::Validity;
    use driver::measure::fixture::measured;
    use tempfile::TempDir;

    use super::*;

    /// A trial's folder as the store writes it, but without `result.json`.
    fn folder() -> TempDir {
        let (folder, measured) = (tempfile::tempdir().unwrap(), measured());
        let write = |name: &str, text: Vec<u8>| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("workers")).unwrap();
        write("trial.json", serde_json::to_vec(&measured.trial).unwrap());
        write("service.json", serde_json::to_vec(&measured.service).unwrap());
        write("workers/0.json", measured.uploads[0].bytes.clone());
        folder
    }

    #[test]
    fn judging_a_trial_from_its_files_gives_the_same_result_again() {
        let folder = folder();
        let again = trial(folder.path()).unwrap();
        let before = measured().judge().unwrap().result;
        assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&before).unwrap());
        assert!(folder.path().join("result.json").is_file());
    }

    #[test]
    fn readings_are_copied_to_the_last_digit() {
        let folder = folder();
        let mut service = measured().service;
        let reading = service.readings.before.as_mut().unwrap();
        // A parser with imprecise float rounding reads this as 1.4834568670000001.
        reading.stats.uptime_seconds = 1.483456867;
        fs::write(folder.path().join("service.json"), serde_json::to_vec(&service).unwrap()).unwrap();
        trial(folder.path()).unwrap();
        let result = fs::read_to_string(folder.path().join("result.json")).unwrap();
        assert!(result.contains("\"uptime_seconds\": 1.483456867,"), "{result}");
    }

    #[test]
    fn a_modified_file_makes_the_trial_invalid() {
        let folder = folder();
        let path = folder.path().join("service.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("\"delivered\":2500", "\"delivered\":2499", 1)).unwrap();
        assert!(matches!(trial(folder.path()).unwrap().validity, Validity::Invalid { .. }));
    }

    #[test]
    fn a_trial_without_trial_file_is_reported_as_not_judged() {
        let folder = folder();
        fs::remove_file(folder.path().join("trial.json")).unwrap();
        fs::write(folder.path().join("result.json"), "as it was").unwrap();
        let description = trial(folder.path()).unwrap_err().to_string();
        assert!(description.contains("has no trial.json") && !description.contains('\n'), "{description}");
        assert_eq!(fs::read_to_string(folder.path().join("result.json")).unwrap(), "as it was");
    }

    #[test]
    fn a_broken_file_is_named() {
        let folder = folder();
        fs::write(folder.path().join("workers/0.json"), "{}").unwrap();
        let description = trial(folder.path()).unwrap_err().to_string();
        assert!(description.contains("workers/0.json: missing field"), "{description}");
    }
}
