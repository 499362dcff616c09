//! Checks before the load: the machine's limits, and whether the service accepts one connection.

mod machine;

use std::{net::TcpStream, time::Duration};

use anyhow::Context;
use bench_format::{
    plan::{Load, Message},
    trial::{Assignment, TrialId},
};
use loadgen_core::{connect::resolve, trial::ImmediateGate};

pub use self::machine::{Check, Machine, Need};
use crate::{protocol::Access, workloads::Workload};

/// Longest wait for the TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks whether the publishing one of two instances listens.
///
/// # Errors
/// When the address can't be resolved or nothing listens there; the error says which flag to use.
pub fn check_publisher(address: &str) -> anyhow::Result<()> {
    TcpStream::connect_timeout(&resolve(address)?, CONNECT_TIMEOUT).map(drop).with_context(|| {
        format!("no instance that publishes listens at {address}: start it there, or give its port with --port")
    })
}

/// Opens one connection and closes it again.
///
/// # Errors
/// When it can't be opened; the error lists the reasons.
pub fn check_connectivity(address: &str, access: &Access) -> anyhow::Result<()> {
    let assignment = Assignment {
        run: "connectivity".into(),
        trial: TrialId {
            service: bench_format::Name::from_static("service"),
            workload: bench_format::Name::from_static(Workload::ConnectionStorm.name()),
            variant: bench_format::Name::from_static("connectivity"),
            tier: 1,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: address.into(),
        connections: 1,
        first_connection: 0,
        seed: 0,
        load: Load::Closed { messages_per_connection: None, in_flight: 1 },
        message: Message::default(),
        warmup_ns: 0,
        window_ns: 16_000_000_000,
        drain_ns: 1_000_000_000,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: false,
    };
    let result = Workload::ConnectionStorm.run(&assignment, access, &mut ImmediateGate)?;
    if result.connections.open == 1 {
        return Ok(());
    }
    let reasons: Vec<_> = result.connections.failed.into_keys().collect();
    anyhow::bail!("failed to open a connection to {address}: {}", reasons.join(", "))
}
