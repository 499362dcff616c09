//! The command line of `stt-inferbench`.

use std::{num::NonZeroU64, time::Duration};

use clap::Parser;
use http::{Uri, uri::Scheme};

/// Flags. A value out of its range ends the program before anything is sent.
#[derive(Clone, Debug, Parser)]
#[command(name = "stt-inferbench", version, about = "Loads speech-to-text inference and checks every answer")]
pub struct Options {
    /// URL of inference, such as http://127.0.0.1:9000/infer
    #[arg(long, value_parser = address)]
    pub url: Uri,
    /// Largest number of requests in flight
    #[arg(long, default_value = "64")]
    pub concurrency: NonZeroU64,
    /// HTTP/2 connections, used in turn; with --http1 there are as many as requests in flight
    #[arg(long, default_value = "4")]
    pub clients: NonZeroU64,
    /// Requests per second, each at a fixed time (open loop); without it, each follows a response (closed loop)
    #[arg(long, value_parser = rate)]
    pub rps: Option<f64>,
    /// How long to send, in seconds
    #[arg(long, default_value = "30")]
    pub duration_secs: NonZeroU64,
    /// 20 ms frames of audio in each request
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u64).range(1..=3200))]
    pub payload_frames: u64,
    /// Value of the header x-cpu-passes: passes over the audio
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpu_passes: u32,
    /// Longest duration of a request from when it is sent, in milliseconds
    #[arg(long, default_value = "2000")]
    pub timeout_ms: NonZeroU64,
    /// Longest duration of opening a connection, in milliseconds
    #[arg(long, default_value = "1000")]
    pub connect_timeout_ms: NonZeroU64,
    /// Use HTTP/1.1 instead of HTTP/2
    #[arg(long)]
    pub http1: bool,
}

impl Options {
    /// Longest duration of a request, from when it is sent.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.get())
    }

    /// Longest duration of opening a connection.
    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.get())
    }

    /// How long requests are sent; the last ones may end later.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_secs.get())
    }
}

fn address(text: &str) -> Result<Uri, String> {
    let address: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (address.scheme() == Some(&Scheme::HTTP), address.host()) {
        (true, Some(_)) => Ok(address),
        _ => Err("expected http://HOST:PORT/infer".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        // Above a request per nanosecond, due times are no longer distinct.
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err("must be a number above 0".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["stt-inferbench", "--url=http://127.0.0.1:9000/infer"].iter().chain(flags))
    }

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        let options = parse(&[]).expect("only the address is needed");
        let numbers = (options.concurrency.get(), options.clients.get(), options.duration_secs.get());
        assert_eq!((numbers, options.payload_frames, options.cpu_passes), ((64, 4, 30), 50, 4));
        assert_eq!((options.timeout_ms.get(), options.connect_timeout_ms.get(), options.rps), (2000, 1000, None));
    }

    #[test]
    fn contradictory_settings_are_refused() {
        for flag in [
            "--concurrency=0",
            "--clients=0",
            "--rps=0",
            "--rps=-1",
            "--rps=NaN",
            "--duration-secs=0",
            "--payload-frames=0",
            "--cpu-passes=0",
            "--timeout-ms=0",
            "--connect-timeout-ms=0",
        ] {
            assert!(parse(&[flag]).is_err(), "{flag}");
        }
        for url in ["https://host/infer", "host:9000/infer", "/infer", ""] {
            assert!(Options::try_parse_from(["stt-inferbench", "--url", url]).is_err(), "{url}");
        }
    }
}
