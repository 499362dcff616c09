//! Runs the analysis that makes the report of a bundle, at the end of a run.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// Makes the report and returns its path. `command` is split at white space, and the bundle is appended as its last
/// argument.
///
/// # Errors
/// When the command is empty, can't be executed or fails.
pub fn make(command: &str, root: &Path, bundle: &Path) -> anyhow::Result<PathBuf> {
    let mut parts = command.split_whitespace();
    let program = parts.next().context("the report command is empty")?;
    let status = Command::new(if program.contains('/') { root.join(program) } else { program.into() })
        .args(parts)
        .arg(bundle)
        .current_dir(root)
        .env("PYTHONPATH", python_path(root))
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("failed to run {program}; `just setup` makes it, or give --no-report"))?;
    if !status.success() {
        bail!("`{command} {}` ended with {status}", bundle.display());
    }
    Ok(bundle.join("report").join("report.html"))
}

/// `PYTHONPATH` with this checkout's analysis and its generated types first, then the inherited value.
fn python_path(root: &Path) -> OsString {
    let mut path = root.join("analysis").into_os_string();
    path.push(":");
    path.push(root.join("loadgen/bench-format/python"));
    if let Some(before) = env::var_os("PYTHONPATH") {
        path.push(":");
        path.push(before);
    }
    path
}
