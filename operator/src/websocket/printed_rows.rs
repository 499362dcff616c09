//! Runs the command that prints the rows of connections: once for each climb, before its first trial. A check runs nothing.
//!
//! What it prints are tokens as a rule: only assignments have it, no bundle, no log and no error.

use std::{io, path::Path, process::Stdio, time::Duration};

use bench_format::{
    plan::WirePlan,
    websocket::{PrintedRows, RowsCommand},
};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

use super::filled;

/// Most output, in bytes: each worker gets it with each of its assignments.
const MOST_BYTES: usize = 16 << 20;
/// How much of the end of standard error an error quotes, in bytes.
const QUOTED_BYTES: usize = 2048;

/// Why there are no rows.
#[derive(Debug, thiserror::Error)]
#[error("websocket.connect.rows_command: failed to get rows from `{program}`: {problem}")]
pub struct RowsError {
    program: String,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}; is it installed?")]
    Start(io::Error),
    #[error("{0}")]
    Read(io::Error),
    #[error("it ended with {status}{said}; run it by hand in {folder}")]
    Status { status: std::process::ExitStatus, said: Said, folder: String },
    #[error("it didn't end within {0} s; give it longer with timeout_seconds, or let it print its rows and end")]
    Slow(f64),
    #[error("it printed more than {} MiB; let it print fewer rows, since connections take them in turn", MOST_BYTES >> 20)]
    TooMuch,
    #[error("what it printed is not UTF-8; let it print UTF-8")]
    Encoding,
    #[error("{0}")]
    Mistakes(String),
}

/// The end of what a command said on standard error.
#[derive(Debug)]
struct Said(String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { write!(f, " and said nothing") } else { write!(f, ": {}", self.0) }
    }
}

/// What the command of a plan's `connect.rows_command` prints; `None` without a command, or where the plan climbs no service
/// that it describes. Relative paths start from `root`.
///
/// # Errors
/// When the command can't be run, fails, takes too long, or prints what are no rows.
pub async fn printed_rows(plan: &WirePlan, root: &Path) -> Result<Option<PrintedRows>, RowsError> {
    let Some(section) = &plan.websocket else { return Ok(None) };
    let Some(command) = &section.connect.rows_command else { return Ok(None) };
    if !plan.services.iter().any(|name| section.services.contains_key(name)) {
        return Ok(None);
    }
    let failed = |problem| RowsError { program: command.command.first().cloned().unwrap_or_default(), problem };
    let text = output(command, root).await.map_err(failed)?;
    let mistakes = match filled(section, |name| std::env::var(name).ok()) {
        Ok(filled) => ws_bench::check_printed(&filled, &text),
        Err(missing) => vec![(missing.place.clone(), missing.to_string())],
    };
    if mistakes.is_empty() {
        return Ok(Some(text.into()));
    }
    let lines: Vec<_> = mistakes.iter().map(|(place, message)| format!("websocket.{place}: {message}")).collect();
    Err(failed(Problem::Mistakes(lines.join("; "))))
}

async fn output(rows: &RowsCommand, root: &Path) -> Result<String, Problem> {
    let [program, arguments @ ..] = &rows.command[..] else {
        return Err(Problem::Start(io::Error::new(io::ErrorKind::InvalidInput, "it is empty")));
    };
    let path = if program.contains('/') { root.join(program) } else { program.into() };
    let child = Command::new(path)
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(Problem::Start)?;
    let mut running = Running { group: child.id().and_then(|pid| Pid::from_raw(pid as i32)), child };
    let limit = Duration::from_secs_f64(rows.timeout_seconds);
    let (printed, said, status) =
        timeout(limit, running.end()).await.map_err(|_| Problem::Slow(limit.as_secs_f64()))?;
    let printed = printed.map_err(Problem::Read)?;
    // One that prints too much may also have failed, because no one reads the rest.
    if printed.len() > MOST_BYTES {
        return Err(Problem::TooMuch);
    }
    let status = status.map_err(Problem::Read)?;
    if !status.success() {
        return Err(Problem::Status { status, said, folder: root.display().to_string() });
    }
    String::from_utf8(printed).map_err(|_| Problem::Encoding)
}

