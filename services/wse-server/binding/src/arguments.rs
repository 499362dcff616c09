//! Checks the constructor's arguments and converts Python's strings and integers into types of the engine. Each error
//! names the argument, its value and what is allowed.

use std::{net::IpAddr, time::Duration};

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_engine::{Delivery, InboundOverflow, RateLimit};

/// An IP address. `localhost` means 127.0.0.1; other host names are refused.
pub(crate) fn address(name: &str, value: &str) -> PyResult<IpAddr> {
    let literal = if value == "localhost" { "127.0.0.1" } else { value };
    literal
        .parse()
        .map_err(|_| PyValueError::new_err(format!("{name} is {value:?}: give an IP address or 'localhost'")))
}

/// A TCP port. With 0 the kernel chooses a free one.
pub(crate) fn port(name: &str, value: i64) -> PyResult<u16> {
    u16::try_from(value).map_err(|_| PyValueError::new_err(format!("{name} is {value}: give 0 to 65535")))
}

/// A count or a number of bytes; it must not be negative.
pub(crate) fn size(name: &str, value: i64) -> PyResult<usize> {
    usize::try_from(value).map_err(|_| PyValueError::new_err(format!("{name} is {value}: it must not be negative")))
}

/// A duration in whole seconds.
pub(crate) fn seconds(name: &str, value: i64) -> PyResult<Duration> {
    Ok(Duration::from_secs(size(name, value)? as u64))
}

/// A duration in whole milliseconds.
pub(crate) fn milliseconds(name: &str, value: i64) -> PyResult<Duration> {
    Ok(Duration::from_millis(size(name, value)? as u64))
}

/// The policy for a connection whose messages find no room. `backpressure` and `drop` are the older names of `wait` and
/// `drop_newest`.
pub(crate) fn overflow(value: &str) -> PyResult<InboundOverflow> {
    match value {
        "wait" | "backpressure" => Ok(InboundOverflow::Backpressure),
        "drop_newest" | "drop" => Ok(InboundOverflow::Drop),
        "drop_oldest" => Ok(InboundOverflow::DropOldest),
        "disconnect" => Ok(InboundOverflow::Disconnect),
        _ => Err(PyValueError::new_err(format!(
            "inbound_overflow is {value:?}: give 'wait', 'drop_oldest', 'drop_newest' or 'disconnect'"
        ))),
    }
}

/// A rate limit on inbound messages; with 0 for both values there is none.
pub(crate) fn inbound_rate_limit(capacity: f64, refill_per_second: f64) -> Option<RateLimit> {
    (capacity != 0.0 || refill_per_second != 0.0).then_some(RateLimit { capacity, refill_per_second })
}

/// The destination of inbound messages: `queue`, `discard` or `echo`.
pub(crate) fn delivery(value: &str) -> PyResult<Delivery> {
    match value {
        "queue" => Ok(Delivery::Queue),
        "discard" => Ok(Delivery::Discard),
        "echo" => Ok(Delivery::Echo),
        _ => Err(PyValueError::new_err(format!("delivery is {value:?}: give 'queue', 'discard' or 'echo'"))),
    }
}
