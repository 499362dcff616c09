//! `ladder assert` for a run in a cluster: optionally waits for its end, printing a line for each trial that ends
//! meanwhile, and then judges as for a bundle on disk.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use operator::assert::{self as judge, Standing};
use tokio::time::{Instant, sleep};

use super::{
    fetch::bundle_into,
    options::ReleaseOptions,
    progress::{Printed, Progress, progress},
    reach::Operator,
};
use crate::live::Status;

/// Interval between two requests for the status.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `ladder assert`.
#[derive(Debug, Args)]
pub struct Assert {
    #[command(flatten)]
    location: ReleaseOptions,
    /// Wait for the end of the run.
    #[arg(long)]
    wait: bool,
    /// Longest wait, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    timeout: u64,
    /// Also write JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Asserts on the requested run; no requested run counts as a pass.
///
/// # Errors
/// When the operator can't be reached, the run can't end, or it doesn't end in time.
pub async fn assert(arguments: &Assert) -> anyhow::Result<u8> {
    let operator = Operator::reach(&arguments.location.location()).await?;
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
    let mut printed = Printed::default();
    loop {
        let status: anyhow::Result<Status> = operator.get("/api/status").await;
        match status.map(|status| (progress(&status), status)) {
            Ok((Progress::NoRun, _)) => {
                println!("no run is requested (run.id is empty): nothing to assert");
                return Ok(Standing::Pass.exit_code());
            }
            Ok((Progress::Ended, status)) => {
                // Trials that had ended before the first request are printed once, by the judgement below.
                if printed.run.is_some() {
                    printed.new_lines(&status).iter().for_each(|line| eprintln!("{line}"));
                }
                return judged(&operator, &status.run_id, arguments).await;
            }
            Ok((Progress::Stuck(description), _)) => bail!("{description}"),
            Ok((Progress::Running, status)) if !arguments.wait => {
                let ended = status.trials.iter().filter(|trial| trial.standing.is_some()).count();
                let of = match status.searches.is_empty() {
                    true => format!("{ended} of {} trials", status.trials.len()),
                    // A search adds its trials one by one.
                    false => format!("{ended} trials of its searches"),
                };
                bail!("run {} is not finished ({of}); wait with --wait", status.run_id);
            }
            Ok((Progress::Running, status)) => printed.new_lines(&status).iter().for_each(|line| eprintln!("{line}")),
            // The operator may be restarting.
            Err(error) if arguments.wait && Instant::now() < deadline => eprintln!("ladder: {error:#}; trying again"),
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            bail!("the run did not end within {} s", arguments.timeout);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Judges the bundle's files by the same rules as a bundle on disk.
async fn judged(operator: &Operator, id: &str, arguments: &Assert) -> anyhow::Result<u8> {
    let folder = tempfile::tempdir().context("failed to create a folder for the bundle's files")?;
    let bundle = folder.path().join(id);
    let is_needed = |path: &str| path == "run.json" || path.ends_with("/result.json");
    bundle_into(operator, id, &bundle, is_needed).await?;
    let asserted = judge::bundle(&bundle)?;
    let standing = judge::worst(&asserted);
    print!("{}", judge::lines(&asserted));
    println!("run {id}: {}", standing.as_str());
    if let Some(path) = &arguments.junit {
        fs::write(path, judge::junit(id, &asserted)).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(standing.exit_code())
}
