//! What the kernel alone costs: programs that move the bytes of a load over loopback and do nothing else.
//!
//! No WebSocket frame is built or parsed here (but by a fan-out's subscribers, who check every number), nothing is masked,
//! routed or counted beyond what a figure needs. A service or
//! a generator that comes near these figures is done; one that is far from them has something to find. Two processes of
//! one thread each, so that the CPU clock of a process is that of its end.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`load`] | the loads and their settings; they travel to both ends as they are |
//! | [`ends`] | starts both ends, leads them through a run |
//! | [`dispatch`] | which program each end of a load is |
//! | [`end`] | one end: its CPU, its sockets, what it is told and says |
//! | [`flood`], [`echo`], [`handshake`], [`idle`], [`fanout`] | the loads: what each end does, and the figures |
//! | [`window`] | what an end used between two moments |
//! | [`sockets`], [`memory`] | what is asked of the kernel |
//! | [`figure`], [`report`] | what is printed: a figure, the JSON |

pub mod cli;
pub mod dispatch;
pub mod echo;
pub mod end;
pub mod ends;
pub mod fanout;
pub mod figure;
pub mod flood;
pub mod handshake;
pub mod idle;
pub mod load;
pub mod memory;
pub mod report;
pub mod sockets;
pub mod window;

use anyhow::Context;

use crate::{cli::Cli, load::Load, report::Report};

/// Runs a load as often as asked, and prints what was measured.
///
/// # Errors
/// When an end can't do its part: there is no figure then.
pub fn run(cli: &Cli, load: &Load) -> anyhow::Result<()> {
    let mut report = Report::new(cli, load);
    for _ in 0..cli.repeats {
        report.add(load.figures(&ends::run(load, cli.cpus())?));
    }
    println!("{}", serde_json::to_string(&report).context("failed to write the report")?);
    Ok(())
}
