//! A simulator of speech-to-text inference. Its results are exact, and its response times are modelled and seeded.
//!
//! A request passes through these modules: [`connection`] accepts it over HTTP/1.1 or HTTP/2, [`routes`] checks and
//! numbers it, [`latency`] and [`faults`] determine when and how it is answered, [`gather`] collects it with others for
//! a computing thread, [`lanes`] computes the checksums of all of them at once, [`compute`] the rest, and [`metrics`]
//! counts it. [`config`] has the settings, whose numbers [`values`] parses; [`random`] generates the random numbers.

mod compute;
mod config;
mod connection;
mod faults;
mod gather;
mod lanes;
mod latency;
mod metrics;
mod random;
mod routes;
mod values;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::Context;
use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use service_contract::Started;
use tokio::net::TcpListener;

use crate::routes::Simulator;
pub use crate::{
    compute::{Audio, InferenceResult, OddLength, checksum, infer},
    config::Config,
    faults::{Fault, FaultPlan, Faults},
    lanes::{Chain, LANES, Lanes},
    latency::Model,
};

/// Longest time that requests in flight may take after the signal to stop.
const GRACE: Duration = Duration::from_secs(4);

/// The simulator's routes as a router, for callers that serve it in another way.
pub fn app(config: &Config) -> anyhow::Result<Router> {
    Ok(routes::router(Arc::new(Simulator::new(config)?)))
}

/// A simulator that listens but doesn't accept connections yet.
pub struct Service {
    listener: TcpListener,
    address: SocketAddr,
    simulator: Arc<Simulator>,
}

impl Service {
    /// Listens at the configured address.
    pub fn bind(config: &Config) -> anyhow::Result<Self> {
        let simulator = Arc::new(Simulator::new(config)?);
        let requested_address = SocketAddr::new(config.host, config.port);
        let listener = connection::listen(requested_address)
            .with_context(|| format!("failed to listen on {requested_address} (--host, --port); is it in use?"))?;
        let address = listener.local_addr().context("failed to read the address that the kernel picked")?;
        Ok(Self { listener, address, simulator })
    }

    /// The content of the ready line. All routes are on one port.
    pub fn started(&self) -> Started {
        let address = self.address.to_string();
        Started { event: "ready".into(), metrics_address: address.clone(), address, pid: std::process::id() }
    }

    /// Serves until `stop` completes, and then until the requests in flight have ended, for at most four seconds.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let router = routes::router(self.simulator.clone());
        tokio::select! {
            () = connection::accept(&self.listener, router, self.simulator.clone(), &graceful) => {}
            () = stop => {}
        }
        self.simulator.accepting.store(false, Relaxed);
        drop(self.listener);
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            eprintln!("requests were still in flight {GRACE:?} after the signal to stop; they are dropped");
        }
    }
}
