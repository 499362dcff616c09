//! The loads and their settings, as flags and as the data that both processes receive.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

/// Largest write, in bytes; a larger one would measure the allocator.
const LARGEST_WRITE: u32 = 4 << 20;

/// A load, as a subcommand and as JSON.
#[derive(Clone, Debug, PartialEq, Subcommand, Serialize, Deserialize)]
#[serde(tag = "name", content = "settings", rename_all = "kebab-case")]
pub enum Load {
    /// The client writes as much as its sockets accept; the server reads and discards it.
    Flood(Flood),
    /// The server writes back what it reads. With --rate the client sends by a schedule (open loop), otherwise each
    /// connection waits for its reply.
    Echo(Echo),
    /// The client connects and sends an upgrade request, the server responds with 101. All connections stay open.
    Handshake(Handshake),
    /// Connections are open and idle: measures their memory.
    Idle(Idle),
    /// The server writes numbered messages to every connection; the client finds and checks each number. With --rate it
    /// is an open loop with this number of deliveries per second, otherwise the server writes as much as the sockets
    /// accept.
    Fanout(Fanout),
}

/// Settings of [`Load::Flood`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Flood {
    /// Number of connections, from 1 to 100000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message on the wire, in bytes.
    #[arg(long, default_value_t = 183, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub size: u32,
    /// Number of messages in each write.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub per_write: u32,
    /// Durations of the warm-up and of the measured window.
    #[command(flatten)]
    pub timing: Timing,
}

/// Settings of [`Load::Echo`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Echo {
    /// Number of connections, from 1 to 100000.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message on the wire, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub size: u32,
    /// Messages per second over all connections, evenly spaced. Without it, each connection waits for its reply.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// Durations of the warm-up and of the measured window.
    #[command(flatten)]
    pub timing: Timing,
}

/// Settings of [`Load::Handshake`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Handshake {
    /// Number of handshakes, each on its own connection.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Largest number of handshakes in flight.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub in_flight: u32,
    /// Length of the upgrade request, in bytes.
    #[arg(long, default_value_t = 390, value_parser = clap::value_parser!(u32).range(200..=4096))]
    pub request_size: u32,
    /// Length of the response including the data that follows it at once, in bytes.
    #[arg(long, default_value_t = 129, value_parser = clap::value_parser!(u32).range(129..=4096))]
    pub response_size: u32,
    /// Length of a first message after the response, in bytes, which adds a second round trip; 0 means none.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub hello_size: u32,
    /// Length of the response to that message, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub hello_response_size: u32,
}

/// Settings of [`Load::Idle`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Idle {
    /// Number of open connections, from 1 to 100000.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Time that the kernel gets to free and allocate memory before each reading, in seconds.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub settle: f64,
}

/// Settings of [`Load::Fanout`].
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Fanout {
    /// Number of subscribers, each with its own connection, from 1 to 100000.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Length of a message without its frame's header, in bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=125))]
    pub size: u32,
    /// Messages per write; they are published together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub per_write: u32,
    /// Deliveries per second over all subscribers, evenly spaced. Without it, the server writes as fast as the sockets
    /// accept.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// Durations of the warm-up and of the measured window.
    #[command(flatten)]
    pub timing: Timing,
}

/// Warm-up and window of a load.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct Timing {
    /// Duration of the load before the window, in seconds; it is not measured.
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    pub warmup: f64,
    /// Length of the measured window, in seconds.
    #[arg(long, default_value = "3", value_parser = window_seconds)]
    pub duration: f64,
}

/// The CPUs of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cpus {
    /// CPU of the side that accepts; absent if the kernel chooses.
    pub server: Option<u32>,
    /// CPU of the side that connects; absent if the kernel chooses.
    pub client: Option<u32>,
}

impl Load {
    /// Checks combinations of settings that the types can't check.
    ///
    /// # Errors
    /// A message for the user.
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

    /// Number of connections that both sides hold.
    pub fn connections(&self) -> u32 {
        match self {
            Self::Flood(Flood { connections, .. })
            | Self::Echo(Echo { connections, .. })
            | Self::Handshake(Handshake { connections, .. })
            | Self::Idle(Idle { connections, .. })
            | Self::Fanout(Fanout { connections, .. }) => *connections,
        }
    }

    /// Time for the kernel's memory to settle before it is read, in seconds.
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
