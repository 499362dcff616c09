//! The inference benchmark: requests in a closed loop, or at times fixed in advance.
//!
//! [`options`] says what to do, [`answer`] what to send and what has to come back, [`client`] sends one request over
//! HTTP/1.1 or HTTP/2, [`load`] decides when, [`report`] is what comes out.

mod answer;
mod client;
mod load;
mod options;
mod report;

pub use load::run;
pub use options::Options;
pub use report::{ErrorCounts, Latencies, Mode, Report};