/// A running command. Dropped before its end, it is killed with all that it started.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    /// What it printed, up to a byte more than is allowed, and the end of what it said; and how it ended.
    async fn end(&mut self) -> (io::Result<Vec<u8>>, Said, io::Result<std::process::ExitStatus>) {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let printed = async {
            let mut bytes = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
            }
            Ok(bytes)
        };
        let (printed, said) = tokio::join!(printed, last_words(stderr));
        let status = self.child.wait().await;
        self.group = None;
        (printed, said, status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The end of a stream, in one line.
async fn last_words(stream: Option<impl AsyncRead + Unpin>) -> Said {
    let (mut end, mut buffer) = (Vec::new(), [0; 4096]);
    if let Some(mut stream) = stream {
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            end.extend_from_slice(&buffer[..length]);
            end.drain(..end.len().saturating_sub(QUOTED_BYTES));
        }
    }
    let text = String::from_utf8_lossy(&end);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Said(lines.join(" / ").chars().filter(|character| !character.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::plan::check::fixture::minimal;

    /// What a shell script prints as the rows of a plan with this header.
    async fn printed(script: &str, header: &str) -> Result<Option<PrintedRows>, String> {
        let json = serde_json::json!({
            "services": { "chat": { "url": "ws://127.0.0.1:1/", "version": "1" } },
            "connect": {
                "headers": { "Authorization": header },
                "rows_command": { "command": ["sh", "-c", script], "format": "json-lines", "timeout_seconds": 5 },
            },
        });
        let mut plan = minimal();
        (plan.services, plan.websocket) = (vec!["chat".parse().unwrap()], serde_json::from_value(json).unwrap());
        printed_rows(&plan, Path::new("/")).await.map_err(|error| error.to_string())
    }

    const ROW: &str = "echo '{\"token\":\"s3cret\"}'";

    #[tokio::test]
    async fn what_a_command_prints_are_the_rows() {
        let rows = printed(&format!("{ROW}; pwd >&2"), "Bearer {{row.token}}").await.unwrap().unwrap();
        assert_eq!(rows.text(), "{\"token\":\"s3cret\"}\n");
    }

    #[tokio::test]
    async fn rows_without_a_command_and_plans_of_other_services_run_nothing() {
        let mut plan = minimal();
        assert!(printed_rows(&plan, Path::new("/")).await.unwrap().is_none());
        let json = serde_json::json!({ "connect": { "rows_command": { "command": ["false"] } } });
        plan.websocket = serde_json::from_value(json).unwrap();
        assert!(printed_rows(&plan, Path::new("/")).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_command_that_fails_is_quoted_by_its_last_words_and_never_by_its_rows() {
        let script = format!("{ROW}; echo no such tenant >&2; exit 3");
        let error = printed(&script, "{{row.token}}").await.unwrap_err();
        let expected = "websocket.connect.rows_command: failed to get rows from `sh`: it ended with exit status: 3: no such \
                        tenant; run it by hand in /";
        assert_eq!(error, expected);
        let error = printed("echo '{\"user\":\"s3cret\"}'", "{{row.token}}").await.unwrap_err();
        assert!(error.contains("websocket.connect.headers.Authorization: ") && error.contains("(user)"), "{error}");
        let error = printed("echo '[\"s3cret\"]'", "a").await.unwrap_err();
        assert!(error.contains("its output: line 1: it is not an object"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
        assert!(printed("printf '\\377'", "a").await.unwrap_err().contains("is not UTF-8"));
        assert!(printed("yes", "a").await.unwrap_err().contains("it printed more than 16 MiB"));
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let rows = RowsCommand {
            command: ["sh", "-c", &format!("sleep 600 & echo $! > {}; wait", pids.display())].map(String::from).into(),
            format: Default::default(),
            timeout_seconds: 1.0,
        };
        let begun = Instant::now();
        let error = output(&rows, folder.path()).await.unwrap_err().to_string();
        assert!(error.contains("it didn't end within 1 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let pid = std::fs::read_to_string(pids).unwrap();
        let stat = Path::new("/proc").join(pid.trim()).join("stat");
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        while !is_gone() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{pid} still runs");
            tokio::task::yield_now().await;
        }
    }
}
