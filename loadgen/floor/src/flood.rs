//! The flood: both sides move bytes as fast as they can. A message is only a number of bytes.

use std::{collections::VecDeque, os::fd::OwnedFd};

use anyhow::{Context, bail};
use loadgen_core::{clock::monotonic_ns, trial::sleep_until};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read, write},
};

use crate::{
    figure::Figure,
    load::Flood,
    processes::Measured,
    side::LoadSide,
    sockets::{Listening, Poll, SocketAddr, Target},
    window::{Counters, Reading, Window},
};

/// Largest read, in bytes.
const READ_BUFFER: usize = 256 << 10;
/// Number of writes after which the clock is read.
const WRITES_PER_CLOCK: usize = 32;

/// The side that reads.
pub struct Reader {
    flood: Flood,
    listening: Listening,
    sockets: Vec<OwnedFd>,
}

impl Reader {
    pub(crate) fn new(flood: Flood, listening: Listening) -> Self {
        Self { flood, listening, sockets: Vec::new() }
    }
}

impl LoadSide for Reader {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.listening.accept_all(self.flood.connections)?;
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let mut poll = Poll::watching(&self.sockets, EventFlags::IN)?;
        let mut buffer = vec![0; READ_BUFFER];
        let mut counters = Counters::default();
        let mut window = Window::new(start_ns, self.flood.timing);
        while !window.is_over(monotonic_ns(), counters) {
            for nth in 0..poll.wait(window.next_edge_ns())? {
                match read(&self.sockets[poll.event(nth).0], &mut buffer[..]) {
                    Ok(0) => bail!("the client closed a connection inside the window"),
                    Ok(length) => {
                        counters.calls += 1;
                        counters.bytes += length as u64;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(errno) => return Err(errno).context("failed to read"),
                }
            }
        }
        Ok(window.reading())
    }
}

/// The side that writes.
pub struct Writer {
    flood: Flood,
    target: Target,
    sockets: Vec<OwnedFd>,
}

impl Writer {
    pub(crate) fn new(flood: Flood, address: SocketAddr) -> Self {
        Self { flood, target: Target::new(address), sockets: Vec::new() }
    }
}

impl LoadSide for Writer {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.target.connect_all(self.flood.connections)?;
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        // Edge-triggered: the kernel reports a socket only after a write that it didn't accept completely.
        let mut poll = Poll::watching(&self.sockets, EventFlags::OUT | EventFlags::ET)?;
        let mut order = WriteOrder::new(self.sockets.len());
        let block = vec![b'x'; (self.flood.size * self.flood.per_write) as usize];
        // Position in the block at which each connection continues.
        let mut at = vec![0; self.sockets.len()];
        let mut counters = Counters::default();
        let mut window = Window::new(start_ns, self.flood.timing);
        sleep_until(start_ns);
        while !window.is_over(monotonic_ns(), counters) {
            for _ in 0..WRITES_PER_CLOCK {
                let Some(index) = order.next() else { break };
                let remaining = &block[at[index]..];
                let length = match write(&self.sockets[index], remaining) {
                    Ok(length) => length,
                    Err(Errno::AGAIN) => 0,
                    Err(errno) => return Err(errno).context("failed to write"),
                };
                counters.calls += u64::from(length > 0);
                counters.bytes += length as u64;
                if length == remaining.len() {
                    at[index] = 0;
                    order.add_ready(index);
                } else {
                    at[index] += length;
                    order.set_waiting(index);
                }
            }
            if order.any_waits() {
                let ready = if order.all_wait() { poll.wait(window.next_edge_ns())? } else { poll.poll_ready()? };
                (0..ready).for_each(|nth| order.set_writable(poll.event(nth).0));
            }
        }
        Ok(window.reading())
    }
}

/// The order of writes: connections that accept a whole block take turns, full ones wait for the kernel.
struct WriteOrder {
    ready: VecDeque<usize>,
    waiting: Vec<bool>,
}

impl WriteOrder {
    fn new(connections: usize) -> Self {
        Self { ready: (0..connections).collect(), waiting: vec![false; connections] }
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    #[inline]
    fn add_ready(&mut self, index: usize) {
        self.ready.push_back(index);
    }

    #[inline]
    fn set_waiting(&mut self, index: usize) {
        self.waiting[index] = true;
    }

    #[inline]
    fn set_writable(&mut self, index: usize) {
        if std::mem::take(&mut self.waiting[index]) {
            self.ready.push_back(index);
        }
    }

    #[inline]
    fn any_waits(&self) -> bool {
        self.ready.len() < self.waiting.len()
    }

    #[inline]
    fn all_wait(&self) -> bool {
        self.ready.is_empty()
    }
}

/// CPU time per message of both sides, each divided by the bytes that the side moved itself.
pub(crate) fn figures(flood: &Flood, measured: &Measured) -> Vec<Figure> {
    let size = f64::from(flood.size);
    let messages = |reading: &Reading| reading.bytes as f64 / size;
    let cpu = |reading: &Reading| (reading.bytes > 0).then(|| reading.cpu_ns as f64 / messages(reading));
    let per_call = |reading: &Reading| (reading.calls > 0).then(|| messages(reading) / reading.calls as f64);
    let Measured { server, client, .. } = measured;
    let rate = (server.duration_ns > 0).then(|| messages(server) * 1e9 / server.duration_ns as f64);
    vec![
        Figure { name: "server_cpu", unit: "ns/message", value: cpu(server) },
        Figure { name: "client_cpu", unit: "ns/message", value: cpu(client) },
        Figure { name: "rate", unit: "messages/s", value: rate },
        Figure { name: "messages_per_read", unit: "messages", value: per_call(server) },
        Figure { name: "messages_per_write", unit: "messages", value: per_call(client) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use process_usage::KernelMemory;

    use crate::load::Timing;

    #[test]
    fn a_full_connection_is_written_again_only_after_the_kernel_reports_it() {
        let mut order = WriteOrder::new(2);
        let first = order.next().unwrap();
        order.set_waiting(first);
        // The kernel also reports sockets that are not full.
        order.set_writable(1);
        assert_eq!((order.next(), order.next()), (Some(1), None));
        order.add_ready(1);
        assert!(order.any_waits() && !order.all_wait());
        order.set_writable(first);
        order.set_writable(first);
        assert_eq!((order.next(), order.next(), order.next()), (Some(1), Some(0), None));
    }

    #[test]
    fn each_side_is_charged_for_the_bytes_that_it_moved() {
        let timing = Timing { warmup: 0.0, duration: 1.0 };
        let flood = Flood { connections: 1, size: 100, per_write: 4, timing };
        let reading =
            |cpu_ns, calls, bytes| Reading { duration_ns: 500_000_000, cpu_ns, calls, bytes, ..Reading::default() };
        let measured = Measured {
            server: reading(8_000, 2, 4_000),
            client: reading(10_000, 5, 2_000),
            kernel_before: KernelMemory::default(),
            kernel_open: KernelMemory::default(),
        };
        let values: Vec<_> = figures(&flood, &measured).iter().map(|figure| figure.value.unwrap()).collect();
        assert_eq!(values, [200.0, 500.0, 80.0, 20.0, 4.0]);
        let nothing = Measured { server: Reading::default(), client: Reading::default(), ..measured };
        assert!(figures(&flood, &nothing).iter().all(|figure| figure.value.is_none()));
    }
}
