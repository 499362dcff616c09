//! `MANIFEST.sha256`: the digest of each file of a bundle whose run has ended, in the format of `sha256sum`.
//!
//! The store writes it at the end of a run. `ladder verify` compares it with the files, and `ladder sign` signs its
//! bytes. A list has one form only (sorted, lower-case digests, no comments), so that an altered byte of it shows.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use sha2::{Digest, Sha256};

/// Name of the list in a bundle's folder.
pub const MANIFEST: &str = "MANIFEST.sha256";
/// Name of the list's signature: base64 of the 64 bytes of ed25519.
pub const SIGNATURE: &str = "MANIFEST.sha256.sig";
/// Name of the signer's public key, in PEM.
pub const PUBLIC_KEY: &str = "MANIFEST.sha256.pub";
/// Files and folders of a bundle that its list leaves out, each with the reason.
pub const LEFT_OUT: [(&str, &str); 5] = [
    (MANIFEST, "no file contains its own digest"),
    (SIGNATURE, "it is made of the list"),
    (PUBLIC_KEY, "it is written with the signature"),
    (".lock", "it is empty, and locked by the process that writes the bundle"),
    ("report", "it is made of the other files, and can be made again at any time"),
];
/// Largest number of files in a bundle; more indicate an error.
pub const MOST_FILES: usize = 100_000;
/// Deepest nesting of folders in a bundle.
pub const DEEPEST: usize = 12;
/// Largest list that is read, in bytes: enough for [`MOST_FILES`] paths of 400 bytes.
pub const LARGEST_LIST: u64 = 64 << 20;

/// Size of the chunks in which a file is read, in bytes.
const CHUNK: usize = 64 * 1024;
/// Number of hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// A line that can't be in a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {reason}")]
pub struct BrokenLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with the line.
    pub reason: &'static str,
}

/// The digests of a bundle's files, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest(pub BTreeMap<String, String>);

impl Manifest {
    /// Reads all files of a bundle. `run_json` stands for a `run.json` that is not written yet.
    ///
    /// Links, hidden files, and files that an interrupted write has left are not listed: no run makes them.
    ///
    /// # Errors
    /// When a file can't be read, or the bundle has too many files or folders.
    pub fn of(bundle: &Path, run_json: &[u8]) -> io::Result<Self> {
        let mut digests = BTreeMap::new();
        for path in walk(bundle)?.files.into_keys().filter(|path| is_listed(path)) {
            let sha256 = digest(File::open(bundle.join(&path))?)?.0;
            digests.insert(path, sha256);
        }
        digests.insert("run.json".into(), digest(run_json)?.0);
        Ok(Self(digests))
    }

    /// Parses a list in the only form that it has.
    ///
    /// # Errors
    /// The first [`BrokenLine`].
    pub fn parse(text: &[u8]) -> Result<Self, BrokenLine> {
        let mut digests = BTreeMap::new();
        let mut last = String::new();
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let broken = |reason| BrokenLine { line: index + 1, reason };
            let line = str::from_utf8(line).map_err(|_| broken("is not UTF-8"))?;
            let line = line.strip_suffix('\n').ok_or_else(|| broken("has no end"))?;
            let (sha256, path) = line.split_once("  ").ok_or_else(|| broken("is not DIGEST  PATH"))?;
            let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
            if sha256.len() != DIGITS || !sha256.bytes().all(is_digit) {
                return Err(broken("doesn't begin with 64 lower-case hexadecimal digits"));
            }
            if !is_inside(path) {
                return Err(broken("has a path that is in no bundle"));
            }
            if path <= last.as_str() {
                return Err(broken("is not in the order of the paths"));
            }
            path.clone_into(&mut last);
            digests.insert(path.into(), sha256.into());
        }
        Ok(Self(digests))
    }

    /// The list as it is written.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (path, sha256) in &self.0 {
            writeln!(text, "{sha256}  {path}").expect("a string takes all that is written");
        }
        text
    }
}

/// What is in a bundle's folder, apart from what the list leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The size of each file in bytes, by its path in the bundle.
    pub files: BTreeMap<String, u64>,
    /// Entries that no bundle has, such as links, each with the reason.
    pub foreign: BTreeMap<String, &'static str>,
}

/// Lists what is in a bundle's folder. Links are not followed.
///
/// # Errors
/// When a folder can't be read, or the bundle has more than [`MOST_FILES`] files or is deeper than [`DEEPEST`].
pub fn walk(bundle: &Path) -> io::Result<Walk> {
    let mut walk = Walk::default();
    enter(bundle, "", DEEPEST, &mut walk)?;
    Ok(walk)
}

