//! What a family of services adds to the generator: how to get in, what to say, and how to read the answers.
//!
//! A load thread is compiled for one workload, so none of these calls is dynamic. The generator numbers the messages
//! of each connection from 0; the workload turns number `n` into the sequence number `first_sequence() + n`.

use std::net::IpAddr;

pub use crate::frame::Opcode;

/// How a family of services is spoken to.
pub trait Workload: Send + Sync + 'static {
    /// Composes messages; each thread has its own.
    type Messages: Messages;

    /// Path and query of the upgrade request.
    fn path(&self) -> String;

    /// Headers of the upgrade request beyond those of RFC 6455.
    fn headers(&self) -> Vec<(String, String)>;

    /// Addresses of this machine to connect from, each until its ports are used up; none leaves the choice to the kernel.
    fn source_addresses(&self) -> &[IpAddr] {
        &[]
    }

    /// Looks at a message that arrived before the connection was ready.
    fn admit(&self, opcode: Opcode, payload: &[u8]) -> Admission;

    /// A text message sent as soon as the connection is ready; it is not numbered.
    fn greeting(&self) -> Option<&[u8]>;

    /// A text message that keeps an idle connection alive; it is not numbered.
    fn keepalive(&self) -> Option<&[u8]>;

    /// A composer for one thread.
    fn messages(&self) -> Self::Messages;

    /// Sequence number of a connection's first message.
    fn first_sequence(&self) -> u64;

    /// How many messages a connection can carry before its numbers no longer fit.
    fn most_messages(&self) -> u64;

    /// Whether each message is answered. Without replies a message is settled when the socket has taken it.
    fn expects_replies(&self) -> bool;

    /// Whether the service's application sees the sequence numbers, so that their sum can be compared.
    fn application_sums(&self) -> bool;

    /// What a message of a ready connection is. Not called for workloads without replies.
    fn classify(&self, opcode: Opcode, payload: &[u8]) -> Received;

    /// What a text message is to somebody who receives what a service publishes. Called only where a workload does so,
    /// millions of times per second.
    #[inline]
    fn delivery(&self, _payload: &[u8]) -> Delivery {
        Delivery::Other
    }
}

/// What a message is to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A published one.
    Published {
        /// Its number; each has one more than the one before.
        sequence: u64,
        /// When it was due to be published, in Unix microseconds.
        due_unix_us: u64,
    },
    /// Something else: a greeting, a ping.
    Other,
    /// A published one without a number or a time.
    Wrong,
}

/// Composes numbered messages.
pub trait Messages: Send {
    /// Text or binary.
    fn opcode(&self) -> Opcode;

    /// The payload of the message with this sequence number. `unix_us` is the wall clock in microseconds, as precise
    /// as the caller has it.
    fn payload(&mut self, sequence: u64, unix_us: u64) -> &[u8];
}

/// What a message says about getting in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing yet.
    Waiting,
    /// The connection is ready.
    Ready {
        /// The id that the service gave it; empty when it gives none.
        connection_id: String,
    },
    /// The service doesn't let us in.
    Refused(String),
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The answer to the message with this sequence number.
    Reply {
        /// The number.
        sequence: u64,
    },
    /// Something that needs no answer and answers nothing.
    Other,
    /// An answer that is wrong.
    Wrong,
}
