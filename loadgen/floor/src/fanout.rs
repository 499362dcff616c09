//! The fan-out: numbered messages to every subscriber, framed once and written in batches. The subscriber parses every
//! frame, finds its number, and checks that it is the next one.
//!
//! A batch's due time follows from its number and the schedule, which both sides know, so only the number is sent.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use bench_format::histogram::Recorder;
use loadgen_core::{
    clock::monotonic_ns,
    connect::unread_each,
    frame::parse,
    schedule::{ConstantRate, Schedule, Share},
    trial::sleep_until,
};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read, write},
    net::sockopt::set_socket_send_buffer_size,
};

use crate::{
    figure::{Figure, percentiles},
    load::Fanout,
    processes::Measured,
    side::LoadSide,
    sockets::{Listening, Poll, SocketAddr, Target},
    window::{Counters, Reading, Window},
};

/// Largest read, in bytes.
const READ_BUFFER: usize = 256 << 10;
/// A number always has this many digits, so that a batch can be renumbered in place.
const DIGITS: usize = 12;
const NUMBER: &[u8] = br#""seq":"#;
/// Send buffers over all subscribers, in bytes, and the smallest and largest buffer of one. The kernel's default would
/// exceed its memory for TCP, and the data would have left the CPU caches before it is read.
const SEND_BUFFERS: usize = 128 << 20;
const SEND_BUFFER: (usize, usize) = (16 << 10, 128 << 10);
/// Length of a frame's header in bytes; messages are short.
const HEADER: usize = 2;
/// In a flood the clock is read after this many subscribers.
const SUBSCRIBERS_PER_CLOCK: usize = 32;
/// Longest time for the last messages of a schedule after the window, in nanoseconds.
const DRAIN_NS: u64 = 10_000_000_000;

/// The framed messages of one write, back to back.
struct Batch {
    bytes: Vec<u8>,
    frame: usize,
    count: u64,
    /// Position of the number within a frame.
    number_at: usize,
}

impl Batch {
    fn new(fanout: &Fanout) -> Self {
        let mut payload =
            br#"{"c":"U","t":"fanout_tick","p":{"seq":000000000000,"ts_us":0000000000000000,"s":"ES""#.to_vec();
        payload.resize(fanout.size as usize - 2, b' ');
        payload.extend(b"}}");
        let frame = [&[0x81, payload.len() as u8], &payload[..]].concat();
        let number_at =
            HEADER + memchr::memmem::find(&payload, NUMBER).expect("it is in the text above") + NUMBER.len();
        Self {
            bytes: frame.repeat(fanout.per_write as usize),
            frame: frame.len(),
            count: u64::from(fanout.per_write),
            number_at,
        }
    }

