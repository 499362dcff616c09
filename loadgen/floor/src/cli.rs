//! The command line. What is out of bounds is refused before a process is started.

use clap::{Parser, Subcommand};

use crate::load::{Cpus, Load};

/// What the kernel alone costs: moves the bytes of a load over loopback between two processes, and nothing else.
///
/// Prints one JSON object. CPU is that of each end's own process, kernel included; on loopback the kernel charges a
/// receiver's TCP work to the sender. Exit code: 0 when it was measured, 1 when not, 2 for bad usage.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// What is done.
    #[command(subcommand)]
    pub command: Command,
    /// CPU of the end that accepts; without it the kernel chooses.
    #[arg(long, global = true)]
    pub server_cpu: Option<u32>,
    /// CPU of the end that connects; without it the kernel chooses.
    #[arg(long, global = true)]
    pub client_cpu: Option<u32>,
    /// How often, each time in fresh processes.
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
}

/// A load, or one of its ends.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// By hand or by a tool.
    #[command(flatten)]
    Load(Load),
    /// One end of a load, told over standard input what to do.
    #[command(hide = true)]
    End,
}

impl Cli {
    /// Where both ends run.
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
    fn what_makes_no_sense_is_refused() {
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
        let words = load("floor flood --size 65536 --per-write 65").check().unwrap_err();
        assert!(words.contains("--per-write 65 of --size 65536"), "{words}");
        assert_eq!(load("floor flood --size 65536 --per-write 64").check(), Ok(()));
    }
}
