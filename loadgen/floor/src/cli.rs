//! The command line. Values out of range are refused before a process is started.

use clap::{Parser, Subcommand};

use crate::load::{Cpus, Load};

/// Measures the kernel's cost of a load: moves its bytes over loopback between two processes and does nothing else.
///
/// Prints one JSON object. CPU time is that of each side's own process, in user and kernel mode; on loopback the kernel
/// charges a receiver's TCP work to the sender. Exit codes: 0 if the load was measured, 1 if not, 2 for an invalid
/// command line.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// The load to run.
    #[command(subcommand)]
    pub command: Command,
    /// CPU of the side that accepts connections; by default the kernel chooses.
    #[arg(long, global = true)]
    pub server_cpu: Option<u32>,
    /// CPU of the side that connects; by default the kernel chooses.
    #[arg(long, global = true)]
    pub client_cpu: Option<u32>,
    /// Number of runs, each in fresh processes.
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
}

/// A load, or one of its sides.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// A load, started by a person or a tool.
    #[command(flatten)]
    Load(Load),
    /// One side of a load, controlled over standard input.
    #[command(hide = true)]
    End,
}

impl Cli {
    /// The CPUs of both sides.
    pub fn cpus(&self) -> Cpus {
        Cpus { server: self.server_cpu, client: self.client_cpu }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn load(line: &str) -> Load {
        let Command::Load(load) = parse(line).unwrap().command else { panic!("{line} is a load") };
        load
    }

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_cpus_may_stand_behind_the_load() {
        let cli = parse("floor flood --per-write 64 --server-cpu 0 --client-cpu 1").unwrap();
        assert_eq!(cli.cpus(), Cpus { server: Some(0), client: Some(1) });
    }

    #[test]
    fn contradictory_settings_are_refused() {
        for line in [
            "floor",
            "floor flood --connections 0",
            "floor flood --size 0",
            "floor flood --duration 0",
            "floor flood --duration NaN",
            "floor flood --warmup -1",
            "floor echo --rate 0",
            "floor echo --rate inf",
            "floor handshake --in-flight 0",
            "floor handshake --response-size 10",
            "floor handshake --hello-size 4097",
            "floor idle --settle 1e9",
            "floor idle --repeats 0",
            "floor fanout --size 99",
            "floor fanout --size 126",
            "floor fanout --rate 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let description = load("floor flood --size 65536 --per-write 65").check().unwrap_err();
        assert!(description.contains("--per-write 65 of --size 65536"), "{description}");
        assert_eq!(load("floor flood --size 65536 --per-write 64").check(), Ok(()));
    }
}
