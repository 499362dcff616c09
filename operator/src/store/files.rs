//! The few things that a store does to a file system, behind a trait so that tests can die between any two of them.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Steps on files, each durable when it returns.
pub trait Files {
    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// When the file system refuses.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with all that is in it; one that isn't there is fine.
    ///
    /// # Errors
    /// When the file system refuses.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Writes a whole file.
    ///
    /// # Errors
    /// When the file system refuses.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Adds to the end of a file. Needn't be durable: nothing that counts is written so.
    ///
    /// # Errors
    /// When the file system refuses.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Gives a file its name, in place of any other of that name.
    ///
    /// # Errors
    /// When the file system refuses.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    ///
    /// # Errors
    /// When the file system refuses.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// Writes a file so that at any instant either the old one or the whole new one is there.
///
/// # Errors
/// When the file system refuses; the old file is then still there.
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
            // Half a file on a full disk only makes it fuller.
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

/// A disk under a process that is killed after so many steps: the last write is left half-done, and nothing happens
/// any more after it.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Dying {
    left: std::cell::Cell<usize>,
}

#[cfg(test)]
impl Dying {
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
impl Files for Dying {
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
