//! SIGINT and SIGTERM. A received signal is remembered, so that a later check still sees it.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::live;

/// The signal that asked ladder to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, usually from Ctrl-C.
    Interrupt,
    /// SIGTERM, usually from a supervisor.
    Terminate,
}

impl StopSignal {
    /// The exit code for the signal: 128 plus the signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Whether a signal asked ladder to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Option<StopSignal>>);

impl Stop {
    /// Starts to listen for signals. A second signal ends the process at once; its children die with it.
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn listen() -> io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let observed = tokio::select! {
                    _ = interrupt.recv() => StopSignal::Interrupt,
                    _ = terminate.recv() => StopSignal::Terminate,
                };
                if sender.send_replace(Some(observed)).is_some() {
                    live::remove();
                    std::process::exit(observed.exit_code().into());
                }
            }
        });
        Ok(Self(receiver))
    }

    /// A stop request that a test sets by hand.
    pub fn from_channel(receiver: watch::Receiver<Option<StopSignal>>) -> Self {
        Self(receiver)
    }

    /// The signal that asked ladder to stop; `None` if there was none.
    pub fn observed(&self) -> Option<StopSignal> {
        *self.0.borrow()
    }

    /// Waits for a signal.
    pub async fn wait(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // The sender is gone, so no signal can come any more.
            std::future::pending::<()>().await;
        }
    }
}
