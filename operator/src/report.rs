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

/// A report that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Path of its first page.
    pub path: PathBuf,
    /// What the command printed on standard output, without the line that has just this path.
    pub printed: String,
}

/// Makes the report. `command` is split at white space, and the bundle is appended as its last argument.
///
/// # Errors
/// When the command is empty, can't be executed or fails; what it printed on standard output is then part of the error.
pub fn make(command: &str, root: &Path, bundle: &Path) -> anyhow::Result<Report> {
    let mut analysis = analysis(command, root)?;
    let output = analysis.arg(bundle).current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| not_executed(&analysis))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let printed = printed.trim_end();
        let separator = if printed.is_empty() { "" } else { ":\n" };
        bail!("`{command} {}` ended with {}{separator}{printed}", bundle.display(), output.status);
    }
    let path = bundle.join("report").join("report.html");
    let printed =
        printed.lines().filter(|line| Path::new(line) != path).fold(String::new(), |text, line| text + line + "\n");
    Ok(Report { path, printed })
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

    use super::{KILLED, analyse, make};

    fn exit_code(script: &str) -> u8 {
        analyse("/bin/sh -c", Path::new("/"), &[script.into()]).unwrap()
    }

    #[test]
    fn the_exit_code_of_the_analysis_is_returned_and_a_killed_one_is_no_answer() {
        assert_eq!([exit_code("exit 0"), exit_code("exit 1"), exit_code("kill -9 $$")], [0, 1, KILLED]);
    }

    #[test]
    fn the_path_of_the_report_is_returned_and_not_printed_again() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("report");
        std::fs::write(&script, "echo one line\necho $1/report/report.html\nexit ${CODE:-0}\n").unwrap();
        let command = format!("/bin/sh {}", script.display());
        let report = make(&command, folder.path(), folder.path()).unwrap();
        assert_eq!(report.path, folder.path().join("report/report.html"));
        assert_eq!(report.printed, "one line\n");
        let failing = format!("/usr/bin/env CODE=3 {command}");
        let error = make(&failing, folder.path(), folder.path()).unwrap_err().to_string();
        assert!(error.contains("ended with exit status: 3:\none line\n"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = analyse("none/python -m x", Path::new("/"), &[]).unwrap_err();
        assert!(error.to_string().contains("/none/python"), "{error}");
    }
}
