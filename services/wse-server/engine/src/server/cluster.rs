//! The cluster's part of the server's API.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError},
};

use super::{Instance, Pages, Server};
use crate::{
    cluster::{Cluster, ClusterConfig, ClusterDeadLetter, ClusterError, ClusterPeer, Mesh, TlsFiles},
    links::LinkStats,
    stats::ClusterHealth,
};

impl Instance {
    pub(super) fn cluster_health(&self) -> ClusterHealth {
        self.cluster.get().map(|mesh| ClusterHealth::from(&mesh.stats())).unwrap_or_default()
    }
}

impl Server {
    /// Joins a cluster: listens on the cluster port, if one is configured, and connects to the other instances, again
    /// whenever a link is lost. From now on publications reach their subscribers there. A server can join only once.
    ///
    /// # Errors
    /// Returns a [`ClusterError`] if the configuration is invalid, the port can't be listened on, the TLS files can't
    /// be used, the server has stopped, or it has joined a cluster already.
    pub fn connect_cluster(&self, config: ClusterConfig) -> Result<(), ClusterError> {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_running() {
            return Err(ClusterError::Stopped);
        }
        if self.instance.cluster.get().is_some() {
            return Err(ClusterError::Connected);
        }
        let started = Cluster::start(&self.shared, config)?;
        // It can't have been set meanwhile, as only this method sets it, under the lock above.
        let _ = self.instance.cluster.set(Arc::clone(started.mesh()));
        *cluster = Some(started);
        Ok(())
    }

    /// The address of the cluster port; `None` if this instance listens on none.
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.address()
    }

    /// The peers: instances that this one has a link with.
    pub fn cluster_peers(&self) -> Vec<ClusterPeer> {
        self.instance.cluster.get().map(|mesh| mesh.members()).unwrap_or_default()
    }

    /// The counters of publications to and from other instances.
    pub fn link_stats(&self) -> LinkStats {
        self.instance.links()
    }

    /// Takes the dead letters of the cluster: the last thousand publications that a peer did not get.
    pub fn cluster_dead_letters(&self) -> Vec<ClusterDeadLetter> {
        self.instance.cluster.get().map(|mesh| mesh.dead_letters()).unwrap_or_default()
    }

    /// Uses other TLS files for new links; existing links stay as they are.
    ///
    /// # Errors
    /// Returns a [`ClusterError`] if the files can't be used (the old identity stays), if there is no cluster, or if it
    /// uses no TLS.
    pub fn reload_cluster_tls(&self, files: &TlsFiles) -> Result<(), ClusterError> {
        let mesh: &Arc<Mesh> = self.instance.cluster.get().ok_or(ClusterError::NotConnected)?;
        mesh.reload_tls(files)
    }
}
