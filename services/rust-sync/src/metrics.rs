//! The gateway's books: the counters of a WebSocket thread, and their form in JSON and in Prometheus text.
//!
//! A thread counts in plain integers and publishes all of them at once at the end of a round, so that the equations of
//! `services/README.md` hold in every reading.

use std::{collections::BTreeMap, time::Duration};

use service_contract::{
    ByteStats, ConnectionStats, Exposition, GatewayMetrics, Histogram, InferenceStats, Labels, MessageStats,
    ServiceStats, Ticks,
};

use crate::protocol::messages::Kind;

/// Declares an enum of reasons with the labels under which they are counted.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The labels, in declaration order of the variants.
            pub const LABELS: [&'static str; [$($label,)*].len()] = [$($label,)*];
        }
    };
}

reasons! {
    /// Why a connection ended.
    CloseReason {
        /// The client sent a Close frame.
        Client = "client",
        /// The client ended the stream without a Close frame.
        Eof = "eof",
        /// The client violated the WebSocket protocol or the contract.
        Protocol = "protocol",
        /// A message exceeded 64 KiB.
        TooBig = "too_big",
        /// The client didn't read its messages.
        SlowConsumer = "slow_consumer",
        /// The gateway stopped and closed the connection.
        Shutdown = "shutdown",
        /// Reading from or writing to the socket failed.
        Error = "error",
    }
}

reasons! {
    /// Why a connection was refused.
    RejectReason {
        /// The number of open connections has reached `MAX_CONNECTIONS`.
        Full = "full",
        /// The gateway is stopping.
        Draining = "draining",
        /// The request is not a valid upgrade.
        Handshake = "handshake",
        /// The request was not complete in time.
        Timeout = "timeout",
    }
}

reasons! {
    /// Why a frame or a message got no partial.
    DropReason {
        /// The message was refused and its connection closed.
        Protocol = "protocol",
        /// More frames waited than `MAX_BUFFERED_FRAMES`.
        Overflow = "overflow",
        /// No complete response within `INFERENCE_TIMEOUT_MS`.
        Timeout = "timeout",
        /// The inference returned a status other than 2xx and 429.
        Http5xx = "http_5xx",
        /// The inference returned status 429.
        Http429 = "http_429",
        /// The connection to the inference failed.
        ConnectionReset = "connection_reset",
        /// The response could not be parsed.
        ParseError = "parse_error",
        /// The frame was held or in flight when the client's connection ended.
        Closed = "closed",
    }
}

reasons! {
    /// The outcome of a flush tick.
    TickOutcome {
        /// The tick sent a batch.
        Flushed = "flushed",
        /// A request was in flight.
        Skipped = "skipped",
        /// No audio was waiting.
        Empty = "empty",
    }
}

impl From<Kind> for DropReason {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Timeout => Self::Timeout,
            Kind::ConnectionReset => Self::ConnectionReset,
            Kind::Http429 => Self::Http429,
            Kind::Http5xx => Self::Http5xx,
            Kind::ParseError => Self::ParseError,
            Kind::Overflow => Self::Overflow,
        }
    }
}

/// The labels that `/metrics` lists from the start. Requests fail for a subset of the reasons for which messages are
/// dropped.
const LABELS: Labels<'static> = Labels {
    dropped: &DropReason::LABELS,
    send_dropped: &[],
    closed: &CloseReason::LABELS,
    rejected: &RejectReason::LABELS,
    failed: &[
        DropReason::LABELS[DropReason::Timeout as usize],
        DropReason::LABELS[DropReason::Http5xx as usize],
        DropReason::LABELS[DropReason::Http429 as usize],
        DropReason::LABELS[DropReason::ConnectionReset as usize],
        DropReason::LABELS[DropReason::ParseError as usize],
    ],
};

/// Upper bounds of the lateness histogram, in microseconds.
const LATENESS_BOUNDS_US: [u64; 16] = [
    250, 500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000,
];

/// The counters of one thread since it started. All except the last four only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub(crate) accepted: u64,
    pub(crate) closed: [u64; CloseReason::LABELS.len()],
    pub(crate) rejected: [u64; RejectReason::LABELS.len()],
    pub(crate) received: u64,
    pub(crate) consumed: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: [u64; DropReason::LABELS.len()],
    pub(crate) sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) failed: [u64; DropReason::LABELS.len()],
    pub(crate) abandoned: u64,
    pub(crate) ticks: [u64; TickOutcome::LABELS.len()],
    lateness: [u64; LATENESS_BOUNDS_US.len() + 1],
    lateness_sum_ns: u64,
    pub(crate) visits: u64,
    pub(crate) rounds: u64,
    /// Frames that wait or are in flight.
    pub(crate) queued: u64,
    pub(crate) in_flight: u64,
    pub(crate) max_in_flight_per_connection: u64,
    /// Audio held in bytes, including that of abandoned requests that have not returned.
    pub(crate) buffered_bytes: u64,
}

impl Counters {
    /// Counts a tick and its lateness.
    pub(crate) fn tick(&mut self, outcome: TickOutcome, lateness: Duration) {
        self.ticks[outcome as usize] += 1;
        let microseconds = lateness.as_micros() as u64;
        self.lateness[LATENESS_BOUNDS_US.partition_point(|bound| *bound < microseconds)] += 1;
        self.lateness_sum_ns += lateness.as_nanos() as u64;
    }

