//! Measures the kernel's cost of a load: moves the bytes of the load over loopback and does nothing else.
//!
//! No WebSocket frame is built or parsed (except by the subscribers of a fan-out, which check every number), and
//! nothing is masked, routed or counted beyond what a figure needs. A service or a generator that comes near these
//! figures is done; one that is far from them can improve. A load runs in two processes with one thread each, so that
//! the CPU clock of a process covers one side.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`load`] | the loads and their settings, which both processes receive unchanged |
//! | [`processes`] | starts the two processes and controls a run |
//! | [`dispatch`] | selects the program of each side of a load |
//! | [`side`] | one side: its CPU, its sockets, its commands and answers |
//! | [`flood`], [`echo`], [`handshake`], [`idle`], [`fanout`] | the loads: what each side does, and the figures |
//! | [`window`] | CPU and counters of one side between two moments |
//! | [`sockets`], [`memory`] | sockets, events and memory of the kernel |
//! | [`figure`], [`report`] | the output: a figure, the JSON |

pub mod cli;
pub mod dispatch;
pub mod echo;
pub mod fanout;
pub mod figure;
pub mod flood;
pub mod handshake;
pub mod idle;
pub mod load;
pub mod memory;
pub mod processes;
pub mod report;
pub mod side;
pub mod sockets;
pub mod window;

use anyhow::Context;

use crate::{cli::Cli, load::Load, report::Report};

/// Runs a load as often as requested and prints the report.
///
/// # Errors
/// An error if a process can't do its part; there is no figure then.
pub fn run(cli: &Cli, load: &Load) -> anyhow::Result<()> {
    let mut report = Report::new(cli, load);
    for _ in 0..cli.repeats {
        report.add(load.figures(&processes::run(load, cli.cpus())?));
    }
    println!("{}", serde_json::to_string(&report).context("failed to write the report")?);
    Ok(())
}