    /// Sets the numbers of batch `nth` in the messages.
    fn renumber(&mut self, nth: u64) {
        for (number, frame) in (nth * self.count..).zip(self.bytes.chunks_exact_mut(self.frame)) {
            let mut rest = number;
            for digit in frame[self.number_at..self.number_at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

/// The due times of batches for this rate of deliveries; `None` for a flood.
fn schedule(fanout: &Fanout) -> Option<Schedule> {
    let batches = |rate: f64| rate / f64::from(fanout.connections) / f64::from(fanout.per_write);
    fanout.rate.map(|rate| Schedule::Constant(ConstantRate::new(batches(rate), Share { index: 0, of: 1 })))
}

/// The side that publishes.
pub struct Publisher {
    fanout: Fanout,
    listening: Listening,
    sockets: Vec<OwnedFd>,
}

impl Publisher {
    pub(crate) fn new(fanout: Fanout, listening: Listening) -> Self {
        Self { fanout, listening, sockets: Vec::new() }
    }
}

impl LoadSide for Publisher {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.listening.accept_all(self.fanout.connections)?;
        let share = (SEND_BUFFERS / self.sockets.len().max(1)).clamp(SEND_BUFFER.0, SEND_BUFFER.1);
        let bound = |socket| set_socket_send_buffer_size(socket, share);
        self.sockets.iter().try_for_each(bound).context("failed to bound a send buffer")
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let mut publishing = Publishing {
            sockets: &self.sockets,
            poll: Poll::watching(&self.sockets, EventFlags::OUT | EventFlags::ET)?,
            batch: Batch::new(&self.fanout),
            counters: Counters::default(),
            window: Window::new(start_ns, self.fanout.timing),
            over: false,
            paced: self.fanout.rate.is_some(),
        };
        sleep_until(start_ns);
        let (_, to_ns) = publishing.window.edges_ns();
        let mut schedule = schedule(&self.fanout);
        let mut nth = 0;
        // Batch by batch, so that every subscriber gets the same messages.
        while !publishing.over {
            match schedule.as_mut().map(|schedule| start_ns + schedule.next_due_ns()) {
                // The client counts on every message due in the window, and on none due later.
                Some(due_ns) if due_ns >= to_ns => publishing.wait_until(u64::MAX)?,
                Some(due_ns) => {
                    publishing.wait_until(due_ns)?;
                    publishing.publish(nth)?;
                }
                None => publishing.publish(nth)?,
            }
            nth += 1;
        }
        Ok(publishing.window.reading())
    }
}

/// The state of the server under load.
struct Publishing<'a> {
    sockets: &'a [OwnedFd],
    poll: Poll,
    batch: Batch,
    counters: Counters,
    window: Window,
    over: bool,
    /// Whether there is a schedule: messages due in the window are written, however late. A flood ends with its window.
    paced: bool,
}

impl Publishing<'_> {
    fn mark(&mut self) {
        self.over = self.over || self.window.is_over(monotonic_ns(), self.counters);
    }

    /// Waits until a time of the monotonic clock, or until the end of the window.
    fn wait_until(&mut self, moment_ns: u64) -> anyhow::Result<()> {
        self.mark();
        while !self.over && monotonic_ns() < moment_ns {
            self.poll.wait(moment_ns.min(self.window.next_edge_ns()))?;
            self.mark();
        }
        Ok(())
    }

    /// Writes a batch to every subscriber completely.
    fn publish(&mut self, nth: u64) -> anyhow::Result<()> {
        self.batch.renumber(nth);
        for index in 0..self.sockets.len() {
            let mut at = 0;
            while at < self.batch.bytes.len() {
                match write(&self.sockets[index], &self.batch.bytes[at..]) {
                    Ok(length) => {
                        self.counters.calls += 1;
                        self.counters.bytes += length as u64;
                        at += length;
                    }
                    // The subscriber will read soon: none is slower than the others for long.
                    Err(Errno::AGAIN) => {
                        let until_ns = if self.over { monotonic_ns() + DRAIN_NS } else { self.window.next_edge_ns() };
                        if self.poll.wait(until_ns)? == 0 && self.over {
                            bail!("a subscriber read nothing for {} s", DRAIN_NS / 1_000_000_000);
                        }
                    }
                    Err(errno) => return Err(errno).context("failed to write"),
                }
                if at < self.batch.bytes.len() || index % SUBSCRIBERS_PER_CLOCK == 0 {
                    self.mark();
                    if self.over && !self.paced {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The side that subscribes.
pub struct Subscriber {
    fanout: Fanout,
    target: Target,
    sockets: Vec<OwnedFd>,
}

impl Subscriber {
    pub(crate) fn new(fanout: Fanout, address: SocketAddr) -> Self {
        let target = Target::new(address).holding(unread_each(fanout.connections));
        Self { fanout, target, sockets: Vec::new() }
    }
}

impl LoadSide for Subscriber {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.target.connect_all(self.fanout.connections)?;
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let mut poll = Poll::watching(&self.sockets, EventFlags::IN)?;
        let mut window = Window::new(start_ns, self.fanout.timing);
        let mut receiving = Receiving::new(&self.fanout, start_ns, window.edges_ns());
        let mut over = false;
        while !over || !receiving.has_all() {
            let now = monotonic_ns();
            over = over || window.is_over(now, receiving.counters);
            let (_, to_ns) = window.edges_ns();
            if now >= to_ns + DRAIN_NS {
                bail!("the deliveries due in the window did not arrive within {} s", DRAIN_NS / 1_000_000_000);
            }
            let until_ns = if over { to_ns + DRAIN_NS } else { window.next_edge_ns() };
            for nth in 0..poll.wait(until_ns)? {
                let index = poll.event(nth).0;
                receiving.read(index, &self.sockets[index])?;
            }
        }
        let response = self.fanout.rate.map(|_| receiving.response.encode());
        Ok(Reading { response, ..window.reading() })
    }
}

/// The state of the client under load.
struct Receiving {
    counters: Counters,
    buffer: Vec<u8>,
    subscribers: Vec<Subscription>,
    finder: memchr::memmem::Finder<'static>,
    response: Recorder,
    edges_ns: (u64, u64),
    start_ns: u64,
    per_write: u64,
    /// The schedule with the due times computed so far; absent in a flood.
    schedule: Option<(Schedule, Vec<u64>)>,
    /// Number of messages due before the end of the window, over all subscribers; 0 in a flood.
    due: u64,
}

/// The state of one connection.
#[derive(Clone, Default)]
struct Subscription {
    next: u64,
    /// The beginning of an incomplete frame.
    rest: Vec<u8>,
}

impl Receiving {
    fn new(fanout: &Fanout, start_ns: u64, edges_ns: (u64, u64)) -> Self {
        let mut all = schedule(fanout);
        let batches = all.as_mut().map_or(0, |schedule| {
            std::iter::from_fn(|| Some(start_ns + schedule.next_due_ns())).take_while(|due| *due < edges_ns.1).count()
        });
        Self {
            counters: Counters::default(),
            buffer: vec![0; READ_BUFFER],
            subscribers: vec![Subscription::default(); fanout.connections as usize],
            finder: memchr::memmem::Finder::new(NUMBER),
            response: Recorder::new(),
            edges_ns,
            start_ns,
            per_write: u64::from(fanout.per_write),
            schedule: schedule(fanout).map(|schedule| (schedule, Vec::new())),
            due: batches as u64 * u64::from(fanout.per_write) * u64::from(fanout.connections),
        }
    }

    fn has_all(&self) -> bool {
        self.counters.units >= self.due
    }

    #[inline]
    fn read(&mut self, index: usize, socket: &OwnedFd) -> anyhow::Result<()> {
        let mut rest = std::mem::take(&mut self.subscribers[index].rest);
        self.buffer[..rest.len()].copy_from_slice(&rest);
        let length = match read(socket, &mut self.buffer[rest.len()..]) {
            Ok(0) => bail!("the server closed a connection before its time"),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno).context("failed to read"),
        };
        let now_ns = monotonic_ns();
        self.counters.calls += u64::from(length > 0);
        self.counters.bytes += length as u64;
        let side = rest.len() + length;
        let mut at = 0;
        while let Some(frame) = parse(&self.buffer[at..side])? {
            let number = number(&self.finder, frame.payload);
            at += frame.length;
            self.take(index, number, now_ns)?;
        }
        rest.clear();
        rest.extend_from_slice(&self.buffer[at..side]);
        self.subscribers[index].rest = rest;
        Ok(())
    }

    #[inline]
    fn take(&mut self, index: usize, number: Option<u64>, now_ns: u64) -> anyhow::Result<()> {
        let next = &mut self.subscribers[index].next;
        if number != Some(*next) {
            bail!("subscriber {index} waited for number {next} and got {number:?}");
        }
        *next += 1;
        self.counters.units += 1;
        if let Some((schedule, dues)) = &mut self.schedule {
            let batch = ((*next - 1) / self.per_write) as usize;
            while dues.len() <= batch {
                dues.push(self.start_ns + schedule.next_due_ns());
            }
            if (self.edges_ns.0..self.edges_ns.1).contains(&dues[batch]) {
                self.response.record(now_ns.saturating_sub(dues[batch]));
            }
        }
        Ok(())
    }
}

/// The number of a message; `None` if it has none.
#[inline]
fn number(finder: &memchr::memmem::Finder<'_>, payload: &[u8]) -> Option<u64> {
    let digits = payload.get(finder.find(payload)? + NUMBER.len()..)?.first_chunk::<DIGITS>()?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
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

#[cfg(test)]
mod tests {
    use process_usage::KernelMemory;

    use super::*;
    use crate::load::Timing;

    fn fanout(per_write: u32, rate: Option<f64>) -> Fanout {
        Fanout { connections: 2, size: 100, per_write, rate, timing: Timing { warmup: 0.0, duration: 1.0 } }
    }

    #[test]
    fn a_batch_is_frames_of_the_size_asked_for_with_numbers_that_go_on() {
        let mut batch = Batch::new(&fanout(3, None));
        batch.renumber(1_000_000);
        let finder = memchr::memmem::Finder::new(NUMBER);
        let (mut at, mut numbers) = (0, Vec::new());
        while let Some(frame) = parse(&batch.bytes[at..]).unwrap() {
            assert_eq!(frame.payload.len(), 100);
            assert!(frame.payload.ends_with(b"}}"));
            numbers.push(number(&finder, frame.payload).unwrap());
            at += frame.length;
        }
        assert_eq!(numbers, [3_000_000, 3_000_001, 3_000_002]);
    }

    #[test]
    fn a_number_that_is_not_the_next_is_an_error() {
        let mut receiving = Receiving::new(&fanout(1, None), 0, (0, 1));
        receiving.take(0, Some(0), 0).unwrap();
        receiving.take(0, Some(1), 0).unwrap();
        let description = receiving.take(0, Some(3), 0).unwrap_err().to_string();
        assert_eq!(description, "subscriber 0 waited for number 2 and got Some(3)");
        assert!(receiving.take(1, None, 0).is_err());
    }

    #[test]
    fn a_schedule_is_that_of_all_deliveries_and_counts_from_when_a_batch_was_due() {
        let second = 1_000_000_000;
        // 100 deliveries per second to 2 subscribers in batches of 5: a batch every 100 ms.
        let mut receiving = Receiving::new(&fanout(5, Some(100.0)), second, (second, 2 * second));
        assert_eq!(receiving.due, 100);
        (0..10).for_each(|number| receiving.take(0, Some(number), second + 150_000_000).unwrap());
        let values = receiving.response.values();
        let ms = |value: u64| value / 1_000_000;
        assert_eq!((values.len(), ms(values.min()), ms(values.max())), (10, 49, 150));
    }

    #[test]
    fn each_end_is_charged_for_what_it_moved_itself() {
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
