//! Selects the code for a load: the program of the side that accepts, that of the side that connects, and the figures.
//!
//! Input: an [`Order`] on standard input, from the parent process that measures both sides.

use std::num::NonZeroU64;

use anyhow::Context;
use loadgen_core::preflight::raise_open_files;
use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::set_current_timer_slack,
};

use crate::{
    echo, fanout,
    figure::Figure,
    flood, handshake, idle,
    load::Load,
    processes::Measured,
    side::{
        LoadSide, Order, SideReply, check_descriptors, pin, read_command, run_commands, send_reply,
        wait_for_end_of_input,
    },
    sockets::{Listening, SocketAddr},
};

/// Runs one side of a load.
///
/// # Errors
/// An error if standard input has no valid order. Failures of the load itself are reported to the parent process.
pub fn serve() -> anyhow::Result<()> {
    let order: Order = read_command()?;
    match prepare(&order).and_then(run_commands) {
        // Holding the value keeps its connections open.
        Ok(_side) => wait_for_end_of_input(),
        Err(error) => {
            send_reply(&SideReply::Failed(format!("{error:#}")))?;
            wait_for_end_of_input()
        }
    }
}

fn prepare(order: &Order) -> anyhow::Result<Box<dyn LoadSide>> {
    // A parent that is killed can't stop its processes.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("failed to request that this side ends with its parent")?;
    check_descriptors(order.load.connections(), raise_open_files())?;
    if let Some(cpu) = order.cpu {
        pin(cpu)?;
    }
    // The default slack of 50 us would delay every due time by that much.
    set_current_timer_slack(NonZeroU64::new(1)).context("failed to set the timer slack")?;
    let load = order.load.clone();
    let (side, address) = match order.address {
        Some(address) => (load.client(address), None),
        None => {
            let listening = load.listen()?;
            let address = listening.address();
            (load.server(listening), Some(address))
        }
    };
    send_reply(&SideReply::Started(address))?;
    Ok(side)
}

impl Load {
    /// Creates the listener that this load needs.
    ///
    /// # Errors
    /// The kernel's error if the socket can't be opened or bound.
    pub fn listen(&self) -> anyhow::Result<Listening> {
        match self {
            Self::Handshake(_) => Listening::deferred(),
            _ => Listening::plain(),
        }
    }

    /// Creates the side that accepts.
    pub fn server(self, listening: Listening) -> Box<dyn LoadSide> {
        match self {
            Self::Flood(flood) => Box::new(flood::Reader::new(flood, listening)),
            Self::Echo(echo) => Box::new(echo::EchoServer::new(echo, listening)),
            Self::Handshake(handshake) => Box::new(handshake::HandshakeResponder::new(handshake, listening)),
            Self::Idle(idle) => Box::new(idle::Holder::accepting(idle, listening)),
            Self::Fanout(fanout) => Box::new(fanout::Publisher::new(fanout, listening)),
        }
    }

    /// Creates the side that connects.
    pub fn client(self, address: SocketAddr) -> Box<dyn LoadSide> {
        match self {
            Self::Flood(flood) => Box::new(flood::Writer::new(flood, address)),
            Self::Echo(echo) => Box::new(echo::EchoClient::new(echo, address)),
            Self::Handshake(handshake) => Box::new(handshake::Opener::new(handshake, address)),
            Self::Idle(idle) => Box::new(idle::Holder::connecting(idle, address)),
            Self::Fanout(fanout) => Box::new(fanout::Subscriber::new(fanout, address)),
        }
    }

    /// Computes the figures from the readings of both sides.
    pub fn figures(&self, measured: &Measured) -> Vec<Figure> {
        match self {
            Self::Flood(flood) => flood::figures(flood, measured),
            Self::Echo(_) => echo::figures(measured),
            Self::Handshake(_) => handshake::figures(measured),
            Self::Idle(idle) => idle::figures(idle, measured),
            Self::Fanout(_) => fanout::figures(measured),
        }
    }
}
