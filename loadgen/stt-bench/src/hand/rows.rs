//! Files of raw rows. Workers upload their rows compressed; a file is compressed only when its name ends in `.zst`.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use bench_format::result::{SAMPLES_LOST, WorkerResult};

/// One file for each worker, by the worker's index.
pub(super) struct Rows(Vec<(PathBuf, File)>);

impl Rows {
    /// Creates the files before the load, so that a path that can't be written fails at once.
    ///
    /// # Errors
    /// When a folder or a file can't be created.
    pub(super) fn create(path: &Path, workers: u32) -> anyhow::Result<Self> {
        let one = |worker| {
            let path = if workers == 1 { path.to_owned() } else { rows_of(path, worker) };
            let failed = || format!("failed to create {}", path.display());
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).with_context(failed)?;
            }
            let file = File::create(&path).with_context(failed)?;
            Ok((path, file))
        };
        (0..workers).map(one).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Writes a worker's rows and returns a message for each problem. Moves lost rows from the worker's failures to
    /// these messages, because they are the generator's failure and not the gateway's.
    pub(super) fn write(&mut self, result: &mut WorkerResult, samples: Option<&[u8]>) -> Vec<String> {
        let Some((path, file)) = self.0.get_mut(result.worker as usize) else { return Vec::new() };
        let written = samples.map_or(Ok(()), |rows| write(path, file, rows));
        let failed = written.err().map(|error| format!("failed to write {}: {error}", path.display()));
        let lost = result.failures.outside.remove(SAMPLES_LOST);
        let missing = lost.map(|count| format!("{count} rows are missing from {}", path.display()));
        failed.into_iter().chain(missing).collect()
    }
}

fn write(path: &Path, file: &mut File, rows: &[u8]) -> io::Result<()> {
    if path.extension().is_some_and(|ending| ending == "zst") {
        file.write_all(rows)
    } else {
        zstd::stream::copy_decode(rows, file)
    }
}

/// The path for one of several workers: its index stands before the ending.
fn rows_of(path: &Path, worker: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, ending) = name.split_once('.').map_or((&*name, ""), |(stem, ending)| (stem, ending));
    path.with_file_name(OsString::from(format!("{stem}-{worker}.{ending}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_file_of_its_own() {
        assert_eq!(rows_of(Path::new("/r/a.csv.zst"), 2), Path::new("/r/a-2.csv.zst"));
    }
}
