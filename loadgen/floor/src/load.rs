//! The loads: what each moves, as its flags say and as it travels to both ends.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

/// The most bytes of one write: what is beyond would measure the allocator.
const LARGEST_WRITE: u32 = 4 << 20;

/// What both ends do.
#[derive(Clone, Debug, PartialEq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "name", content = "settings", rename_all = "kebab-case")]
pub enum Load {
    /// The client writes as much as its sockets take, the server reads and forgets.
    Flood(Flood),
    /// The server writes back what it reads; with --rate whatever it does (open loop), else each connection waits for it.
    Echo(Echo),
    /// The client connects and sends an upgrade request, the server answers 101. All connections stay open.
    Handshake(Handshake),
    /// Connections are open and do nothing: what they take of memory.
    Idle(Idle),
    /// The server writes numbered messages to every connection, the client finds and checks each number; with --rate at so
    /// many deliveries per second (open loop), else as much as the sockets take.
    Fanout(Fanout),
}

/// See [`Load::Flood`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Flood {
    /// Connections.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message on the wire, in bytes.
    #[arg(long, default_value_t = 183, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub size: u32,
    /// Messages in a write.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub per_write: u32,
    /// When it is measured.
    #[command(flatten)]
    pub timing: Timing,
}

/// See [`Load::Echo`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Echo {
    /// Connections.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message on the wire, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub size: u32,
    /// Messages per second over all connections, evenly spaced.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// When it is measured.
    #[command(flatten)]
    pub timing: Timing,
}

/// See [`Load::Handshake`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Handshake {
    /// Handshakes, each on a connection of its own.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Handshakes in flight at most.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub in_flight: u32,
    /// Length of the upgrade request, in bytes.
    #[arg(long, default_value_t = 390, value_parser = clap::value_parser!(u32).range(200..=4096))]
    pub request_size: u32,
    /// Length of the answer with what follows it at once, in bytes.
    #[arg(long, default_value_t = 129, value_parser = clap::value_parser!(u32).range(129..=4096))]
    pub response_size: u32,
    /// Length of a first message after the answer, in bytes, and with it a second round trip; 0: none.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub hello_size: u32,
    /// Length of the answer to it, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub hello_response_size: u32,
}

/// See [`Load::Idle`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Idle {
    /// Connections.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// How long the kernel may take to free and allocate before each of its readings, in seconds.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub settle: f64,
}

/// See [`Load::Fanout`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Fanout {
    /// Subscribers.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message without its frame's header, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=125))]
    pub size: u32,
    /// Messages in a write: these are published together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub per_write: u32,
    /// Deliveries per second over all subscribers, evenly spaced.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// When it is measured.
    #[command(flatten)]
    pub timing: Timing,
}

/// When a load is measured.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Timing {
    /// Load before the window, in seconds; not measured.
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    pub warmup: f64,
    /// Length of the measured window, in seconds.
    #[arg(long, default_value = "3", value_parser = window_seconds)]
    pub duration: f64,
}

/// The CPUs of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cpus {
    /// Of the end that accepts.
    pub server: Option<u32>,
    /// Of the end that connects.
    pub client: Option<u32>,
}

impl Load {
    /// What the types alone can't check.
    ///
    /// # Errors
    /// In words, for a person.
    pub fn check(&self) -> Result<(), String> {
        if let Self::Flood(Flood { size, per_write, .. }) = self
            && u64::from(*size) * u64::from(*per_write) > u64::from(LARGEST_WRITE)
        {
            return Err(format!(
                "--per-write {per_write} of --size {size} is more than {LARGEST_WRITE} bytes in a write; lower one"
            ));
        }
        Ok(())
    }

    /// How many connections both ends hold.
    pub fn connections(&self) -> u32 {
        match self {
            Self::Flood(Flood { connections, .. })
            | Self::Echo(Echo { connections, .. })
            | Self::Handshake(Handshake { connections, .. })
            | Self::Idle(Idle { connections, .. })
            | Self::Fanout(Fanout { connections, .. }) => *connections,
        }
    }

    /// How long the kernel's memory may settle before it is read, in seconds.
    pub fn settle_seconds(&self) -> f64 {
        match self {
            Self::Idle(idle) => idle.settle,
            _ => 0.0,
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0 to 600".into()),
    }
}

fn window_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.01 to 600".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1.0..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("expected messages per second from 1 to 10000000".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        load: Load,
    }

    fn load(line: &str) -> Load {
        Line::parse_from(line.split_whitespace()).load
    }

    #[test]
    fn a_load_travels_to_its_ends_as_it_is() {
        for line in [
            "floor flood --warmup 0",
            "floor echo --rate 10.5",
            "floor handshake",
            "floor idle --settle 0",
            "floor fanout --rate 9",
        ] {
            let load = load(line);
            let text = serde_json::to_string(&load).unwrap();
            assert_eq!(serde_json::from_str::<Load>(&text).unwrap(), load, "{text}");
        }
    }
}
