//! The cluster: instances in a full mesh, with one link between any two of them. A publication goes to the instances
//! that have subscribers for it. The protocol is version 1 of the reference implementation's (`docs/PROTOCOL.md`), so
//! its instances can take part.
//!
//! The modules, from the wire up:
//!
//! - [`frame`] is the codec; `hello` and [`numbering`] are the payloads of some of its frames; `compression` shortens
//!   the payloads of publications.
//! - `queue` holds what waits for a peer, `interest` the peer's subscriptions, `peer` the rest of its state.
//! - `mesh` holds all peers and decides which links stay; `routes` caches which peers get a topic; `subscriptions` lists the
//!   subscriptions of this instance.
//! - `publish` takes publications from publishers here; `intake` hands those that arrive to subscribers here.
//! - `link` reads and writes; `join` turns a connection into a link; `dial` and `listen` open connections; `gossip` and
//!   `addresses` find the addresses to dial.
//! - `presence` exchanges the users' presence; `history` discards kept publications of other instances that have gaps.
//! - [`tls`] secures the links, and `identity` binds the peers' names to their certificates; without TLS, `secret`
//!   admits only instances that know the secret.
//! - `counters` and `dead_letters` account for every publication.
//!
//! One thread runs all links. Publishers only touch queues.

mod addresses;
mod compression;
mod config;
mod counters;
mod dead_letters;
mod dial;
#[doc(hidden)]
pub mod frame;
mod gossip;
mod hello;
mod history;
mod host;
mod identity;
mod intake;
mod interest;
mod join;
mod link;
mod listen;
mod mesh;
#[doc(hidden)]
pub mod numbering;
mod peer;
mod presence;
mod publish;
mod queue;
mod routes;
mod secret;
mod subscriptions;
mod tls;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    runtime,
    time::{interval, timeout},
};

pub(crate) use self::mesh::Mesh;
pub use self::{
    config::{ClusterConfig, ClusterError, ClusterTiming, TlsError, TlsFiles},
    dead_letters::ClusterDeadLetter,
    peer::ClusterPeer,
    secret::ClusterSecret,
};
use self::{
    frame::{Kind, encode},
    tls::Tls,
};
use crate::hub::Hub;
pub use crate::links::ClusterStats;

/// How long the resolver's threads may still run after the links have ended: a name lookup can't be interrupted.
const RESOLVER_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

/// The cluster connection of a server. Dropping it stops the links and joins their thread.
pub(crate) struct Cluster {
    mesh: Arc<Mesh>,
    address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Binds the cluster port and starts to dial.
    ///
    /// # Errors
    /// [`ClusterError`] if the configuration is invalid, a TLS file is unusable, the port can't be bound, or the
    /// runtime or the thread can't be started.
    pub(crate) fn start(shared: &Arc<Hub>, config: ClusterConfig) -> Result<Self, ClusterError> {
        config.validate(shared.config.host)?;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let listener = config.port.map(|port| bind(SocketAddr::new(shared.config.host, port))).transpose()?;
        let (listener, address) = listener.unzip();
        let advertised = config.advertised(address)?;
        let failed = |step| move |source| ClusterError::Resource { step, source };
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_name("wse-links-resolver")
            .build()
            .map_err(failed("set up the links"))?;
        let mesh = Arc::new(Mesh::new(shared, config, advertised, tls));
        // From here on the mesh is notified of subscriptions. It must be before any peer is linked.
        shared.links.add(mesh.clone());
        shared.topics.announce_topics(&*mesh);
        let running = Arc::clone(&mesh);
        let thread = std::thread::Builder::new()
            .name("wse-links".into())
            .spawn(move || {
                runtime.block_on(run(&running, listener));
                runtime.shutdown_timeout(RESOLVER_SHUTDOWN_TIMEOUT);
                running.finish();
            })
            .map_err(failed("start the links' thread"))?;
        tracing::info!(instance = &*mesh.instance, ?address, "cluster connected");
        Ok(Self { mesh, address, thread: Some(thread) })
    }

