//! What a protocol adds to the generator: the upgrade request, the messages, and how to read replies.
//!
//! A load thread is compiled for one workload, so no call is dynamic. The generator numbers the messages of each
//! connection from 0; message `n` has the sequence number `first_sequence() + n`.

use std::net::IpAddr;

pub use crate::frame::Opcode;

/// The rules of one protocol and workload.
pub trait Workload: Send + Sync + 'static {
    /// The composer of messages; each thread has its own.
    type Messages: Messages;

    /// Path and query of the upgrade request.
    fn path(&self) -> String;

    /// Headers of the upgrade request beyond those of RFC 6455.
    fn headers(&self) -> Vec<(String, String)>;

    /// Source addresses on this machine, each used until its ports run out. Empty means that the kernel chooses.
    fn source_addresses(&self) -> &[IpAddr] {
        &[]
    }

    /// Reads a message that arrived before the connection was ready.
    fn admit(&self, opcode: Opcode, payload: &[u8]) -> Admission;

    /// A text message to send as soon as the connection is ready; it has no sequence number.
    fn first_message(&self) -> Option<&[u8]>;

    /// A text message that keeps an idle connection open; it has no sequence number.
    fn keepalive(&self) -> Option<&[u8]>;

    /// Creates the composer of one thread.
    fn messages(&self) -> Self::Messages;

    /// Sequence number of a connection's first message.
    fn first_sequence(&self) -> u64;

    /// Number of messages that a connection can send before the sequence number no longer fits its field.
    fn most_messages(&self) -> u64;

    /// Whether each message gets a reply. Without replies, a message is settled when the socket has accepted it.
    fn expects_replies(&self) -> bool;

    /// Whether the service's application reads the sequence numbers, so that their sums can be compared.
    fn application_sums(&self) -> bool;

    /// Classifies a message on a ready connection. It isn't called for workloads without replies.
    fn classify(&self, opcode: Opcode, payload: &[u8]) -> Received;

    /// Classifies a text message on a connection that receives what a service publishes. It is called only for such
    /// workloads, millions of times per second.
    #[inline]
    fn delivery(&self, _payload: &[u8]) -> Delivery {
        Delivery::Other
    }
}

/// The kind of a message on a connection that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A published message with its number and due time.
    Published {
        /// Sequence number; numbers increase by one from message to message.
        sequence: u64,
        /// Due time of the publication, in microseconds since the Unix epoch.
        due_unix_us: u64,
    },
    /// A message of another kind, such as a first message or a ping.
    Other,
    /// A published message without a sequence number or due time.
    Wrong,
}

/// Composes numbered messages; each thread has its own composer.
pub trait Messages: Send {
    /// Whether the messages are text or binary.
    fn opcode(&self) -> Opcode;

    /// The payload of the message with this sequence number. `unix_us` is the wall-clock time in microseconds, as
    /// precise as the caller knows it.
    fn payload(&mut self, sequence: u64, unix_us: u64) -> &[u8];
}

/// The state of a connection after a message that arrived before it was ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The connection isn't ready yet.
    Waiting,
    /// The connection is ready.
    Ready {
        /// The id from the service; empty if it gives none.
        connection_id: String,
    },
    /// The service refuses the connection. The reason is a key in results.
    Refused(String),
}

/// The kind of a message on a ready connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The reply to the message with this sequence number.
    Reply {
        /// Sequence number of the message.
        sequence: u64,
    },
    /// A message that is not a reply and needs none.
    Other,
    /// A wrong reply. The oldest unanswered message of the connection counts as wrong.
    Wrong,
}
