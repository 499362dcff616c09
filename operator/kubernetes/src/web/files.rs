//! Bundles as they are handed out: which there are, what is in one, and one file of it. Nothing outside of a bundle, nothing
//! through a link, nothing hidden.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use bench_format::run::{Run, RunState};
use operator::{step, store};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cluster_file::check_run_id;

/// Files of a bundle beyond which something is wrong with it.
const MOST_FILES: usize = 100_000;
/// Folders within folders.
const DEEPEST: usize = 12;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Why nothing is handed out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It isn't there, or isn't ours to give.
    #[error("no {0} here")]
    NotFound(String),
    /// A bundle that can't be one.
    #[error("bundle {0} has too many files or folders")]
    TooMany(String),
    /// The volume fails.
    #[error("failed to read it: {0}")]
    Read(#[from] io::Error),
}

/// A run, as `/api/runs` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunLine {
    /// Its id.
    pub id: String,
    /// How it stands.
    pub state: RunState,
    /// Its plan.
    pub plan: String,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended, RFC 3339.
    pub finished_at: Option<String>,
    /// Trials of the plan.
    pub trials: usize,
    /// Of those, ended.
    pub ended: usize,
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleFile {
    /// Where it is in the bundle, with `/` between parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its digest, in hexadecimal.
    pub sha256: String,
}

/// All runs, the newest first.
pub fn runs(results: &Path) -> Vec<RunLine> {
    let mut lines: Vec<RunLine> = stored(results).iter().map(line).collect();
    lines.sort_by(|a, b| (&b.started_at, &b.id).cmp(&(&a.started_at, &a.id)));
    lines
}

/// The `run.json` of every bundle that has one.
pub fn stored(results: &Path) -> Vec<Run> {
    let folders = fs::read_dir(results).into_iter().flatten().flatten();
    folders.filter_map(|folder| store::read_run(&folder.path()).ok()).collect()
}

fn line(run: &Run) -> RunLine {
    RunLine {
        id: run.id.clone(),
        state: run.state,
        plan: run.plan.name.clone(),
        started_at: run.started_at.clone(),
        finished_at: run.finished_at.clone(),
        trials: run.trials.len(),
        ended: run.trials.iter().filter(|entry| !step::is_open(&entry.state)).count(),
    }
}

/// The files of a bundle with their digests, in order.
///
/// # Errors
/// When there is no such bundle or it can't be read.
pub fn list(results: &Path, id: &str) -> Result<Vec<BundleFile>, Error> {
    let bundle = bundle(results, id)?;
    let mut paths = Vec::new();
    collect(&bundle, &bundle, DEEPEST, &mut paths).map_err(|error| error.unwrap_or(Error::TooMany(id.into())))?;
    paths.sort();
    paths.into_iter().map(|path| describe(&bundle, path)).collect()
}

/// A file of a bundle, and its length.
///
/// # Errors
/// When it isn't one.
pub fn open(results: &Path, id: &str, path: &str) -> Result<(File, u64), Error> {
    let missing = || Error::NotFound(format!("{id}/{path}"));
    let bundle = bundle(results, id)?;
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    let plain = |part: &Component<'_>| matches!(part, Component::Normal(name) if !is_hidden(name.to_str()));
    if parts.is_empty() || !parts.iter().all(plain) {
        return Err(missing());
    }
    // Links are resolved and must lead nowhere else.
    let wanted = bundle.join(path);
    let real = fs::canonicalize(&wanted).map_err(|_| missing())?;
    if real != wanted {
        return Err(missing());
    }
    let file = File::open(&real).map_err(|_| missing())?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err(missing()) }
}

/// The type that a browser is told.
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

/// Collects what is handed out; an error without words is a bundle beyond all bounds.
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

/// The digest of all that can be read, in hexadecimal, and how much that was.
///
/// # Errors
/// When reading fails.
pub fn digest(mut from: impl Read) -> io::Result<(String, u64)> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok((hex(&hasher.finalize()), bytes)),
            read => {
                hasher.update(&chunk[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name that isn't UTF-8 was not made by us.
fn is_hidden(name: Option<&str>) -> bool {
    name.is_none_or(|name| name.starts_with('.'))
}
