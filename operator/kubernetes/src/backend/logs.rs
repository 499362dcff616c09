//! Stores the logs of pods under the names that the local backend uses, in a trial's folder: `service.log`,
//! `inference.log`, `companion-<name>.log` and `workers/<index>.log`. Of several pods of a service, the second and later
//! ones have `service-1.log`, `service-2.log` and so on.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;

use crate::api::ClusterApi;

/// Longest time for reading a log. Logs are read in parallel, since the operator has ten seconds to stop.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of lines that a message quotes.
const QUOTED_LINES: usize = 20;

/// Writes a container's log to a file, including the log before its last restart. If the log can't be read, the file
/// contains the reason.
pub(super) async fn store_log(api: &ClusterApi, pod: &str, container: &str, path: &Path) {
    let text = match timeout(READ_TIMEOUT, text(api, pod, container)).await {
        Ok(text) => text,
        Err(_) => format!("(the log of pod {pod} could not be read within {} s)\n", READ_TIMEOUT.as_secs()),
    };
    if let Err(error) = fs::write(path, text) {
        eprintln!("ladder: failed to write {}: {error}", path.display());
    }
}

/// The file for the log of replica `index` of a service whose first one has `log`.
pub(super) fn of_replica(log: &Path, index: usize) -> PathBuf {
    let stem = log.file_stem().unwrap_or_default().to_string_lossy();
    if index == 0 { log.into() } else { log.with_file_name(format!("{stem}-{index}.log")) }
}

async fn text(api: &ClusterApi, pod: &str, container: &str) -> String {
    let before = api.log(pod, container, true).await.map(|text| format!("{text}\n(container {container} restarted)\n"));
    let now = api.log(pod, container, false).await;
    let now = now.unwrap_or_else(|error| format!("(the log of pod {pod} can't be read any more: {error})\n"));
    before.unwrap_or_default() + &now
}

/// The last lines of a stored log, each on its own line; empty when there are none.
pub(super) fn last_output(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(|line| format!("\n    {line}")).collect()
}
