//! Signs the list of a bundle's files, after a check that the files are those of the list.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bench_format::run::RunState;

use crate::{
    signing::SigningKey,
    store::{
        self, Store,
        files::{Disk, replace},
        manifest::{MANIFEST, PUBLIC_KEY, SIGNATURE},
    },
    verify,
};

/// Why a bundle is not signed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle can't be read or written, or is in use.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The run goes on, or was interrupted.
    #[error("{0}: its run has not ended; resume it to its end with `ladder run --resume`, and sign it then")]
    Unfinished(PathBuf),
    /// The files are not those of the list.
    #[error(
        "{place}: {reason}; the files are not those of the run's end, so they are not signed: `ladder verify` prints all \
         differences"
    )]
    Altered {
        /// Path of the first file that differs.
        place: String,
        /// How the file differs from the list.
        reason: String,
    },
    /// The signature can't be written.
    #[error("failed to write {path}")]
    Write {
        /// The file that can't be written.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
}

/// Who made the list that was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The run wrote it at its end, and the files are still those of the list.
    OfTheRun,
    /// The bundle had none, so it was written now. Whether the files were altered before can't be said.
    WrittenNow,
}

/// Signs a bundle: writes its signature and the public key beside the list of its files.
///
/// # Errors
/// [`Error`] when the bundle can't be read or written, is in use, has not ended, or differs from its list.
pub fn sign(bundle: &Path, key: &SigningKey) -> Result<List, Error> {
    let (store, run) = Store::open_folder(bundle.into())?;
    if run.state == RunState::Running {
        return Err(Error::Unfinished(bundle.into()));
    }
    let list = match store::read_list(bundle)? {
        Some(manifest) => {
            let walk = store.walk()?;
            if let Some(finding) = verify::files::compare(bundle, &manifest, &walk).into_iter().next() {
                return Err(Error::Altered { place: finding.place, reason: finding.reason });
            }
            List::OfTheRun
        }
        None => {
            store.write_list()?;
            List::WrittenNow
        }
    };
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        |source| Error::Write { path, source }
    };
    let path = bundle.join(MANIFEST);
    let text = fs::read(&path).map_err(|source| store::Error::File { verb: "read", path, source })?;
    for (name, content) in [(PUBLIC_KEY, key.public().pem()), (SIGNATURE, key.sign(&text))] {
        let path = bundle.join(name);
        replace(&Disk, &path, content.as_bytes()).map_err(failed(&path))?;
    }
    Ok(list)
}
