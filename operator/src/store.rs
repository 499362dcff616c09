//! A bundle on disk: a run's inputs, its progress, and the files of each trial.
//!
//! Every file is written to a temporary file, synced and renamed, and its folder is synced. `run.json` marks a trial
//! `finished` only after the trial's files are written, so a kill at any moment loses at most the trial in flight. The
//! last of its files is its result: where only `run.json` couldn't be written any more, the trial isn't in flight.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use bench_format::{
    Name, SchemaTooNew,
    contract::ContractFile,
    result::{TrialResult, Validity},
    run::{Run, TrialState},
    timeline::TimelineEntry,
    trial::TrialId,
};
use driver::measure::Measured;
use judge::Judged;
use serde::Serialize;

use files::{Disk, Files, LARGEST, read};
use manifest::{MANIFEST, Manifest, Walk};

use crate::secrets;

pub mod files;
pub mod hlog;
pub mod manifest;

/// Name of the bundle's timeline: which step ran when.
const TIMELINE: &str = "timeline.jsonl";

/// Why a bundle can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder can't be written or read.
    #[error("failed to {verb} {path}")]
    File {
        /// The failed operation, as a verb for the message.
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// A new run would overwrite an existing one.
    #[error("run \"{id}\" exists in {results}; resume it with --resume {id}, or give another --run-id")]
    Exists {
        /// The run id that is taken.
        id: String,
        /// The folder that holds the bundles.
        results: PathBuf,
    },
    /// Another ladder process holds this bundle's lock.
    #[error("{0} is in use by another ladder; wait until it ends")]
    InUse(PathBuf),
    /// A JSON file of the bundle can't be parsed.
    #[error("{path} is not a run: {source}")]
    Parse {
        /// The file that can't be parsed.
        path: PathBuf,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// A newer program wrote the file.
    #[error("{path}: {source}")]
    Schema {
        /// The file with the newer schema.
        path: PathBuf,
        /// Carries the schema version in the file.
        source: SchemaTooNew,
    },
    /// The list of the bundle's files can't be parsed.
    #[error("{path} is not a list of files: {source}; `ladder verify` compares it with the files")]
    Manifest {
        /// Path of the list, `MANIFEST.sha256`.
        path: PathBuf,
        /// The first line that can't be in a list.
        source: manifest::BrokenLine,
    },
}

/// One run's bundle, locked for writing by this process.
#[derive(Debug)]
pub struct Store<F = Disk> {
    folder: PathBuf,
    files: F,
    /// Lock file of the bundle. The kernel releases the lock when this process ends.
    _lock: Option<File>,
}

impl Store<Disk> {
    /// Creates the bundle of a new run and writes its `run.json`.
    ///
    /// # Errors
    /// [`Error::Exists`] when the run id is taken, [`Error::InUse`] when another process holds the bundle,
    /// [`Error::File`] when it can't be written.
    pub fn create(results: &Path, run: &Run) -> Result<Self, Error> {
        let folder = results.join(run.id.as_str());
        if folder.join("run.json").exists() {
            return Err(Error::Exists { id: run.id.to_string(), results: results.into() });
        }
        let store = Self::at(folder)?;
        store.save_run(run)?;
        Ok(store)
    }

    /// Opens the bundle of an existing run, to resume it. A trial that had begun and has the result of this attempt is
    /// finished: only `run.json` could not be written any more.
    ///
    /// # Errors
    /// When the bundle doesn't exist, can't be parsed, has a newer schema, or another process holds it.
    pub fn open(results: &Path, id: &Name) -> Result<(Self, Run), Error> {
        let (store, mut run) = Self::open_folder(results.join(id.as_str()))?;
        for entry in &mut run.trials {
            let TrialState::Started { attempt } = entry.state else { continue };
            // Without a result that can be read, the trial is measured again.
            let result = read_result(&store.folder, &entry.trial).ok();
            let of_attempt = |result: &TrialResult| result.attempt == attempt && result.trial == entry.trial;
            if let Some(result) = result.filter(of_attempt) {
                entry.state = state_of(&result);
            }
        }
        Ok((store, run))
    }

    /// Opens the bundle in a folder of any name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_folder(folder: PathBuf) -> Result<(Self, Run), Error> {
        let run = read_run(&folder)?;
        Ok((Self::at(folder)?, run))
    }

    fn at(folder: PathBuf) -> Result<Self, Error> {
        Disk.make_folder(&folder).map_err(|source| failed("make", &folder, source))?;
        let path = folder.join(".lock");
        let lock = File::create(&path).map_err(|source| failed("make", &path, source))?;
        lock.try_lock().map_err(|_| Error::InUse(folder.clone()))?;
        Ok(Self { folder, files: Disk, _lock: Some(lock) })
    }
}

