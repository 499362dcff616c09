//! The contract between a service and ws-ladder, as types. `services/README.md` describes it.
//!
//! A service in Rust may use these types; a service in another language serves the same JSON. This crate depends on no
//! crate of the harness, so that no service does.
//!
//! | module | where a service publishes it |
//! | --- | --- |
//! | [`ready`] | the JSON line on standard output when the service is ready |
//! | [`stats`] | `GET /stats` |
//! | [`connections`] | `GET /stats/connections` |
//! | [`publisher`] | `GET /stats/publisher` |
//! | [`links`] | `GET /stats/links` |
//! | [`processes`] | `GET /stats/processes` |
//! | [`metrics`] | `GET /metrics`: the names; [`exposition`]: the format |

pub mod connections;
pub mod exposition;
pub mod links;
pub mod metrics;
pub mod processes;
pub mod publisher;
pub mod ready;
pub mod stats;

pub use crate::{
    connections::{ConnectionBook, ConnectionBooks},
    exposition::{Exposition, Histogram, Number},
    links::{LinkStats, LinksStats},
    metrics::{GatewayMetrics, Labels, Ticks},
    processes::{ProcessStats, ProcessesStats},
    publisher::PublisherStats,
    ready::Started,
    stats::{ApplicationStats, ByteStats, ConnectionStats, InferenceStats, MessageStats, ServiceStats},
};
