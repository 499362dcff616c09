//! Checks whether the results volume can be written, by writing a file: only that reveals a quota or a full disk.

use std::{fs, io, path::Path};

use operator::store::files::{Disk, Files};

/// Size of the probe file, in bytes: the least that the next trial may need.
const PROBE_BYTES: usize = 4 * 1024 * 1024;

/// Writes a file of [`PROBE_BYTES`], synced, and removes it.
///
/// # Errors
/// The file system's error.
pub(super) fn probe(results: &Path) -> io::Result<()> {
    let folder = results.join(".operator");
    Disk.make_folder(&folder)?;
    let path = folder.join("probe");
    let written = Disk.write(&path, &vec![0x5a; PROBE_BYTES]);
    written.and_then(|()| fs::remove_file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_a_writable_volume_leaves_no_file() {
        let results = tempfile::tempdir().unwrap();
        probe(results.path()).unwrap();
        assert_eq!(fs::read_dir(results.path().join(".operator")).unwrap().count(), 0);
    }

    #[test]
    fn a_volume_that_cannot_be_written_is_detected() {
        let results = tempfile::tempdir().unwrap();
        fs::write(results.path().join(".operator"), "in the way").unwrap();
        assert!(probe(results.path()).is_err());
    }
}
