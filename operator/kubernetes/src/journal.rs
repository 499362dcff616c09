//! The original values of everything that the operator changes, stored on the results volume. If an operator is killed,
//! the next one restores them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use operator::store::files::{Disk, Files, replace};
use serde::{Deserialize, Serialize};

/// The original value of an object that the operator changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Original {
    /// The number of replicas of a Deployment.
    Deployment {
        /// Name of the Deployment.
        name: String,
        /// The original number of replicas.
        replicas: i32,
    },
    /// The suspension of a Job.
    Job {
        /// Name of the Job.
        name: String,
        /// Whether the Job was suspended originally.
        suspend: bool,
    },
}

impl Original {
    fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Deployment { name, .. }, Self::Deployment { name: other, .. })
            | (Self::Job { name, .. }, Self::Job { name: other, .. }) => name == other,
            _ => false,
        }
    }
}

/// The journal, with its entries in memory and on disk.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Vec<Original>,
}

impl Journal {
    /// Opens the journal of a results folder, with the entries that an earlier operator left.
    ///
    /// # Errors
    /// When the file exists but can't be read or parsed.
    pub fn open(results: &Path) -> io::Result<Self> {
        let path = results.join(".operator").join("changes.json");
        let entries = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { path, entries })
    }

    /// The values that are not restored yet, in the order of the changes.
    pub fn entries(&self) -> &[Original] {
        &self.entries
    }

    /// Adds an original value and writes the journal, synced, before the change is made. If the object has an entry
    /// already, that one is kept.
    ///
    /// # Errors
    /// When the journal can't be written; the change must then not be made.
    pub fn note(&mut self, original: Original) -> io::Result<()> {
        if self.entries.iter().any(|known| known.is_of_same(&original)) {
            return Ok(());
        }
        let mut entries = self.entries.clone();
        entries.push(original);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        Disk.make_folder(folder)?;
        replace(&Disk, &self.path, &serde_json::to_vec_pretty(&entries)?)?;
        self.entries = entries;
        Ok(())
    }

    /// Removes a restored value. If the journal can't be written (a full disk), the value is only restored once more.
    pub fn forget(&mut self, original: &Original) {
        self.entries.retain(|known| known != original);
        let written = if self.entries.is_empty() {
            fs::remove_file(&self.path)
        } else {
            serde_json::to_vec_pretty(&self.entries)
                .map_err(io::Error::from)
                .and_then(|bytes| replace(&Disk, &self.path, &bytes))
        };
        if let Err(error) = written.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        }) {
            eprintln!("ladder: failed to update {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i32) -> Original {
        Original::Deployment { name: "a".into(), replicas }
    }

    #[test]
    fn the_first_recorded_original_survives_restarts_and_later_changes() {
        let results = tempfile::tempdir().unwrap();
        let job = Original::Job { name: "a".into(), suspend: true };
        let mut journal = Journal::open(results.path()).unwrap();
        journal.note(deployment(0)).unwrap();
        journal.note(job.clone()).unwrap();
        journal.note(deployment(1)).unwrap();
        let mut journal = Journal::open(results.path()).unwrap();
        assert_eq!(journal.entries(), [deployment(0), job.clone()]);
        journal.forget(&deployment(0));
        journal.forget(&job);
        assert_eq!(Journal::open(results.path()).unwrap().entries(), []);
        assert!(!results.path().join(".operator/changes.json").exists());
    }

    #[test]
    fn a_journal_that_can_not_be_written_forbids_the_change() {
        let results = tempfile::tempdir().unwrap();
        fs::write(results.path().join(".operator"), "in the way").unwrap();
        let mut journal = Journal { path: results.path().join(".operator/changes.json"), entries: vec![] };
        assert!(journal.note(deployment(0)).is_err());
        assert_eq!(journal.entries(), []);
    }
}
