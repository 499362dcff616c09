//! Serves bundles: the list of runs, the files of a bundle, and single files. Files outside a bundle, behind symbolic
//! links or hidden are not served.

use std::{
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
};

use bench_format::run::{Run, RunState};
use operator::{
    step,
    store::{
        self,
        manifest::{DEEPEST, MOST_FILES, digest},
    },
};
use serde::{Deserialize, Serialize};

use crate::cluster_file::check_run_id;

/// Folder of the results that has the reports which a container beside the operator makes; each is in a folder with the name
/// of its run. They are in no bundle, so no list covers them.
const REPORTS: &str = ".reports";
/// The first page of a report.
const PAGE: &str = "report.html";

/// Why a bundle or a file can't be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It doesn't exist, or must not be served.
    #[error("{0} not found")]
    NotFound(String),
    /// The bundle has more files or deeper folders than a bundle can have.
    #[error("bundle {0} has too many files or folders")]
    TooMany(String),
    /// The volume can't be read.
    #[error("failed to read from the results volume: {0}")]
    Read(#[from] io::Error),
}

/// A run in the list of `/api/runs`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSummary {
    /// Id of the run.
    pub id: String,
    /// State of the run.
    pub state: RunState,
    /// Name of the run's plan.
    pub plan: String,
    /// Start of the run, in RFC 3339 format.
    pub started_at: String,
    /// End of the run, in RFC 3339 format; absent until it has ended.
    pub finished_at: Option<String>,
    /// Number of trials of the run.
    pub trials: usize,
    /// Number of trials that have ended.
    pub ended: usize,
    /// Whether there is a report of the run, as `report/report.html`.
    #[serde(default)]
    pub report: bool,
}

/// A file that a bundle contains, with its length and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleFile {
    /// Path in the bundle, with `/` as the separator.
    pub path: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// SHA-256 digest, in hexadecimal.
    pub sha256: String,
}

/// All runs, the newest first.
pub fn runs(results: &Path) -> Vec<RunSummary> {
    let mut lines: Vec<RunSummary> = stored(results).iter().map(|run| line(results, run)).collect();
    lines.sort_by(|a, b| (&b.started_at, &b.id).cmp(&(&a.started_at, &a.id)));
    lines
}

/// The `run.json` of every bundle that has a readable one.
pub fn stored(results: &Path) -> Vec<Run> {
    let folders = fs::read_dir(results).into_iter().flatten().flatten();
    folders.filter_map(|folder| store::read_run(&folder.path()).ok()).collect()
}

fn line(results: &Path, run: &Run) -> RunSummary {
    RunSummary {
        id: run.id.to_string(),
        state: run.state,
        plan: run.plan.name.clone(),
        started_at: run.started_at.clone(),
        finished_at: run.finished_at.clone(),
        trials: run.trials.len(),
        ended: run.trials.iter().filter(|entry| !step::is_open(&entry.state)).count(),
        report: [results.join(REPORTS).join(run.id.as_str()), results.join(run.id.as_str()).join("report")]
            .iter()
            .any(|report| report.join(PAGE).is_file()),
    }
}

/// The files of a bundle with their digests, sorted by path.
///
/// # Errors
/// [`Error::NotFound`] for an unknown bundle, [`Error::TooMany`] for one with too many files or folders,
/// [`Error::Read`] when it can't be read.
pub fn list(results: &Path, id: &str) -> Result<Vec<BundleFile>, Error> {
    let bundle = bundle(results, id)?;
    let mut paths = Vec::new();
    collect(&bundle, &bundle, DEEPEST, &mut paths).map_err(|error| error.unwrap_or(Error::TooMany(id.into())))?;
    paths.sort();
    paths.into_iter().map(|path| describe(&bundle, path)).collect()
}

/// Opens a file of a bundle or of its report (`report/…`), and returns it with its length. A report that was made here
/// comes before one in the bundle.
///
/// # Errors
/// [`Error::NotFound`] when there is no such file or it must not be served, [`Error::Read`] when the volume can't be
/// read.
pub fn open(results: &Path, id: &str, path: &str) -> Result<(File, u64), Error> {
    let bundle = bundle(results, id)?;
    let of_report = path.strip_prefix("report/").map(|rest| if rest.is_empty() { PAGE } else { rest });
    if let Some(rest) = of_report {
        // The bundle exists, so the id is a name.
        let report = fs::canonicalize(results)?.join(REPORTS).join(id);
        if let Ok(found) = open_in(&report, rest) {
            return Ok(found);
        }
    }
    let in_bundle = of_report.map_or(path.to_owned(), |rest| format!("report/{rest}"));
    open_in(&bundle, &in_bundle)
}

/// Opens a file of a folder whose path has no symbolic link.
fn open_in(folder: &Path, path: &str) -> Result<(File, u64), Error> {
    let missing = || Error::NotFound(path.to_owned());
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    let plain = |part: &Component<'_>| matches!(part, Component::Normal(name) if !is_hidden(name.to_str()));
    if parts.is_empty() || !parts.iter().all(plain) {
        return Err(missing());
    }
    // A path that contains a symbolic link resolves to another path, and is refused.
    let requested = folder.join(path);
    let real = fs::canonicalize(&requested).map_err(|_| missing())?;
    if real != requested {
        return Err(missing());
    }
    let file = File::open(&real).map_err(|_| missing())?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err(missing()) }
}

/// The content type of a file, by its extension.
pub fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("jsonl") => "application/x-ndjson",
        Some("html") => "text/html; charset=utf-8",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn bundle(results: &Path, id: &str) -> Result<PathBuf, Error> {
    let missing = || Error::NotFound(format!("run {id}"));
    if id.is_empty() || check_run_id(id).is_err() {
        return Err(missing());
    }
    let results = fs::canonicalize(results)?;
    let folder = results.join(id);
    let real = fs::canonicalize(&folder).map_err(|_| missing())?;
    if real == folder && real.is_dir() { Ok(real) } else { Err(missing()) }
}

/// Collects the paths of the files to serve. The error is `None` for a bundle with too many files or folders.
fn collect(bundle: &Path, folder: &Path, deep: usize, paths: &mut Vec<String>) -> Result<(), Option<Error>> {
    let read = |error: io::Error| Some(Error::Read(error));
    for entry in fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        let kind = entry.file_type().map_err(read)?;
        let name = entry.file_name();
        if is_hidden(name.to_str()) || name.to_str().is_some_and(|name| name.ends_with(".tmp")) {
            continue;
        }
        if kind.is_dir() {
            collect(bundle, &entry.path(), deep.checked_sub(1).ok_or(None)?, paths)?;
        } else if kind.is_file() {
            let path = entry.path();
            let relative = path.strip_prefix(bundle).ok().and_then(Path::to_str);
            paths.extend(relative.map(str::to_owned));
        }
        if paths.len() > MOST_FILES {
            return Err(None);
        }
    }
    Ok(())
}

fn describe(bundle: &Path, path: String) -> Result<BundleFile, Error> {
    let (sha256, bytes) = digest(File::open(bundle.join(&path))?)?;
    Ok(BundleFile { path, bytes, sha256 })
}

/// Whether a name is hidden. A name that isn't UTF-8 counts as hidden, since ladder doesn't create such files.
fn is_hidden(name: Option<&str>) -> bool {
    name.is_none_or(|name| name.starts_with('.'))
}
