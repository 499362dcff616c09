//! A side that is a commit: checks it out beside this checkout, and builds its service there.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

/// Number of lines of a failed build that are printed.
const LAST_LINES: usize = 20;
/// Folder in a checkout that has an empty file for each service that was built there.
const BUILT: &str = "target/compare-built";

/// The full id of the commit that a revision means in a checkout.
pub(super) fn of(root: &Path, revision: &str) -> anyhow::Result<String> {
    let commit = format!("{revision}^{{commit}}");
    let found = git(root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]);
    let Ok(found) = found else {
        bail!("{revision} is neither a folder nor a commit of {}; fetch it, or write SERVICE@FOLDER", root.display());
    };
    Ok(found)
}

fn folder_of(root: &Path, commit: &str) -> PathBuf {
    root.join("target/compare").join(commit)
}

/// The folder of a commit in which a service was built before.
pub(super) fn built(root: &Path, commit: &str, service: &str) -> anyhow::Result<PathBuf> {
    let folder = folder_of(root, commit);
    if !folder.join(BUILT).join(service).exists() {
        bail!("it is not built in {} any more; start a new comparison, which builds it", folder.display());
    }
    Ok(folder)
}

/// Checks a commit out into `target/compare/<commit>`, where it stays for the next time; returns that folder.
pub(super) fn check_out(root: &Path, commit: &str) -> anyhow::Result<PathBuf> {
    let folder = folder_of(root, commit);
    if folder.join(".git").exists() {
        return match git(&folder, &["rev-parse", "HEAD"]) {
            Ok(head) if head == commit => Ok(folder),
            _ => {
                bail!("{0} is not at its commit any more; remove it: git worktree remove --force {0}", folder.display())
            }
        };
    }
    eprintln!("checking {commit} out into {}", folder.display());
    // A folder that was deleted by hand is still in git's list.
    git(root, &["worktree", "prune"])?;
    let path = folder.to_string_lossy();
    git(root, &["worktree", "add", "--detach", &path, commit])?;
    Ok(folder)
}

/// Builds a service as that checkout builds it, unless it was built before.
pub(super) fn build(root: &Path, service: &str) -> anyhow::Result<()> {
    let marks = root.join(BUILT);
    let mark = marks.join(service);
    if mark.exists() {
        return Ok(());
    }
    fs::create_dir_all(&marks).with_context(|| format!("failed to make {}", marks.display()))?;
    let log = marks.join(format!("{service}.log"));
    let output = File::create(&log).with_context(|| format!("failed to write {}", log.display()))?;
    eprintln!("building {service} in {}; its output: {}", root.display(), log.display());
    let status = Command::new("./justw")
        .args(["build", service])
        .current_dir(root)
        // The programs must come to lie in that checkout.
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("failed to run ./justw in {}, so the commit can't be built", root.display()))?;
    if !status.success() {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  ");
        bail!(
            "`./justw build {service}` failed in {} ({status}); the end of {}:\n  {last}",
            root.display(),
            log.display()
        );
    }
    File::create(&mark).with_context(|| format!("failed to write {}", mark.display()))?;
    Ok(())
}

/// The first line that git prints.
fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.context("failed to run git")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("`git {}` failed in {}: {message}", arguments.join(" "), folder.display());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}
