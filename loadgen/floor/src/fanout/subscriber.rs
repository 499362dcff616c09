//! The client's side of the fan-out: parses every frame, checks its number and records its response time.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use bench_format::histogram::Recorder;
use loadgen_core::{clock::monotonic_ns, connect::unread_each, frame::parse, schedule::Schedule};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read},
};

use super::{DIGITS, DRAIN_NS, NUMBER, schedule};
use crate::{
    load::Fanout,
    side::LoadSide,
    sockets::{Poll, SocketAddr, Target},
    window::{Counters, Reading, Window},
};

/// Largest read, in bytes.
const READ_BUFFER: usize = 256 << 10;

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
    incomplete: Vec<u8>,
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
        let mut incomplete = std::mem::take(&mut self.subscribers[index].incomplete);
        self.buffer[..incomplete.len()].copy_from_slice(&incomplete);
        let length = match read(socket, &mut self.buffer[incomplete.len()..]) {
            Ok(0) => bail!("the server closed a connection before its time"),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno).context("failed to read"),
        };
        let now_ns = monotonic_ns();
        self.counters.calls += u64::from(length > 0);
        self.counters.bytes += length as u64;
        let end = incomplete.len() + length;
        let mut at = 0;
        while let Some(frame) = parse(&self.buffer[at..end])? {
            let number = number(&self.finder, frame.payload);
            at += frame.length;
            self.count(index, number, now_ns)?;
        }
        incomplete.clear();
        incomplete.extend_from_slice(&self.buffer[at..end]);
        self.subscribers[index].incomplete = incomplete;
        Ok(())
    }

    #[inline]
    fn count(&mut self, index: usize, number: Option<u64>, now_ns: u64) -> anyhow::Result<()> {
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
pub(super) fn number(finder: &memchr::memmem::Finder<'_>, payload: &[u8]) -> Option<u64> {
    let digits = payload.get(finder.find(payload)? + NUMBER.len()..)?.first_chunk::<DIGITS>()?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::minimal_fanout;

    #[test]
    fn a_number_that_is_not_the_next_is_an_error() {
        let mut receiving = Receiving::new(&minimal_fanout(1, None), 0, (0, 1));
        receiving.count(0, Some(0), 0).unwrap();
        receiving.count(0, Some(1), 0).unwrap();
        let description = receiving.count(0, Some(3), 0).unwrap_err().to_string();
        assert_eq!(description, "subscriber 0 waited for number 2 and got Some(3)");
        assert!(receiving.count(1, None, 0).is_err());
    }

    #[test]
    fn a_schedule_is_that_of_all_deliveries_and_counts_from_when_a_batch_was_due() {
        let second = 1_000_000_000;
        // 100 deliveries per second to 2 subscribers in batches of 5: a batch every 100 ms.
        let mut receiving = Receiving::new(&minimal_fanout(5, Some(100.0)), second, (second, 2 * second));
        assert_eq!(receiving.due, 100);
        (0..10).for_each(|number| receiving.count(0, Some(number), second + 150_000_000).unwrap());
        let values = receiving.response.values();
        let ms = |value: u64| value / 1_000_000;
        assert_eq!((values.len(), ms(values.min()), ms(values.max())), (10, 49, 150));
    }
}