impl<F: Files> Store<F> {
    /// Path of the bundle's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a trial, `trials/<id>` in the bundle.
    pub fn trial_folder(&self, trial: &TrialId) -> PathBuf {
        self.folder.join("trials").join(trial.to_string())
    }

    /// Writes the run to `run.json` in the bundle's folder, without the secrets of its plan.
    ///
    /// # Errors
    /// When it can't be written; the previous file is then still there.
    pub fn save_run(&self, run: &Run) -> Result<(), Error> {
        self.write(&self.folder.join("run.json"), &run_text(run))
    }

    /// Writes the list of the bundle's files, and then the run, which has ended. A run that is called ended therefore
    /// always has its list: after a kill between the two it is resumed, and ends again.
    ///
    /// # Errors
    /// When a file can't be read or written; the run is then not called ended.
    pub fn save_ended_run(&self, run: &Run) -> Result<(), Error> {
        let text = run_text(run);
        self.write_list_with(&text)?;
        self.write(&self.folder.join("run.json"), &text)
    }

    /// Writes a run that had ended and goes on. Its list and signature, which are those of its end, are removed.
    ///
    /// # Errors
    /// When a file can't be written or removed.
    pub fn reopen(&self, run: &Run) -> Result<(), Error> {
        self.save_run(run)?;
        for name in [MANIFEST, manifest::SIGNATURE, manifest::PUBLIC_KEY] {
            let path = self.folder.join(name);
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &path, source)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the list of a bundle that has none, because an older ladder or another program wrote it.
    ///
    /// # Errors
    /// When a file can't be read, or the list can't be written.
    pub fn write_list(&self) -> Result<(), Error> {
        let path = self.folder.join("run.json");
        self.write_list_with(&read(&path, LARGEST).map_err(|source| failed("read", &path, source))?)
    }

    fn write_list_with(&self, run_json: &[u8]) -> Result<(), Error> {
        let manifest = Manifest::of(&self.folder, run_json).map_err(|source| failed("list", &self.folder, source))?;
        self.write(&self.folder.join(MANIFEST), manifest.text().as_bytes())
    }

    /// Lists what is in the bundle's folder.
    ///
    /// # Errors
    /// When a folder can't be read, or the bundle has too many files or folders.
    pub fn walk(&self) -> Result<Walk, Error> {
        manifest::walk(&self.folder).map_err(|source| failed("list", &self.folder, source))
    }

    /// Creates a trial's folder and removes what an interrupted attempt left in it.
    ///
    /// # Errors
    /// When the old folder can't be removed or the new one can't be created.
    pub fn begin_trial(&self, trial: &TrialId) -> Result<(), Error> {
        let folder = self.trial_folder(trial);
        self.files.remove_folder(&folder).map_err(|source| failed("remove", &folder, source))?;
        let workers = folder.join("workers");
        self.files.make_folder(&workers).map_err(|source| failed("make", &workers, source))
    }

    /// Writes all files of a trial, `result.json` last.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn save_trial(&self, measured: &Measured, judged: &Judged) -> Result<(), Error> {
        let Judged { result, merged } = judged;
        let folder = self.trial_folder(&result.trial);
        for upload in &measured.uploads {
            let workers = folder.join("workers");
            if let Some(samples) = &upload.samples {
                self.write(&workers.join(format!("{}.samples.csv.zst", upload.result.worker)), samples)?;
            }
            self.write(&workers.join(format!("{}.json", upload.result.worker)), &upload.bytes)?;
        }
        for (name, intervals) in &merged.intervals {
            let text = hlog::write(name, result, intervals);
            self.write(&folder.join(format!("{name}.hlog")), &text)?;
        }
        self.write_json(&folder.join("trial.json"), &measured.trial)?;
        self.write_json(&folder.join("service.json"), &measured.service)?;
        self.write_json(&folder.join("result.json"), result)
    }

    /// Writes the results of a service's contract check.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save_contract(&self, file: &ContractFile) -> Result<(), Error> {
        let path = contract_path(&self.folder, &file.service);
        let folder = path.parent().unwrap_or(&self.folder);
        self.files.make_folder(folder).map_err(|source| failed("make", folder, source))?;
        self.write_json(&path, file)
    }

    /// Appends a line to `timeline.jsonl`. A kill may leave half a line, which readers skip.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn append_to_timeline(&self, entry: &TimelineEntry) -> Result<(), Error> {
        let path = self.folder.join(TIMELINE);
        let mut line = serde_json::to_vec(entry).expect("our types have no map keys but strings");
        line.push(b'\n');
        self.files.append(&path, &line).map_err(|source| failed("write", &path, source))
    }

    fn write_json<T: Serialize>(&self, path: &Path, value: &T) -> Result<(), Error> {
        self.write(path, &json_text(value))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        files::replace(&self.files, path, bytes).map_err(|source| failed("write", path, source))
    }
}

