//! Whether the results volume can be written. A little is written, because only that shows a quota or a full disk.

use std::{fs, io, path::Path};

use operator::store::files::{Disk, Files};

/// What the next trial may need at least.
const ROOM_BYTES: usize = 4 * 1024 * 1024;

/// Writes a file of some size, durably, and removes it.
///
/// # Errors
/// When that fails.
pub(super) fn probe(results: &Path) -> io::Result<()> {
    let folder = results.join(".operator");
    Disk.make_folder(&folder)?;
    let path = folder.join("probe");
    let written = Disk.write(&path, &vec![0x5a; ROOM_BYTES]);
    written.and_then(|()| fs::remove_file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_can_be_written_is_left_as_it_was() {
        let results = tempfile::tempdir().unwrap();
        probe(results.path()).unwrap();
        assert_eq!(fs::read_dir(results.path().join(".operator")).unwrap().count(), 0);
    }

    #[test]
    fn a_volume_that_can_not_be_written_is_found_out() {
        let results = tempfile::tempdir().unwrap();
        fs::write(results.path().join(".operator"), "in the way").unwrap();
        assert!(probe(results.path()).is_err());
    }
}
