//! The extension `permessage-deflate` on the client's side (RFC 7692): what is offered, what the service's response makes of
//! it, and the compression of messages. Pure.
//!
//! A service decides how many bytes a message has when it is inflated, so that number is bounded here and not by what was
//! received. Without an offer nothing of this is used.

mod connection;
mod negotiation;
mod stream;

pub use negotiation::{DeflateOffer, Negotiated, Unacceptable};
pub use stream::{Deflater, Inflater, Uninflatable};

pub(crate) use connection::{Deflate, Shared};
