//! One side of a load: a process that gets commands on standard input and replies on standard output, one JSON line
//! each.
//!
//! It ends when its input ends, so that no process is left behind. Until then its connections stay open, because
//! closing them doesn't belong to any load.

use std::io::{BufRead, Write, stdin, stdout};

use anyhow::{Context, bail};
use loadgen_core::preflight::most_connections;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{load::Load, memory::resident_bytes, sockets::SocketAddr, window::Reading};

/// The work of one side of a load.
pub trait LoadSide {
    /// Opens or accepts all connections that exist when the load starts.
    ///
    /// # Errors
    /// An error if a connection is missing.
    fn connect(&mut self) -> anyhow::Result<()>;

    /// Runs the load; `start_ns` is its start on the monotonic clock, in nanoseconds.
    ///
    /// # Errors
    /// An error if the load can't be completed as it is defined.
    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading>;
}

/// The first line of input: the role of this side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) load: Load,
    /// CPU to run on; absent if the kernel chooses.
    pub(crate) cpu: Option<u32>,
    /// Address to connect to; absent on the side that accepts.
    pub(crate) address: Option<SocketAddr>,
}

/// The next step of one side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    Connect,
    Go { start_ns: u64 },
}

/// A reply of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SideReply {
    /// The side has started. The address is that of its listener, if it accepts.
    Started(Option<SocketAddr>),
    /// All connections are open.
    Ready,
    /// The load is over.
    Done(Reading),
    /// The side can't do its part; contains the reason.
    Failed(String),
}

pub(crate) fn run_commands(mut side: Box<dyn LoadSide>) -> anyhow::Result<Box<dyn LoadSide>> {
    let Command::Connect = read_command()? else { bail!("received Go before Connect") };
    let rss_before = resident_bytes()?;
    side.connect()?;
    let rss_open = resident_bytes()?;
    send_reply(&SideReply::Ready)?;
    let Command::Go { start_ns } = read_command()? else { bail!("received Connect twice") };
    let reading = side.run(start_ns)?;
    send_reply(&SideReply::Done(Reading { rss_before, rss_open, ..reading }))?;
    Ok(side)
}

pub(crate) fn check_descriptors(connections: u32, open_files: u64) -> anyhow::Result<()> {
    let limit = most_connections(open_files, 1);
    if u64::from(connections) > limit {
        bail!("{open_files} open files allow {limit} connections of the {connections} asked for; raise `ulimit -n`");
    }
    Ok(())
}

pub(crate) fn pin(cpu: u32) -> anyhow::Result<()> {
    let number = cpu as usize;
    if number >= CpuSet::MAX_CPU {
        bail!("there is no CPU {cpu}: the kernel counts to {}", CpuSet::MAX_CPU - 1);
    }
    let mut set = CpuSet::new();
    set.set(number);
    sched_setaffinity(None, &set)
        .with_context(|| format!("failed to run on CPU {cpu}; `taskset -cp $$` shows which are allowed"))
}

pub(crate) fn read_command<M: DeserializeOwned>() -> anyhow::Result<M> {
    let mut line = String::new();
    if stdin().lock().read_line(&mut line).context("failed to read standard input")? == 0 {
        bail!("received no command: this side is started by `floor` itself, not by hand");
    }
    serde_json::from_str(&line).with_context(|| format!("failed to understand {:?}", line.trim_end()))
}

pub(crate) fn send_reply(reply: &SideReply) -> anyhow::Result<()> {
    let line = serde_json::to_string(reply).context("failed to write an answer")?;
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("failed to answer the parent")
}

pub(crate) fn wait_for_end_of_input() -> anyhow::Result<()> {
    stdin().lock().read_line(&mut String::new()).map(|_| ()).context("failed to wait for the end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_connections_for_the_descriptors_are_refused_with_the_remedy() {
        let description = check_descriptors(1000, 1000).unwrap_err().to_string();
        assert!(description.contains("1000 open files allow 900 connections of the 1000"), "{description}");
        assert!(description.contains("ulimit -n"));
        assert!(check_descriptors(900, 1000).is_ok());
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let description = format!("{:#}", pin(5000).unwrap_err());
        assert!(description.contains("no CPU 5000"), "{description}");
    }
}