    fn add(&mut self, other: &Self) {
        let arrays: [(&mut [u64], &[u64]); 6] = [
            (&mut self.closed, &other.closed),
            (&mut self.rejected, &other.rejected),
            (&mut self.dropped, &other.dropped),
            (&mut self.failed, &other.failed),
            (&mut self.ticks, &other.ticks),
            (&mut self.lateness, &other.lateness),
        ];
        for (mine, theirs) in arrays {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        for (mine, theirs) in [
            (&mut self.accepted, other.accepted),
            (&mut self.received, other.received),
            (&mut self.consumed, other.consumed),
            (&mut self.delivered, other.delivered),
            (&mut self.sent, other.sent),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.requests, other.requests),
            (&mut self.answered, other.answered),
            (&mut self.abandoned, other.abandoned),
            (&mut self.lateness_sum_ns, other.lateness_sum_ns),
            (&mut self.visits, other.visits),
            (&mut self.rounds, other.rounds),
            (&mut self.queued, other.queued),
            (&mut self.in_flight, other.in_flight),
            (&mut self.buffered_bytes, other.buffered_bytes),
        ] {
            *mine += theirs;
        }
        self.max_in_flight_per_connection = self.max_in_flight_per_connection.max(other.max_in_flight_per_connection);
    }

    /// The sum over several threads.
    pub fn sum<'a>(threads: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut total = Self::default();
        threads.into_iter().for_each(|counters| total.add(counters));
        total
    }

    fn open(&self) -> u64 {
        self.accepted - self.closed.iter().sum::<u64>()
    }

    /// The body of `/stats`.
    pub fn service_stats(&self, uptime: Duration) -> ServiceStats {
        ServiceStats {
            service: "rust-sync".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: uptime.as_secs_f64(),
            connections: ConnectionStats {
                accepted: self.accepted,
                open: self.open(),
                closed: labelled(&CloseReason::LABELS, &self.closed),
                rejected: labelled(&RejectReason::LABELS, &self.rejected),
            },
            messages: MessageStats {
                received: self.received,
                consumed: self.consumed,
                delivered: self.delivered,
                dropped: labelled(&DropReason::LABELS, &self.dropped),
                queued: self.queued,
                malformed: 0,
                sent: self.sent,
                send_dropped: BTreeMap::new(),
            },
            bytes: ByteStats { received: self.bytes_received, sent: self.bytes_sent },
            application: None,
            inference: Some(InferenceStats {
                requests: self.requests,
                answered: self.answered,
                failed: labelled(&DropReason::LABELS, &self.failed),
                abandoned: self.abandoned,
                in_flight: self.in_flight,
                ticks_skipped: self.ticks[TickOutcome::Skipped as usize],
                buffered_bytes: self.buffered_bytes,
            }),
        }
    }

    /// The body of `/metrics`, in Prometheus' text format.
    pub fn prometheus(&self, uptime: Duration) -> String {
        let mut text = Exposition::default();
        text.service(&self.service_stats(uptime), &LABELS);
        let ticks = |outcome| self.ticks[outcome as usize];
        text.gateway(&GatewayMetrics {
            in_flight_per_connection_max: self.max_in_flight_per_connection,
            ticks: Ticks {
                flushed: ticks(TickOutcome::Flushed),
                skipped: ticks(TickOutcome::Skipped),
                empty: ticks(TickOutcome::Empty),
            },
            lateness: Histogram {
                bounds: &LATENESS_BOUNDS_US.map(|bound| bound as f64 / 1e6),
                counts: &self.lateness,
                sum: self.lateness_sum_ns as f64 / 1e9,
            },
            resident_bytes: Some(resident_bytes()),
        });
        text.counter("service_visits_total", "Times that a started session's socket was read", self.visits);
        text.counter("service_rounds_total", "Times that a WebSocket thread woke", self.rounds);
        text.gauge("service_uptime_seconds", "Seconds since the start", uptime.as_secs_f64());
        text.into_text()
    }
}

fn labelled(labels: &[&str], counts: &[u64]) -> BTreeMap<String, u64> {
    let some = labels.iter().zip(counts).filter(|(_, count)| **count > 0);
    some.map(|(label, count)| ((*label).to_owned(), *count)).collect()
}

/// Resident memory of this process in bytes; 0 if `/proc` is not available.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    resident.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_the_books_balance() {
        let mut one =
            Counters { received: 13, consumed: 1, delivered: 6, queued: 3, accepted: 2, ..Counters::default() };
        one.dropped[DropReason::Overflow as usize] = 2;
        one.dropped[DropReason::Closed as usize] = 1;
        one.closed[CloseReason::Eof as usize] = 1;
        let stats = Counters::sum([&one, &one]).service_stats(Duration::from_secs(1));
        let messages = &stats.messages;
        let out = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>() + messages.queued;
        assert_eq!((messages.received, stats.connections.open), (out, 2));
        assert_eq!(messages.dropped, BTreeMap::from([("overflow".to_owned(), 4), ("closed".to_owned(), 2)]));
    }

    #[test]
    fn lateness_is_a_histogram_with_growing_buckets() {
        let mut counters = Counters::default();
        for microseconds in [0, 250, 251, 4_000, 9_000_000] {
            counters.tick(TickOutcome::Flushed, Duration::from_micros(microseconds));
        }
        let text = counters.prometheus(Duration::ZERO);
        for line in [
            "service_flush_lateness_seconds_bucket{le=\"0.00025\"} 2",
            "service_flush_lateness_seconds_bucket{le=\"0.004\"} 4",
            "service_flush_lateness_seconds_bucket{le=\"5\"} 4",
            "service_flush_lateness_seconds_bucket{le=\"+Inf\"} 5",
            "service_flush_lateness_seconds_count 5",
            "service_flush_ticks_total{outcome=\"flushed\"} 5",
            "service_inference_failed_total{kind=\"http_429\"} 0",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
        }
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(|line| line.matches(' ').count() == 1));
    }
}