fn enter(folder: &Path, prefix: &str, deep: usize, walk: &mut Walk) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let path = format!("{prefix}{}", name.to_string_lossy());
        let metadata = entry.metadata()?;
        if prefix.is_empty() && LEFT_OUT.iter().any(|(left_out, _)| *left_out == path) {
            note_left_out(path, &metadata, walk);
        } else if name.to_str().is_none_or(|name| !is_printable(name)) {
            walk.foreign.insert(path, "its name is not a file name of a bundle");
        } else if metadata.is_dir() {
            let deep = deep.checked_sub(1).ok_or_else(|| too_much("its folders are nested too deep"))?;
            enter(&entry.path(), &format!("{path}/"), deep, walk)?;
        } else if metadata.is_file() {
            walk.files.insert(path, metadata.len());
        } else {
            walk.foreign.insert(path, "it is neither a file nor a folder");
        }
        if walk.files.len() + walk.foreign.len() > MOST_FILES {
            return Err(too_much("it has too many files"));
        }
    }
    Ok(())
}

/// Notes an entry that the list leaves out, if it is of another kind than ladder makes it.
fn note_left_out(path: String, metadata: &fs::Metadata, walk: &mut Walk) {
    let as_made = match path.as_str() {
        "report" => metadata.is_dir(),
        ".lock" => metadata.is_file() && metadata.len() == 0,
        _ => metadata.is_file(),
    };
    if !as_made {
        walk.foreign.insert(path, "it is not what ladder makes under this name");
    }
}

fn too_much(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{reason} for a bundle"))
}

/// Whether a name can stand in a line of the list: `sha256sum` escapes a backslash and a line break.
fn is_printable(name: &str) -> bool {
    !name.contains('\\') && !name.chars().any(char::is_control)
}

fn is_inside(path: &str) -> bool {
    is_printable(path) && path.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Whether a file belongs in the list: it is neither hidden nor left by an interrupted write.
fn is_listed(path: &str) -> bool {
    !path.ends_with(".tmp") && path.split('/').all(|name| !name.starts_with('.'))
}

/// The SHA-256 digest of everything that can be read, in hexadecimal, and the number of bytes.
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

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in ["run.json", "trials/a/result.json", "MANIFEST.sha256", "report/report.md", "a.json.tmp", ".x"] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "old").unwrap();
        }
        folder
    }

    #[test]
    fn a_list_has_each_file_of_the_bundle_and_the_run_as_it_will_be() {
        let manifest = Manifest::of(bundle().path(), b"new").unwrap();
        assert_eq!(manifest.0.keys().collect::<Vec<_>>(), ["run.json", "trials/a/result.json"]);
        assert_eq!(manifest.0["run.json"], digest(&b"new"[..]).unwrap().0);
        assert_eq!(Manifest::parse(manifest.text().as_bytes()), Ok(manifest));
    }

    #[test]
    fn sha256sum_reads_a_list() {
        let bundle = bundle();
        let text = Manifest::of(bundle.path(), b"old").unwrap().text();
        fs::write(bundle.path().join(MANIFEST), text).unwrap();
        let check = std::process::Command::new("sha256sum")
            .args(["--check", "--strict", MANIFEST])
            .current_dir(bundle.path())
            .output()
            .unwrap();
        assert!(check.status.success(), "{check:?}");
    }

    #[test]
    fn a_list_has_one_form_only() {
        let digest = "0".repeat(DIGITS);
        let reason = |text: String| Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(reason(format!("{digest}  a")), "line 1 has no end");
        assert_eq!(reason(format!("{digest} *a\n")), "line 1 is not DIGEST  PATH");
        assert!(reason(format!("{}  a\n", "A".repeat(DIGITS))).contains("lower-case"));
        assert_eq!(reason(format!("{digest}  b\n{digest}  a\n")), "line 2 is not in the order of the paths");
        assert_eq!(reason(format!("{digest}  a\n{digest}  a\n")), "line 2 is not in the order of the paths");
        for path in ["../a", "/a", "", "a//b", "a/./b", "./a", "a/", "a/.", "a\\b", "a\tb"] {
            assert_eq!(reason(format!("{digest}  {path}\n")), "line 1 has a path that is in no bundle", "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_a_list_in_its_one_form_or_none(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            for bytes in [bytes.clone(), [digest(&b""[..]).unwrap().0.as_bytes(), b"  ", &bytes].concat()] {
                if let Ok(manifest) = Manifest::parse(&bytes) {
                    assert_eq!(manifest.text().as_bytes(), bytes);
                }
            }
        }
    }

    #[test]
    fn links_are_not_followed_and_a_lock_is_empty() {
        let bundle = bundle();
        std::os::unix::fs::symlink("/etc", bundle.path().join("trials/etc")).unwrap();
        fs::write(bundle.path().join(".lock"), "x").unwrap();
        let walk = walk(bundle.path()).unwrap();
        assert_eq!(walk.foreign.keys().collect::<Vec<_>>(), [".lock", "trials/etc"]);
        assert_eq!(walk.files.len(), 4);
    }

    #[test]
    fn a_bundle_with_folders_without_end_is_refused() {
        let bundle = tempfile::tempdir().unwrap();
        fs::create_dir_all(bundle.path().join("a/".repeat(DEEPEST + 1))).unwrap();
        assert!(walk(bundle.path()).unwrap_err().to_string().contains("nested too deep"));
    }
}
