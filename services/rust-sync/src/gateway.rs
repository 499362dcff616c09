//! The gateway as a whole: how its threads start and how they end.

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

/// More than any burst of connects: a full backlog costs a client one to three seconds (SYN retransmission).
const BACKLOG: i32 = 65_535;
/// How often the inference's name is resolved again. Connections that are open stay where they are.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    metrics_address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Listens, and serves from now on.
    ///
    /// # Errors
    /// An address that can't be listened on, or a system that lacks descriptors or threads.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        allow_many_descriptors();
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

    /// The ready line.
    pub fn started(&self) -> Started {
        Started {
            event: "ready".into(),
            address: self.address.to_string(),
            metrics_address: self.metrics_address.to_string(),
            pid: std::process::id(),
        }
    }

    /// Ends all sessions as the contract has it, and returns when they have ended.
    pub fn stop(self) {
        self.shared.stop();
        for thread in self.threads {
            // A thread that panicked has said so.
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
    let resolving = Arc::clone(&settings);
    // It lives as long as the process: a name is never resolved for good.
    std::thread::Builder::new().name("resolve".into()).spawn(move || keep_resolving(&resolving))?;
    let (count, slots) = (shared.doors.len(), config.inference_http_clients.get());
    let mut listener = Some(listener);
    let mut threads = Vec::with_capacity(2 * count);
    for (index, door) in shared.doors.iter().enumerate() {
        // The slots are dealt out: the first threads get what is left over, and each gets one.
        let slots = (slots / count + usize::from(index < slots % count)).max(1);
        let inference = Inference::new(Arc::clone(&settings), Arc::clone(&door.exchange), slots)?;
        threads.push(std::thread::Builder::new().name(format!("inference-{index}")).spawn(move || inference.run())?);
        let shard = Shard::new(Arc::clone(shared), index, listener.take())?;
        threads.push(std::thread::Builder::new().name(format!("websocket-{index}")).spawn(move || shard.run())?);
    }
    Ok(threads)
}

/// Only a name needs it.
fn keep_resolving(settings: &Settings) {
    while settings.authority.parse::<SocketAddr>().is_err() {
        let is_known = !lock(&settings.addresses).is_empty();
        std::thread::sleep(if is_known { RESOLVE_EVERY } else { Duration::from_secs(1) });
        resolve(settings);
    }
}

fn resolve(settings: &Settings) {
    match settings.authority.to_socket_addrs() {
        Ok(addresses) => *lock(&settings.addresses) = addresses.collect(),
        // What was known goes on to be used. The reason is in the errors of those who can't connect.
        Err(error) => eprintln!("failed to resolve {} (INFERENCE_URL): {error}", settings.authority),
    }
}

fn listen(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// As many as the system lets this process have.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // What can't be raised shows when it is reached: connections then wait to be accepted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
