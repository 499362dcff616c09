//! The file system operations of a store, behind a trait, so that tests can simulate a kill between any two of them.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use driver::coordinator::upload;

/// Largest file of a bundle that is read whole, in bytes: as large as the largest upload.
pub const LARGEST: u64 = upload::LARGEST as u64;

/// Reads a file that may come from another person: what isn't a regular file, which could block or never end, and what
/// is larger than `most` bytes is refused.
///
/// # Errors
/// The file system's error, or `InvalidData` with the reason.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let refused = |reason| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    if !fs::metadata(path)?.is_file() {
        return refused("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { refused(format!("it has more than {most} bytes")) } else { Ok(bytes) }
}

/// File system operations. Each except [`Files::append`] is durable when it returns or made durable by
/// [`Files::sync_folder`].
pub trait Files {
    /// Creates a folder and its parents.
    ///
    /// # Errors
    /// The file system's error.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with its content. Succeeds when the folder doesn't exist.
    ///
    /// # Errors
    /// The file system's error.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Writes a whole file and syncs it.
    ///
    /// # Errors
    /// The file system's error.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Appends to a file and creates it if needed. Need not be durable: only the timeline is written this way.
    ///
    /// # Errors
    /// The file system's error.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Renames a file and replaces an existing file of the new name.
    ///
    /// # Errors
    /// The file system's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Syncs a folder, which makes the names in it durable.
    ///
    /// # Errors
    /// The file system's error.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// Writes a file atomically: at any moment either the old file or the complete new one is there.
///
/// # Errors
/// The file system's error; the old file is then still there.
pub fn replace<F: Files>(files: &F, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("tmp");
    files.write(&temporary, bytes)?;
    files.rename(&temporary, path)?;
    files.sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Files for Disk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            // A partial file would only take space on a full disk.
            let _ = fs::remove_file(path);
        }
        written
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        File::options().create(true).append(true).open(path)?.write_all(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// A disk under a process that is killed after a number of steps. The last write stays half-done, and later steps do
/// nothing.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct KilledDisk {
    left: std::cell::Cell<usize>,
}

#[cfg(test)]
impl KilledDisk {
    pub(crate) fn after(steps: usize) -> Self {
        Self { left: steps.into() }
    }

    fn step(&self) -> io::Result<()> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
        self.left.set(left);
        Ok(())
    }
}

#[cfg(test)]
impl Files for KilledDisk {
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.make_folder(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.remove_folder(path))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.step() {
            Ok(()) => Disk.write(path, bytes),
            Err(killed) => fs::write(path, &bytes[..bytes.len() / 2]).and(Err(killed)),
        }
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step().and_then(|()| Disk.append(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.rename(from, to))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.sync_folder(path))
    }
}
