//! The lame duck: a server that lets nobody in any more and tells everyone inside to go.

use std::sync::{Arc, atomic::Ordering};

use super::Server;
use crate::{
    farewell::{Farewell, FarewellError},
    outbound::Command,
};

impl Server {
    /// Lets nobody in any more and closes all connections, behind what waits for them. Returns at once; a client that hasn't
    /// gone when its time is over is cut off. [`Server::stop`] ends the rest.
    ///
    /// # Errors
    /// A code or a reason that no close frame can carry; then nothing has happened.
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
