//! Checks the constructor's arguments and converts Python's strings and integers into types of the engine. Each error
//! names the argument, its value and what is allowed.

use std::{net::IpAddr, time::Duration};

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_engine::{Delivery, InboundOverflow};

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

/// The policy for a full inbound queue: `backpressure` or `drop`.
pub(crate) fn overflow(value: &str) -> PyResult<InboundOverflow> {
    match value {
        "backpressure" => Ok(InboundOverflow::Backpressure),
        "drop" => Ok(InboundOverflow::Drop),
        _ => Err(PyValueError::new_err(format!("inbound_overflow is {value:?}: give 'backpressure' or 'drop'"))),
    }
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
