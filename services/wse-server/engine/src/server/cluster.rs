//! The cluster, as the owner of a server sees it.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError},
};

use super::{Instance, Pages, Server};
use crate::{
    cluster::{Cluster, ClusterConfig, ClusterError, ClusterLetter, ClusterPeer, Mesh, TlsFiles},
    links::LinkStats,
    stats::ClusterHealth,
};

impl Instance {
    pub(super) fn cluster_health(&self) -> ClusterHealth {
        self.cluster.get().map(|mesh| ClusterHealth::from(&mesh.stats())).unwrap_or_default()
    }
}

impl Server {
    /// Becomes part of a cluster: listens on the cluster port, if it has one, and dials the others, now and whenever a link
    /// is gone. Publications go to whoever wants them there from now on. Once in a server's life.
    ///
    /// # Errors
    /// A configuration that makes no sense, a port that can't be listened on, files that are no identity; or it is part of
    /// one already.
    pub fn connect_cluster(&self, config: ClusterConfig) -> Result<(), ClusterError> {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_running() {
            return Err(ClusterError::Stopped);
        }
        if self.instance.cluster.get().is_some() {
            return Err(ClusterError::Connected);
        }
        let started = Cluster::start(&self.shared, config)?;
        // Only here, with the lock above.
        let _ = self.instance.cluster.set(Arc::clone(started.mesh()));
        *cluster = Some(started);
        Ok(())
    }

    /// Where the cluster port listens, if there is one.
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.address()
    }

    /// The instances that there is a link with.
    pub fn cluster_peers(&self) -> Vec<ClusterPeer> {
        self.instance.cluster.get().map(|mesh| mesh.members()).unwrap_or_default()
    }

    /// What went to other instances and came from them.
    pub fn link_stats(&self) -> LinkStats {
        self.instance.links()
    }

    /// Takes the publications that no peer got, the last thousand of them.
    pub fn cluster_dead_letters(&self) -> Vec<ClusterLetter> {
        self.instance.cluster.get().map(|mesh| mesh.dead_letters()).unwrap_or_default()
    }

    /// Secures new links with other files; those that there are stay as they are.
    ///
    /// # Errors
    /// Files that are no identity: the old one stays. There is no cluster, or it is a plain one.
    pub fn reload_cluster_tls(&self, files: &TlsFiles) -> Result<(), ClusterError> {
        let mesh: &Arc<Mesh> = self.instance.cluster.get().ok_or(ClusterError::NotConnected)?;
        mesh.reload_tls(files)
    }
}
