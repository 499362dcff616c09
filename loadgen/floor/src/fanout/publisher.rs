//! The server's side of the fan-out: renumbers one batch of frames and writes it to every subscriber.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use loadgen_core::{clock::monotonic_ns, trial::sleep_until};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, write},
    net::sockopt::set_socket_send_buffer_size,
};

use super::{DIGITS, DRAIN_NS, NUMBER, schedule};
use crate::{
    load::Fanout,
    side::LoadSide,
    sockets::{Listening, Poll},
    window::{Counters, Reading, Window},
};

/// Send buffers over all subscribers, in bytes, and the smallest and largest buffer of one. The kernel's default would
/// exceed its memory for TCP, and the data would have left the CPU caches before it is read.
const SEND_BUFFERS: usize = 128 << 20;
const SEND_BUFFER: (usize, usize) = (16 << 10, 128 << 10);
/// Length of a frame's header in bytes; messages are short.
const HEADER: usize = 2;
/// In a flood the clock is read after this many subscribers.
const SUBSCRIBERS_PER_CLOCK: usize = 32;

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
            let mut remaining_digits = number;
            for digit in frame[self.number_at..self.number_at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (remaining_digits % 10) as u8;
                remaining_digits /= 10;
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use loadgen_core::frame::parse;

    use super::*;
    use crate::fanout::{minimal_fanout, subscriber::number};

    #[test]
    fn a_batch_has_frames_of_the_configured_size_with_consecutive_numbers() {
        let mut batch = Batch::new(&minimal_fanout(3, None));
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
}
