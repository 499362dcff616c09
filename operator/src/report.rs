//! Runs the Python analysis: it makes the report of a bundle, at the end of a run, and reads finished bundles.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, bail};

/// Exit code of a command of the analysis that was killed.
const KILLED: u8 = 2;

/// Makes the report and returns its path. `command` is split at white space, and the bundle is appended as its last
/// argument. Its standard output goes to `stdout`.
///
/// # Errors
/// When the command is empty, can't be executed or fails.
pub fn make(command: &str, root: &Path, bundle: &Path, stdout: Stdio) -> anyhow::Result<PathBuf> {
    let status = execute(analysis(command, root)?.arg(bundle).current_dir(root).stdout(stdout))?;
    if !status.success() {
        bail!("`{command} {}` ended with {status}", bundle.display());
    }
    Ok(bundle.join("report").join("report.html"))
}

/// Runs a command of the analysis in the current directory and returns its exit code. `command` is split at white
/// space, and `words` are appended.
///
/// # Errors
/// When the command is empty or can't be executed.
pub fn analyse(command: &str, root: &Path, words: &[OsString]) -> anyhow::Result<u8> {
    let status = execute(analysis(command, root)?.args(words))?;
    Ok(status.code().and_then(|code| code.try_into().ok()).unwrap_or(KILLED))
}

/// Runs a command of the analysis, as [`analyse`] does, and returns what it prints, regardless of its exit
/// code.
///
/// # Errors
/// When the command is empty or can't be executed.
pub fn output(command: &str, root: &Path, words: &[OsString]) -> anyhow::Result<Vec<u8>> {
    let mut analysis = analysis(command, root)?;
    let output = analysis.args(words).stderr(Stdio::inherit()).output();
    Ok(output.with_context(|| not_executed(&analysis))?.stdout)
}

fn analysis(command: &str, root: &Path) -> anyhow::Result<Command> {
    let mut parts = command.split_whitespace();
    let program = parts.next().context("the command of the analysis is empty")?;
    let mut analysis = Command::new(if program.contains('/') { root.join(program) } else { program.into() });
    analysis.args(parts).env("PYTHONPATH", python_path(root)).stdin(Stdio::null());
    Ok(analysis)
}

fn execute(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let status = command.status();
    status.with_context(|| not_executed(command))
}

fn not_executed(command: &Command) -> String {
    let program = command.get_program().display();
    format!("failed to run {program}; run in the checkout after `just _python-env`, or name another command")
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KILLED, analyse};

    fn exit_code(script: &str) -> u8 {
        analyse("/bin/sh -c", Path::new("/"), &[script.into()]).unwrap()
    }

    #[test]
    fn the_exit_code_of_the_analysis_is_returned_and_a_killed_one_is_no_answer() {
        assert_eq!([exit_code("exit 0"), exit_code("exit 1"), exit_code("kill -9 $$")], [0, 1, KILLED]);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = analyse("none/python -m x", Path::new("/"), &[]).unwrap_err();
        assert!(error.to_string().contains("/none/python"), "{error}");
    }
}
