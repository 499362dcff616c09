//! What pods wrote, kept where the local backend keeps it: `service.log`, `inference.log`,
//! `companion-<name>.log` and `workers/<index>.log` of a trial.

use std::{fs, path::Path, time::Duration};

use tokio::time::timeout;

use crate::api::ClusterApi;

/// All logs together may cost no more: the operator has ten seconds to stop.
pub(super) const LONGEST: Duration = Duration::from_secs(3);
/// Lines that a message quotes.
const QUOTED: usize = 20;

/// Keeps a container's log in a file; of one that was restarted also what it wrote before. What can't be had is said in
/// the file.
pub(super) async fn keep(api: &ClusterApi, pod: &str, container: &str, path: &Path) {
    let text = match timeout(LONGEST, text(api, pod, container)).await {
        Ok(text) => text,
        Err(_) => format!("(the log of pod {pod} did not come within {} s)\n", LONGEST.as_secs()),
    };
    if let Err(error) = fs::write(path, text) {
        eprintln!("ladder: failed to write {}: {error}", path.display());
    }
}

async fn text(api: &ClusterApi, pod: &str, container: &str) -> String {
    let before = api.log(pod, container, true).await.map(|text| format!("{text}\n(container {container} restarted)\n"));
    let now = api.log(pod, container, false).await;
    let now = now.unwrap_or_else(|error| format!("(its log went with pod {pod}: {error})\n"));
    before.unwrap_or_default() + &now
}

/// The last lines of a kept log, each on a line of its own; empty when there are none.
pub(super) fn last_words(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(QUOTED)..].iter().map(|line| format!("\n    {line}")).collect()
}
