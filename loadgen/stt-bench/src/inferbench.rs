//! The inference benchmark: requests in a closed loop, or at times fixed in advance.
//!
//! `options` is the command line, `load` decides when requests are sent, `client` sends one over HTTP/1.1 or
//! HTTP/2, `answer` has the request's body and the expected response, `report` is the output.

mod client;
mod load;
mod options;
mod report;
mod response;

pub use load::run;
pub use options::Options;
pub use report::{ErrorCounts, Latencies, Mode, Report};