/// `run.json` of a run, without the secrets of its plan.
fn run_text(run: &Run) -> Vec<u8> {
    json_text(&Run { plan: secrets::masked_plan(&run.plan), ..run.clone() })
}

/// A value as the files of a bundle have it: indented, with a line break at its end.
pub fn json_text<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("our types have no map keys but strings");
    text.push(b'\n');
    text
}

/// Renews the lines of files that were written after the run ended, such as results that were judged again. All other
/// lines stay, so that a file that was altered stays one. Does nothing in a bundle without a list.
///
/// # Errors
/// When the list can't be read, parsed or written, or a file can't be read.
pub fn renew_list(bundle: &Path, paths: &[String]) -> Result<(), Error> {
    let path = bundle.join(MANIFEST);
    let Some(mut manifest) = read_list(bundle)? else { return Ok(()) };
    for path in paths {
        let file = bundle.join(path);
        let digest = File::open(&file).and_then(manifest::digest).map_err(|source| failed("read", &file, source))?;
        manifest.0.insert(path.clone(), digest.0);
    }
    files::replace(&Disk, &path, manifest.text().as_bytes()).map_err(|source| failed("write", &path, source))
}

/// Reads the list of a bundle's files; `None` if it has none.
///
/// # Errors
/// When the list can't be read or parsed.
pub fn read_list(bundle: &Path) -> Result<Option<Manifest>, Error> {
    let path = bundle.join(MANIFEST);
    match read(&path, manifest::LARGEST_LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", &path, source)),
        Ok(text) => Manifest::parse(&text).map(Some).map_err(|source| Error::Manifest { path, source }),
    }
}

/// Reads a bundle's timeline and skips lines that can't be parsed. Empty when the file doesn't exist.
pub fn read_timeline(folder: &Path) -> Vec<TimelineEntry> {
    let text = std::fs::read_to_string(folder.join(TIMELINE)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Reads a bundle's `run.json`.
///
/// # Errors
/// When it doesn't exist, can't be parsed, or has a newer schema.
pub fn read_run(folder: &Path) -> Result<Run, Error> {
    let path = folder.join("run.json");
    let text = read(&path, LARGEST).map_err(|source| failed("read", &path, source))?;
    let run: Run = serde_json::from_slice(&text).map_err(|source| Error::Parse { path: path.clone(), source })?;
    bench_format::check_schema(run.schema).map_err(|source| Error::Schema { path, source })?;
    Ok(run)
}

/// The state of a trial that has a result.
pub fn state_of(result: &TrialResult) -> TrialState {
    let passed = result.verdict.as_ref().map(|verdict| verdict.passed);
    TrialState::Finished {
        validity: result.validity.clone(),
        passed: passed.filter(|_| result.validity == Validity::Valid),
    }
}

/// Reads a trial's `result.json`.
///
/// # Errors
/// When it doesn't exist, can't be parsed, or has a newer schema.
pub fn read_result(bundle: &Path, trial: &TrialId) -> Result<TrialResult, Error> {
    let path = bundle.join("trials").join(trial.to_string()).join("result.json");
    let text = read(&path, LARGEST).map_err(|source| failed("read", &path, source))?;
    let result: TrialResult =
        serde_json::from_slice(&text).map_err(|source| Error::Parse { path: path.clone(), source })?;
    bench_format::check_schema(result.schema).map_err(|source| Error::Schema { path, source })?;
    Ok(result)
}

/// Reads the results of a service's contract check; `None` if the service was not checked.
///
/// # Errors
/// When the file exists but can't be read or parsed, or has a newer schema.
pub fn read_contract(bundle: &Path, service: &Name) -> Result<Option<ContractFile>, Error> {
    let path = contract_path(bundle, service);
    let text = match read(&path, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| failed("read", &path, source))?,
    };
    let file: ContractFile =
        serde_json::from_slice(&text).map_err(|source| Error::Parse { path: path.clone(), source })?;
    bench_format::check_schema(file.schema).map_err(|source| Error::Schema { path, source })?;
    Ok(Some(file))
}

fn contract_path(bundle: &Path, service: &Name) -> PathBuf {
    bundle.join("conformance").join(format!("{service}.json"))
}

fn failed(verb: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File { verb, path: path.into(), source }
}

#[cfg(test)]
mod tests;
