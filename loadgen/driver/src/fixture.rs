//! Writes programs that tests of other crates start.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Writes `text` as an executable file at `path`, through a process of its own. Panics if that fails.
///
/// A test that wrote the file itself would share the open file with every process that another test starts at that
/// moment, and the kernel starts no file that someone still has open for writing (`ETXTBSY`).
pub fn write_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["--mode=755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{} was not written", path.display());
}
