//! SIGINT and SIGTERM, remembered: whoever looks later still sees that we were asked to stop.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Which signal asked us to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// A supervisor.
    Terminate,
}

impl StopSignal {
    /// The exit code that says so: 128 plus the signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Whether somebody asked us to stop.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Option<StopSignal>>);

impl Stop {
    /// Listens from now on. A second signal ends the process at once; its children die with it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn listen() -> io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let seen = tokio::select! {
                    _ = interrupt.recv() => StopSignal::Interrupt,
                    _ = terminate.recv() => StopSignal::Terminate,
                };
                if sender.send_replace(Some(seen)).is_some() {
                    std::process::exit(seen.exit_code().into());
                }
            }
        });
        Ok(Self(receiver))
    }

    /// One that a test pulls by hand.
    pub fn from_channel(receiver: watch::Receiver<Option<StopSignal>>) -> Self {
        Self(receiver)
    }

    /// The signal that asked us to stop, if any did.
    pub fn seen(&self) -> Option<StopSignal> {
        *self.0.borrow()
    }

    /// Waits until we are asked to stop.
    pub async fn wait(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }
}
