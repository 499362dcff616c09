//! The cluster: instances in a full mesh, each with a link to each other one, over which publications go to where somebody
//! wants them. The protocol is version 1 of the reference's (`docs/PROTOCOL.md`), so that its instances can take part.
//!
//! From the wire up: [`frame`] is the codec, `hello` and [`numbering`] what is in some of its frames, `compression` what
//! may be done to others; `queue` is what waits for a peer, `interest` what it wants, `peer` all that is known of it; `mesh`
//! has all peers and decides who stays, `routes` remembers who gets what, `wants` lists what we want, `publish` is the way in
//! from publishers, `intake` the way out to listeners; `link` reads and writes, `join` makes connections links, `dial` and
//! `listen` make connections; `gossip` and `addresses` know where to; `presence` tells who is there, `past` when what came
//! from elsewhere is forgotten; [`tls`] secures all of it, `counters` and `letters`
//! keep the books.
//!
//! One thread of its own runs all links. Publishers only touch queues.

mod addresses;
mod compression;
mod config;
mod counters;
mod dial;
#[doc(hidden)]
pub mod frame;
mod gossip;
mod hello;
mod intake;
mod interest;
mod join;
mod letters;
mod link;
mod listen;
mod mesh;
#[doc(hidden)]
pub mod numbering;
mod past;
mod peer;
mod presence;
mod publish;
mod queue;
mod routes;
mod tls;
mod wants;

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
    letters::ClusterLetter,
    peer::ClusterPeer,
};
use self::{
    frame::{Kind, encode},
    tls::Tls,
};
use crate::hub::Hub;
pub use crate::links::ClusterStats;

/// How long names may be looked up after the end of all: a resolver can't be interrupted.
const LAST_BREATH: Duration = Duration::from_millis(100);

/// The cluster of a server, until it is dropped.
pub(crate) struct Cluster {
    mesh: Arc<Mesh>,
    address: Option<SocketAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Binds the cluster port and starts to dial.
    pub(crate) fn start(shared: &Arc<Hub>, config: ClusterConfig) -> Result<Self, ClusterError> {
        config.validate()?;
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
        // From here on it is told what is wanted; before anybody is asked for it.
        shared.links.add(mesh.clone());
        shared.topics.tell_wanted(&*mesh);
        let running = Arc::clone(&mesh);
        let thread = std::thread::Builder::new()
            .name("wse-links".into())
            .spawn(move || {
                runtime.block_on(run(&running, listener));
                runtime.shutdown_timeout(LAST_BREATH);
                running.finish();
            })
            .map_err(failed("start the links' thread"))?;
        tracing::info!(instance = &*mesh.instance, ?address, "clustered");
        Ok(Self { mesh, address, thread: Some(thread) })
    }

    pub(crate) fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// The bound cluster port.
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

fn bind(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), ClusterError> {
    let failed = |source| ClusterError::Listen { address: wanted, source };
    let listener = TcpListener::bind(wanted).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Until it is to stop; then as long as farewells may take.
async fn run(mesh: &Arc<Mesh>, listener: Option<TcpListener>) {
    for address in mesh.config.dialled() {
        mesh.dial(address, true);
    }
    match listener.map(tokio::net::TcpListener::from_std).transpose() {
        Err(error) => tracing::error!(%error, "failed to serve the cluster port"),
        Ok(listener) => tokio::select! {
            () = mesh.stop.cancelled() => {}
            () = tend(mesh) => {}
            () = async {
                match listener {
                    Some(listener) => listen::serve(Arc::clone(mesh), listener).await,
                    None => std::future::pending().await,
                }
            } => {}
        },
    }
    mesh.tasks.close();
    // Those that don't make it are cut off with the runtime.
    let _ = timeout(mesh.config.timing.farewell, mesh.tasks.wait()).await;
}

/// Does what is due now and then.
async fn tend(mesh: &Mesh) {
    let timing = &mesh.config.timing;
    let mut looks = interval((timing.keep / 8).clamp(Duration::from_millis(5), Duration::from_secs(1)));
    let mut said = tokio::time::Instant::now();
    loop {
        looks.tick().await;
        mesh.give_up_the_lost();
        mesh.end_lingering();
        if said.elapsed() >= timing.resync {
            said = tokio::time::Instant::now();
            mesh.resync();
            mesh.gossip();
        }
    }
}

impl Mesh {
    /// Tells all peers that this instance lets nobody in any more, and will go.
    pub(crate) fn drain(&self) {
        self.tell_all(0, &encode(Kind::Drain, 0, b"", b""));
    }

    /// Peers that there is a link with.
    pub(crate) fn members(&self) -> Vec<ClusterPeer> {
        self.told()
    }

    /// Secures new links with other files; those that there are stay as they are.
    pub(crate) fn reload_tls(&self, files: &TlsFiles) -> Result<(), ClusterError> {
        let mut tls = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        if tls.is_none() {
            return Err(ClusterError::Plain);
        }
        *tls = Some(Arc::new(Tls::load(files)?));
        Ok(())
    }

    /// Takes the publications that no peer got, the last thousand of them.
    pub(crate) fn dead_letters(&self) -> Vec<ClusterLetter> {
        self.letters.take()
    }
}
