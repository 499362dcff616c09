//! Draining: a server that admits no more clients and closes the connections that it has.

use std::sync::{Arc, atomic::Ordering};

use super::Server;
use crate::{
    close_handshake::{CloseHandshake, CloseHandshakeError},
    outbound::Command,
};

impl Server {
    /// Admits no more clients, and closes all connections after what waits for them was sent. Returns at once. A client
    /// that hasn't left when `close_handshake.timeout` is over is disconnected. [`Server::stop`] ends the rest.
    ///
    /// # Errors
    /// Returns a [`CloseHandshakeError`] if a Close frame can't carry the code or the reason. Nothing has happened then.
    pub fn drain(&self, close_handshake: CloseHandshake) -> Result<(), CloseHandshakeError> {
        close_handshake.check()?;
        tracing::info!(address = %self.address, code = close_handshake.code, "draining");
        self.shared.draining.store(true, Ordering::SeqCst);
        if let Some(cluster) = self.instance.cluster.get() {
            cluster.drain();
        }
        let close_handshake = Arc::new(close_handshake);
        for mailbox in &self.shared.mailboxes {
            mailbox.put_now(Command::Drain(Arc::clone(&close_handshake)));
        }
        Ok(())
    }
}
