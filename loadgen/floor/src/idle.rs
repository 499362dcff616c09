//! Idle connections: their memory in the processes that hold them and in the kernel.

use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;

use crate::{
    figure::Figure,
    load::Idle,
    processes::Measured,
    side::LoadSide,
    sockets::{Listening, Poll, SocketAddr, Target},
    window::Reading,
};

/// Either side. It watches its connections, as a real server or client would, and holds no buffers for them.
pub struct Holder {
    idle: Idle,
    side: Side,
    sockets: Vec<OwnedFd>,
    poll: Option<Poll>,
}

enum Side {
    Accepts(Listening),
    Connects(Target),
}

impl Holder {
    pub(crate) fn accepting(idle: Idle, listening: Listening) -> Self {
        Self { idle, side: Side::Accepts(listening), sockets: Vec::new(), poll: None }
    }

    pub(crate) fn connecting(idle: Idle, address: SocketAddr) -> Self {
        Self { idle, side: Side::Connects(Target::new(address)), sockets: Vec::new(), poll: None }
    }
}

impl LoadSide for Holder {
    fn connect(&mut self) -> anyhow::Result<()> {
        let count = self.idle.connections;
        self.sockets = match &self.side {
            Side::Accepts(listening) => listening.accept_all(count)?,
            Side::Connects(target) => target.connect_all(count)?,
        };
        let poll = Poll::watching(&self.sockets, EventFlags::IN)?;
        self.poll = Some(poll);
        Ok(())
    }

    fn run(&mut self, _start_ns: u64) -> anyhow::Result<Reading> {
        Ok(Reading::default())
    }
}

/// Memory per connection: of each process, and of the kernel for both sides together.
pub(crate) fn figures(idle: &Idle, measured: &Measured) -> Vec<Figure> {
    let per_connection = |before: u64, open: u64| Some((open as f64 - before as f64) / f64::from(idle.connections));
    let process = |reading: &Reading| per_connection(reading.rss_before, reading.rss_open);
    let Measured { server, client, kernel_before, kernel_open } = measured;
    let figure = |name, value| Figure { name, unit: "bytes/connection", value };
    vec![
        figure("server_memory", process(server)),
        figure("client_memory", process(client)),
        figure("kernel_objects", per_connection(kernel_before.slab_bytes, kernel_open.slab_bytes)),
        figure("kernel_buffers", per_connection(kernel_before.tcp_bytes, kernel_open.tcp_bytes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use process_usage::KernelMemory;

    #[test]
    fn memory_is_what_was_added_and_may_be_less_than_before() {
        let idle = Idle { connections: 10, settle: 0.0 };
        let reading = |rss_before, rss_open| Reading { rss_before, rss_open, ..Reading::default() };
        let measured = Measured {
            server: reading(1000, 1400),
            client: reading(500, 500),
            kernel_before: KernelMemory { slab_bytes: 9000, tcp_bytes: 4096 },
            kernel_open: KernelMemory { slab_bytes: 90_000, tcp_bytes: 0 },
        };
        let values: Vec<_> = figures(&idle, &measured).iter().map(|figure| figure.value.unwrap()).collect();
        assert_eq!(values, [40.0, 0.0, 8100.0, -409.6]);
    }
}
