//! The methods of `RustWSEServer` that connect it with the other processes of its cluster.

use std::path::PathBuf;

use pyo3::{
    exceptions::{PyOSError, PyRuntimeError, PyValueError},
    prelude::*,
    types::PyDict,
};
use wse_engine::{ClusterConfig, ClusterError, ClusterSecret, TlsFiles};

use crate::{arguments, server::RustWSEServer};

#[pymethods]
impl RustWSEServer {
    /// Makes this server part of a cluster: publications reach every server with subscribers. Returns when the cluster
    /// port is bound; connections to peers are made in the background.
    ///
    /// `peers` are the cluster ports of other servers (`HOST:PORT`); `seeds` are some servers that report the others.
    /// TLS takes all three files or none. Without TLS, `cluster_secret` (32 bytes or more, the same for all servers)
    /// admits only servers that know it; without both, links are possible on this machine only.
    ///
    /// Raises RuntimeError if the server is connected already or was not started, ValueError if an address, a file or
    /// the secret is refused, and OSError if the port can't be bound.
    // The arguments and their order are the reference's; the secret is ours.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (
        peers, tls_cert = None, tls_key = None, tls_ca = None, cluster_port = None, seeds = None, cluster_addr = None,
        cluster_secret = None,
    ))]
    fn connect_cluster(
        &self,
        py: Python<'_>,
        peers: Vec<String>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        cluster_port: Option<i64>,
        seeds: Option<Vec<String>>,
        cluster_addr: Option<String>,
        cluster_secret: Option<Secret>,
    ) -> PyResult<()> {
        let config = ClusterConfig {
            peers,
            seeds: seeds.unwrap_or_default(),
            port: cluster_port.map(|port| arguments::port("cluster_port", port)).transpose()?,
            address: cluster_addr,
            tls: TlsFiles::choose(tls_cert, tls_key, tls_ca, environment).map_err(to_exception)?,
            secret: secret(cluster_secret).map_err(to_exception)?,
            ..ClusterConfig::default()
        };
        let running = self.started()?;
        py.detach(|| running.server.connect_cluster(config)).map_err(to_exception)
    }

    /// Whether there is a link with at least one other server.
    fn cluster_connected(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.cluster_peers_count(py)? > 0)
    }

    /// The number of servers with which there is a link.
    fn cluster_peers_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| py.detach(|| running.server.cluster_peers().len())))
    }

    /// The linked servers, each as a dict of `address`, `instance_id`, `capabilities` (bits) and `connected_at`
    /// (milliseconds).
    ///
    /// Raises RuntimeError before the first start.
    fn cluster_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.started()?;
        let peers = py.detach(|| running.server.cluster_peers());
        running.decoded(py, &serde_json::to_vec(&peers).expect("peers are strings"))
    }

    /// Uses other TLS files for new links. Existing links are kept.
    ///
    /// Raises RuntimeError without a cluster or without TLS, and ValueError if the files are refused (the old ones stay
    /// in use).
    fn reload_cluster_tls(&self, py: Python<'_>, cert: PathBuf, key: PathBuf, ca: PathBuf) -> PyResult<()> {
        let running = self.started()?;
        let files = TlsFiles { certificate: cert, key, authority: ca };
        py.detach(|| running.server.reload_cluster_tls(&files)).map_err(to_exception)
    }

    /// Removes and returns the last publications (at most 1000) that a peer didn't receive, each as a dict of `topic`,
    /// `payload`, `peer_addr` and `error`.
    fn get_cluster_dlq_entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let Some(running) = self.running()? else { return Ok(Vec::new()) };
        let dead_letters = py.detach(|| running.server.cluster_dead_letters());
        let entry = |dead_letter: wse_engine::ClusterDeadLetter| {
            let entry = PyDict::new(py);
            entry.set_item("topic", dead_letter.topic)?;
            entry.set_item("payload", dead_letter.payload)?;
            entry.set_item("peer_addr", dead_letter.peer)?;
            entry.set_item("error", dead_letter.reason)?;
            Ok(entry)
        };
        dead_letters.into_iter().map(entry).collect()
    }

    /// The cluster port that is bound; None without one.
    #[getter]
    fn cluster_port(&self, py: Python<'_>) -> PyResult<Option<u16>> {
        let Some(running) = self.running()? else { return Ok(None) };
        Ok(py.detach(|| running.server.cluster_address()).map(|address| address.port()))
    }
}

/// A secret as Python code gives it: as text or as bytes.
#[derive(FromPyObject)]
enum Secret {
    Text(String),
    Bytes(Vec<u8>),
}

/// The secret as given, or else the one in `WSE_CLUSTER_SECRET`. An empty variable is not a secret.
fn secret(given: Option<Secret>) -> Result<Option<ClusterSecret>, ClusterError> {
    let bytes = match given {
        Some(Secret::Text(text)) => Some(text.into_bytes()),
        Some(Secret::Bytes(bytes)) => Some(bytes),
        None => environment("WSE_CLUSTER_SECRET").map(|value| value.into_os_string().into_encoded_bytes()),
    };
    Ok(bytes.map(|bytes| ClusterSecret::new(&bytes)).transpose()?)
}

fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The Python exception for a cluster error: `OSError` from the kernel, `RuntimeError` where the server's state is
/// wrong, `ValueError` where an argument is. The reference raises the same classes.
fn to_exception(error: ClusterError) -> PyErr {
    let text = error.to_string();
    match &error {
        ClusterError::Listen { source, .. } | ClusterError::Resource { source, .. } => source
            .raw_os_error()
            .map_or_else(|| PyOSError::new_err(text.clone()), |code| PyOSError::new_err((code, text.clone()))),
        ClusterError::Connected
        | ClusterError::NotConnected
        | ClusterError::Stopped
        | ClusterError::NoAddress
        | ClusterError::WithoutTls => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}
