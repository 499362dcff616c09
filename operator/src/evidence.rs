//! Facts about a run that its bundle records: commit and versions. Reads only.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::registry::Service;

pub mod lines;

/// Why a version is unknown. A program without a version is not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The version command is missing, fails or prints nothing.
    #[error("failed to get the version of {service} with `{command}`: {reason}")]
    Version {
        /// Name of the service.
        service: String,
        /// The version command of the registry.
        command: String,
        /// Why the command gave no version.
        reason: String,
    },
}

/// The commit of a checkout, with `+changes` when `git status` lists changes; empty outside a checkout.
pub fn commit(root: &Path) -> String {
    let Ok(commit) = output(root, &["git", "rev-parse", "HEAD"]) else {
        return String::new();
    };
    match output(root, &["git", "status", "--porcelain"]) {
        Ok(changes) if changes.is_empty() => commit,
        _ => format!("{commit}+changes"),
    }
}

/// The version that a program of the registry prints; `version` is the command that prints it.
///
/// # Errors
/// When the version command is missing, fails or prints nothing.
pub fn version(root: &Path, name: &str, version: &[String]) -> Result<String, Error> {
    let arguments: Vec<&str> = version.iter().map(String::as_str).collect();
    let failed = |reason| Error::Version { service: name.into(), command: arguments.join(" "), reason };
    if arguments.is_empty() {
        return Err(failed("the registry has no version command".into()));
    }
    match output(root, &arguments) {
        Ok(version) if version.is_empty() => Err(failed("it printed nothing".into())),
        result => result.map_err(failed),
    }
}

/// The version of the Python interpreter that runs a service; `None` where the command is not Python.
pub fn python_version(root: &Path, service: &Service) -> Option<String> {
    let program = service.command.first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    if name.starts_with("python") { output(root, &[program, "--version"]).ok() } else { None }
}

/// The first line that a command prints, or why there is none.
fn output(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let [program, arguments @ ..] = arguments else { return Err("it is empty".into()) };
    let path = if program.contains('/') { root.join(program) } else { program.into() };
    let output = Command::new(path)
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let arguments = String::from_utf8_lossy(&output.stderr);
        let last = arguments.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(format!("{}: {last}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(command: &[&str]) -> Result<String, Error> {
        let arguments: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        version(Path::new("/"), "a", &arguments)
    }

    #[test]
    fn a_version_is_the_first_line_that_the_command_prints() {
        assert_eq!(version_of(&["echo", "1.2"]).unwrap(), "1.2");
    }

    #[test]
    fn a_service_without_a_version_is_not_measured() {
        let arguments = |version: &[&str]| version_of(version).unwrap_err().to_string();
        assert!(arguments(&[]).contains("no version command"));
        assert!(arguments(&["true"]).contains("it printed nothing"));
        assert!(arguments(&["false"]).contains("failed to get the version of a with `false`: exit status: 1"));
    }

    #[test]
    fn a_folder_outside_a_checkout_has_no_commit() {
        assert_eq!(commit(tempfile::tempdir().unwrap().path()), "");
    }
}
