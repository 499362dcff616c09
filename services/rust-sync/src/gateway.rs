//! The gateway as a whole: starts its threads and stops them.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service_contract::Started;
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    Config,
    inference::{Inference, Settings},
    port::MetricsPort,
    shard::Shard,
    shared::{Shared, lock},
};

/// Listen backlog, larger than any burst of connects: with a full backlog, a client waits one to three seconds (SYN
/// retransmission).
const BACKLOG: i32 = 65_535;
/// Time between two resolutions of the inference's host name. Open connections are not affected.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);

/// A running gateway: its bound addresses and its threads.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    metrics_address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Binds both ports and starts all threads.
    ///
    /// # Errors
    /// When an address cannot be bound, or the system has no file descriptors or threads left.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        raise_open_files();
        let listener = listen(config.address())
            .with_context(|| format!("failed to listen on {} (HOST, PORT)", config.address()))?;
        let address = rustix::net::getsockname(&listener)
            .ok()
            .and_then(|address| SocketAddr::try_from(address).ok())
            .context("failed to read the address that the kernel picked")?;
        let shared = Arc::new(Shared::new(config).context("failed to make what wakes threads")?);
        let metrics = MetricsPort::start(config.metrics_address(), Arc::clone(&shared))
            .with_context(|| format!("failed to listen on {} (HOST, METRICS_PORT)", config.metrics_address()))?;
        let threads = start_threads(&shared, listener).context("failed to start a thread")?;
        Ok(Self { shared, address, metrics_address: metrics.address, threads })
    }

    /// The content of the ready line.
    pub fn started(&self) -> Started {
        Started {
            event: "ready".into(),
            address: self.address.to_string(),
            metrics_address: self.metrics_address.to_string(),
            pid: std::process::id(),
        }
    }

    /// Stops accepting, drains all sessions as the contract requires, and returns when they have ended.
    pub fn stop(self) {
        self.shared.stop();
        for thread in self.threads {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

fn start_threads(shared: &Arc<Shared>, listener: OwnedFd) -> std::io::Result<Vec<JoinHandle<()>>> {
    let config = &shared.config;
    let settings = Arc::new(Settings {
        authority: config.inference_url.authority.clone(),
        cpu_passes: config.cpu_passes.get(),
        timeout: config.inference_timeout(),
        addresses: Mutex::new(Vec::new()),
    });
    resolve(&settings);
    let resolver_settings = Arc::clone(&settings);
    // The thread runs as long as the process, because a name's addresses may change at any time.
    std::thread::Builder::new().name("resolve".into()).spawn(move || resolve_periodically(&resolver_settings))?;
    let (count, slots) = (shared.handles.len(), config.inference_http_clients.get());
    let mut listener = Some(listener);
    let mut threads = Vec::with_capacity(2 * count);
    for (index, handle) in shared.handles.iter().enumerate() {
        // The slots are divided evenly: the first threads get the remainder, and each gets at least one.
        let slots = (slots / count + usize::from(index < slots % count)).max(1);
        let inference = Inference::new(Arc::clone(&settings), Arc::clone(&handle.channels), slots)?;
        threads.push(std::thread::Builder::new().name(format!("inference-{index}")).spawn(move || inference.run())?);
        let shard = Shard::new(Arc::clone(shared), index, listener.take())?;
        threads.push(std::thread::Builder::new().name(format!("websocket-{index}")).spawn(move || shard.run())?);
    }
    Ok(threads)
}

/// Resolves the inference's host name periodically. Returns at once if the authority is an IP address.
fn resolve_periodically(settings: &Settings) {
    while settings.authority.parse::<SocketAddr>().is_err() {
        let is_known = !lock(&settings.addresses).is_empty();
        std::thread::sleep(if is_known { RESOLVE_INTERVAL } else { Duration::from_secs(1) });
        resolve(settings);
    }
}

fn resolve(settings: &Settings) {
    match settings.authority.to_socket_addrs() {
        Ok(addresses) => *lock(&settings.addresses) = addresses.collect(),
        // The last known addresses stay in use. If there are none, requests fail with an error.
        Err(error) => eprintln!("failed to resolve {} (INFERENCE_URL): {error}", settings.authority),
    }
}

fn listen(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit this option.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Raises the soft limit of open files to the hard limit.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // On failure the limit stays as it is. When it is reached, connections wait in the backlog.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
