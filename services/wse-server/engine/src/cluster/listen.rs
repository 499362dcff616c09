//! The cluster port: accepts connections. The number of pending handshakes and their time are limited.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    counters::RefuseReason,
    join::{self, Refused},
    mesh::Mesh,
};

/// The most connections that haven't sent their hello. One more closes the oldest of them.
const MAXIMAL_PENDING: usize = 64;
/// The pause after a failed accept, which is due to a lack of descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections until the future is dropped.
pub(super) async fn serve(mesh: Arc<Mesh>, listener: TcpListener) {
    let mut pending: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "failed to accept on the cluster port");
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        pending.retain(|handshake_task| !handshake_task.is_finished());
        if pending.len() >= MAXIMAL_PENDING {
            pending.pop_front().inspect(AbortHandle::abort);
            mesh.counters.refuse(RefuseReason::Crowded);
        }
        pending.push_back(mesh.tasks.spawn(receive(Arc::clone(&mesh), stream)).abort_handle());
    }
}

async fn receive(mesh: Arc<Mesh>, stream: TcpStream) {
    let late = |_| Err(Refused::new(RefuseReason::Timeout, "no hello within the handshake timeout"));
    let joined = timeout(mesh.config.timing.handshake, join::accepted(&mesh, stream)).await;
    if let Err(Refused { reason, detail }) = joined.unwrap_or_else(late) {
        mesh.counters.refuse(reason);
        tracing::debug!(reason = reason.label(), detail, "a connection to the cluster port was refused");
    }
}
