//! Draining: a server that admits no more clients and closes the connections that it has.

use std::sync::{Arc, atomic::Ordering};

use super::Server;
use crate::{
    farewell::{Farewell, FarewellError},
    outbound::Command,
};

impl Server {
    /// Admits no more clients, and closes all connections after what waits for them was sent. Returns at once. A client
    /// that hasn't left when `farewell.patience` is over is disconnected. [`Server::stop`] ends the rest.
    ///
    /// # Errors
    /// Returns a [`FarewellError`] if a Close frame can't carry the code or the reason. Nothing has happened then.
    pub fn drain(&self, farewell: Farewell) -> Result<(), FarewellError> {
        farewell.check()?;
        tracing::info!(address = %self.address, code = farewell.code, "draining");
        self.shared.draining.store(true, Ordering::SeqCst);
        if let Some(cluster) = self.instance.cluster.get() {
            cluster.drain();
        }
        let farewell = Arc::new(farewell);
        for mailbox in &self.shared.mailboxes {
            mailbox.put_now(Command::Drain(Arc::clone(&farewell)));
        }
        Ok(())
    }
}
