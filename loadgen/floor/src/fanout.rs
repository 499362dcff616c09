//! The fan-out: numbered messages to every subscriber, framed once and written in batches. The subscriber parses every
//! frame, finds its number, and checks that it is the next one.
//!
//! A batch's due time follows from its number and the schedule, which both sides know, so only the number is sent.

use loadgen_core::schedule::{ConstantRate, Schedule, Share};

use crate::{
    figure::{Figure, percentiles},
    load::Fanout,
    processes::Measured,
};
pub use publisher::Publisher;
pub use subscriber::Subscriber;

mod publisher;
mod subscriber;

/// A number always has this many digits, so that a batch can be renumbered in place.
const DIGITS: usize = 12;
const NUMBER: &[u8] = br#""seq":"#;
/// Longest time for the last messages of a schedule after the window, in nanoseconds.
const DRAIN_NS: u64 = 10_000_000_000;

/// The due times of batches for this rate of deliveries; `None` for a flood.
fn schedule(fanout: &Fanout) -> Option<Schedule> {
    let batches = |rate: f64| rate / f64::from(fanout.connections) / f64::from(fanout.per_write);
    fanout.rate.map(|rate| Schedule::Constant(ConstantRate::new(batches(rate), Share { index: 0, of: 1 })))
}

/// CPU time of both sides per delivery, each divided by the deliveries that the side moved itself, and the response
/// time.
pub(crate) fn figures(measured: &Measured) -> Vec<Figure> {
    let Measured { server, client, .. } = measured;
    let deliveries = client.units as f64;
    // The server counts bytes; the client's count gives the bytes per delivery.
    let size = (client.units > 0).then(|| client.bytes as f64 / deliveries);
    let written = size.map(|size| server.bytes as f64 / size).filter(|written| *written > 0.0);
    let rate = (client.duration_ns > 0).then(|| deliveries * 1e9 / client.duration_ns as f64);
    let per_call = |messages: Option<f64>, calls: u64| messages.filter(|_| calls > 0).map(|count| count / calls as f64);
    let mut figures = vec![
        Figure { name: "server_cpu", unit: "ns/delivery", value: written.map(|count| server.cpu_ns as f64 / count) },
        Figure { name: "client_cpu", unit: "ns/delivery", value: size.map(|_| client.cpu_ns as f64 / deliveries) },
        Figure { name: "rate", unit: "deliveries/s", value: rate },
        Figure { name: "messages_per_read", unit: "messages", value: per_call(size.map(|_| deliveries), client.calls) },
        Figure { name: "messages_per_write", unit: "messages", value: per_call(written, server.calls) },
    ];
    if client.response.is_some() {
        figures.extend(percentiles(["response_p50", "response_p99"], client.response.as_ref()));
    }
    figures
}

/// A load for the tests: two subscribers and messages of 100 bytes.
#[cfg(test)]
fn minimal_fanout(per_write: u32, rate: Option<f64>) -> Fanout {
    let timing = crate::load::Timing { warmup: 0.0, duration: 1.0 };
    Fanout { connections: 2, size: 100, per_write, rate, timing }
}

#[cfg(test)]
mod tests {
    use process_usage::KernelMemory;

    use super::*;
    use crate::window::Reading;

    #[test]
    fn each_side_is_charged_for_the_bytes_that_it_moved() {
        let reading = |cpu_ns, calls, bytes, units| Reading {
            duration_ns: 500_000_000,
            cpu_ns,
            calls,
            bytes,
            units,
            ..Reading::default()
        };
        let measured = Measured {
            server: reading(8_000, 4, 20_400, 0),
            client: reading(10_000, 5, 10_200, 100),
            kernel_before: KernelMemory::default(),
            kernel_open: KernelMemory::default(),
        };
        let values: Vec<_> = figures(&measured).iter().map(|figure| figure.value.unwrap()).collect();
        assert_eq!(values, [40.0, 100.0, 200.0, 20.0, 50.0]);
        let nothing = Measured { server: Reading::default(), client: Reading::default(), ..measured };
        assert!(figures(&nothing).iter().all(|figure| figure.value.is_none()));
    }
}
