//! `ladder plan new`: asks what a first plan has to say, and writes it.
//!
//! `answers` has the questions in order, with the check of each answer; `ask` takes an answer from a flag, from the
//! terminal or from its default.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bench_format::{Name, plan::WirePlan};
use clap::Args;

use self::{answers::Answers, ask::Ask};
use super::first_plan::FirstPlan;
use crate::{
    plan::{
        Plan,
        check::{MachineLimits, alone::empty_registry},
        read,
    },
    websocket,
};

mod answers;
mod ask;

/// The first line of a plan that this command wrote.
const MARK: &str = "# Written by `ladder plan new`";

pub(super) const EXAMPLES: &str = "Examples:
  ladder plan new                     # asks
  ladder plan new chat.yaml --command 'node chat.mjs {port}' --preset socket.io   # asks for the rest
  ladder plan new chat.yaml --running --url ws://127.0.0.1:3000/ --preset echo --workload request-reply \\
      --rate 2000 --tiers 100 --p99-ms 50
  ladder plan new chat.yaml --running --url ws://127.0.0.1:3000/ --defaults && ladder run chat.yaml";

#[derive(Debug, Args)]
pub(super) struct PlanNew {
    /// The plan to write; its file name is the name of the plan.
    #[arg(default_value = "plan.yaml")]
    file: PathBuf,
    /// The command that starts the service, split at white space; {port} stands for a free port.
    #[arg(long, value_name = "COMMAND", conflicts_with = "running")]
    command: Option<String>,
    /// The service runs already.
    #[arg(long)]
    running: bool,
    /// Address of the service: ws://HOST:PORT/PATH, with {port} in the place of the port where ladder starts it.
    #[arg(long)]
    url: Option<String>,
    /// How the service is spoken to: a name in presets/, or a path. `ladder try` finds out what a running one answers to.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// What is measured: request-reply, stream, fanout, uplink, connection-storm, idle, churn or reconnect.
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Messages per second over all connections, or `closed`: each connection sends the next one after the reply.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Numbers of connections, rising: one tier each.
    #[arg(long, value_name = "N,N,…")]
    tiers: Option<String>,
    /// Longest p99 of the response time with which a trial passes, in milliseconds, or `none`.
    #[arg(long, value_name = "MS")]
    p99_ms: Option<String>,
    /// Take the default of each answer that no flag gives, instead of asking.
    #[arg(long)]
    defaults: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
}

/// Asks, writes the plan and returns the exit code.
pub(super) fn run(arguments: &PlanNew) -> anyhow::Result<u8> {
    let file = &arguments.file;
    // Before the questions, so that no answer is lost.
    check_place(file, arguments.force)?;
    let name = plan_name(file)?;
    let mut ask = Ask::new(arguments.defaults);
    let answers = Answers::take(arguments, &mut ask)?;
    let file_text = file.display().to_string();
    let text = FirstPlan {
        mark: MARK,
        name: &name,
        why: &format!("how the service does under {}", answers.ladder.workload.name()),
        file: &file_text,
        url: &answers.url,
        command: &answers.command,
        preset: &answers.preset,
        ladders: std::slice::from_ref(&answers.ladder),
        note: "",
    }
    .text();
    let wire = checked(&text, file)?;
    write(file, &text, arguments.force)?;
    println!("{file_text}: written; change it as you like, then:");
    println!("  ladder plan check {file_text}   # mistakes, each with its place");
    println!("  ladder run {file_text}");
    if let Err(foreign) = websocket::check_hosts(&wire.websocket.unwrap_or_default(), &[]) {
        eprintln!("{foreign}");
    }
    Ok(0)
}

fn check_place(file: &Path, force: bool) -> anyhow::Result<()> {
    if file.exists() && !force {
        bail!("{} exists; name another file, or replace it with --force", file.display());
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("{}: there is no folder {}; make it first", file.display(), folder.display());
    }
    Ok(())
}

fn plan_name(file: &Path) -> anyhow::Result<Name> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    Name::new(stem).with_context(|| format!("{}: the name of the file is that of the plan", file.display()))
}

/// Checks the whole plan: each answer is right by itself, but they could contradict each other.
fn checked(text: &str, file: &Path) -> anyhow::Result<WirePlan> {
    let mut wire = read::parse(text, file)?;
    let mut registry = empty_registry();
    if let Some(section) = &mut wire.websocket {
        let folder = file.parent().unwrap_or(Path::new("."));
        websocket::extend(section, folder).map_err(anyhow::Error::msg)?;
        websocket::add(section, &mut registry);
    }
    let any_machine = MachineLimits { cpus: usize::MAX, no_fractions: None };
    Plan::check(wire.clone(), file, &registry, &any_machine).context("the answers don't make a plan")?;
    Ok(wire)
}

fn write(file: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", file.display());
    if force {
        return fs::write(file, text).with_context(failed);
    }
    // Another process may have made the file since it was looked for.
    let mut created = OpenOptions::new().write(true).create_new(true).open(file).with_context(failed)?;
    created.write_all(text.as_bytes()).with_context(failed)
}