    pub(crate) fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// The bound cluster port; `None` if this instance only dials.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.mesh.stop.cancel();
        if self.thread.take().map(JoinHandle::join).is_some_and(|ended| ended.is_err()) {
            tracing::error!("the links' thread panicked");
        }
    }
}

/// For fuzzing: reads `bytes` as the first frame of a peer, and `proof` as its proof. Returns whether it is a hello.
#[doc(hidden)]
pub fn greeted(bytes: &[u8], proof: &[u8]) -> bool {
    secret::greeted(bytes, proof)
}

/// For fuzzing: the addresses in a peer's list, and whether each is on this machine as far as its text says.
#[doc(hidden)]
pub fn gossiped(payload: &[u8]) -> Vec<(String, bool)> {
    let found = addresses::parse(payload);
    assert!(found.iter().all(|address| host::split(address).is_some()));
    let again = addresses::parse(&addresses::encode(found.iter().map(String::as_str)));
    assert_eq!(found, again);
    found.into_iter().map(|address| (config::is_named_local(&address), address)).map(|(is, text)| (text, is)).collect()
}

fn bind(requested: SocketAddr) -> Result<(TcpListener, SocketAddr), ClusterError> {
    let failed = |source| ClusterError::Listen { address: requested, source };
    let listener = TcpListener::bind(requested).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Runs the links until the cluster stops, then waits up to `timing.stop_timeout` for them to end.
async fn run(mesh: &Arc<Mesh>, listener: Option<TcpListener>) {
    for address in mesh.config.dialled() {
        mesh.dial(address, true);
    }
    match listener.map(tokio::net::TcpListener::from_std).transpose() {
        Err(error) => tracing::error!(%error, "failed to serve the cluster port"),
        Ok(listener) => tokio::select! {
            () = mesh.stop.cancelled() => {}
            () = run_timers(mesh) => {}
            () = async {
                match listener {
                    Some(listener) => listen::serve(Arc::clone(mesh), listener).await,
                    None => std::future::pending().await,
                }
            } => {}
        },
    }
    mesh.tasks.close();
    // Links that haven't ended by then are cut off with the runtime.
    let _ = timeout(mesh.config.timing.stop_timeout, mesh.tasks.wait()).await;
}

/// Does the periodic work: gives up lost peers, ends lingering subscriptions, and every `timing.resync` sends the lists
/// of subscriptions and addresses again.
async fn run_timers(mesh: &Mesh) {
    let timing = &mesh.config.timing;
    let mut ticks = interval((timing.keep / 8).clamp(Duration::from_millis(5), Duration::from_secs(1)));
    let mut last_resync = tokio::time::Instant::now();
    loop {
        ticks.tick().await;
        mesh.give_up_lost_peers();
        mesh.end_lingering_subscriptions();
        if last_resync.elapsed() >= timing.resync {
            last_resync = tokio::time::Instant::now();
            mesh.resync();
            mesh.gossip();
        }
    }
}

impl Mesh {
    /// Notifies all peers that this instance admits no more clients and is about to leave.
    pub(crate) fn drain(&self) {
        self.send_to_all(0, &encode(Kind::Drain, 0, b"", b""));
    }

    /// The peers that have a link at the moment.
    pub(crate) fn members(&self) -> Vec<ClusterPeer> {
        self.report()
    }

    /// Uses other TLS files for new links; existing links stay as they are.
    ///
    /// # Errors
    /// [`ClusterError::WithoutTls`] if the cluster runs without TLS, [`ClusterError::Tls`] if the files are unusable.
    pub(crate) fn reload_tls(&self, files: &TlsFiles) -> Result<(), ClusterError> {
        let mut tls = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        if tls.is_none() {
            return Err(ClusterError::WithoutTls);
        }
        *tls = Some(Arc::new(Tls::load(files)?));
        Ok(())
    }

    /// Takes the kept dead letters: publications that a peer didn't get, the last thousand at most.
    pub(crate) fn dead_letters(&self) -> Vec<ClusterDeadLetter> {
        self.dead_letters.take()
    }
}
