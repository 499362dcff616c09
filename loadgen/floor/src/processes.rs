//! Starts the two processes of a load and controls one run.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command as Program, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use loadgen_core::clock::monotonic_ns;
use process_usage::KernelMemory;
use serde::Serialize;

use crate::{
    load::{Cpus, Load},
    side::{Command, Order, SideReply},
    sockets::SocketAddr,
    window::Reading,
};

/// Time between "both are ready" and the start, in nanoseconds; enough to send the start to both.
const START_IN_NS: u64 = 20_000_000;

/// The readings of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Reading of the side that accepted.
    pub server: Reading,
    /// Reading of the side that connected.
    pub client: Reading,
    /// Kernel memory of the machine before the first connection.
    pub kernel_before: KernelMemory,
    /// Kernel memory of the machine with all connections open.
    pub kernel_open: KernelMemory,
}

/// Runs a load once, in two fresh processes.
///
/// # Errors
/// An error with the reason of a process that can't do its part.
pub fn run(load: &Load, cpus: Cpus) -> anyhow::Result<Measured> {
    let settle = || thread::sleep(Duration::from_secs_f64(load.settle_seconds()));
    let mut server = SideProcess::start("server", load, cpus.server, None)?;
    let Some(address) = server.started()? else { bail!("the server did not report its address") };
    let mut client = SideProcess::start("client", load, cpus.client, Some(address))?;
    client.started()?;
    settle();
    let kernel = || KernelMemory::read().context("the kernel does not report how much memory it uses");
    let kernel_before = kernel()?;
    // Both at once, because the server accepts what the client opens.
    server.send_command(&Command::Connect)?;
    client.send_command(&Command::Connect)?;
    // The client comes first, because the server waits in vain if the client fails.
    client.ready()?;
    server.ready()?;
    settle();
    let kernel_open = kernel()?;
    let start = Command::Go { start_ns: monotonic_ns() + START_IN_NS };
    server.send_command(&start)?;
    client.send_command(&start)?;
    let client_reading = client.done()?;
    let server_reading = server.done()?;
    // The server closes first, so that it and not the client keeps the ports of closed connections (TIME_WAIT).
    server.close()?;
    client.close()?;
    Ok(Measured { server: server_reading, client: client_reading, kernel_before, kernel_open })
}

/// The process of one side; it is killed when it is dropped.
struct SideProcess {
    name: &'static str,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl SideProcess {
    fn start(name: &'static str, load: &Load, cpu: Option<u32>, address: Option<SocketAddr>) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("failed to find this program's own file")?;
        let mut process = Program::new(program)
            .arg("end")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to start the {name}"))?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
        let mut side = Self { name, process, input, output };
        side.send_command(&Order { load: load.clone(), cpu, address })?;
        Ok(side)
    }

    fn send_command(&mut self, message: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(message).context("failed to write a message")?;
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{line}").with_context(|| format!("failed to send a command to the {}", self.name))
    }

    fn read_reply(&mut self) -> anyhow::Result<SideReply> {
        let mut line = String::new();
        let length =
            self.output.read_line(&mut line).with_context(|| format!("failed to read a reply of the {}", self.name))?;
        if length == 0 {
            bail!("the {} ended without a reply; its error is above", self.name);
        }
        match serde_json::from_str(&line).with_context(|| format!("the {} does not make sense: {line:?}", self.name))? {
            SideReply::Failed(description) => bail!("the {}: {description}", self.name),
            reply => Ok(reply),
        }
    }

    fn started(&mut self) -> anyhow::Result<Option<SocketAddr>> {
        match self.read_reply()? {
            SideReply::Started(address) => Ok(address),
            reply => bail!("the {} replied {reply:?} before it had started", self.name),
        }
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        match self.read_reply()? {
            SideReply::Ready => Ok(()),
            reply => bail!("expected the reply Ready of the {}, received {reply:?}", self.name),
        }
    }

    fn done(&mut self) -> anyhow::Result<Reading> {
        match self.read_reply()? {
            SideReply::Done(reading) => Ok(reading),
            reply => bail!("expected the reply Done of the {}, received {reply:?}", self.name),
        }
    }

    /// Closes the process's input and waits until it has ended.
    fn close(&mut self) -> anyhow::Result<()> {
        self.input = None;
        let status = self.process.wait().with_context(|| format!("failed to wait for the {}", self.name))?;
        if !status.success() {
            bail!("the {} ended with {status}", self.name);
        }
        Ok(())
    }
}

impl Drop for SideProcess {
    fn drop(&mut self) {
        // Both fail harmlessly if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
