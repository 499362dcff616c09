//! What a protocol adds to the generator: the upgrade request, the messages, and how to read replies.
//!
//! A load thread is compiled for one workload, so no call is dynamic. The generator numbers the messages of each
//! connection from 0; message `n` has the sequence number `first_sequence() + n`.

use std::{net::IpAddr, time::Duration};

pub use crate::{connect::UpgradeRequest, deflate::DeflateOffer, frame::Opcode, outbox::Outbox, tls::TlsClient};

/// The rules of one protocol and workload.
pub trait Workload: Send + Sync + 'static {
    /// What the protocol keeps of one connection.
    type Connection: Default + Send;
    /// The composer of messages; each thread has its own.
    type Messages: Messages<Self::Connection>;

    /// Whether the protocol acts on connections by [`Self::begin`] and [`Self::receive`]. Otherwise neither is called.
    const IS_SCRIPTED: bool = false;

    /// Path and query of the upgrade request.
    fn path(&self) -> String;

    /// Headers of the upgrade request beyond those of RFC 6455.
    fn headers(&self) -> Vec<(String, String)>;

    /// The upgrade request of the connections that have none of their own; `host` is the value of the `Host` header,
    /// `host:port`.
    fn shared_request(&self, host: &str) -> UpgradeRequest {
        UpgradeRequest::new(host, &self.path(), &self.headers())
    }

    /// The upgrade request of one connection, if each has its own; `host` is the value of the `Host` header, and `index`
    /// counts the connections of all workers.
    fn request(&self, _host: &str, _index: u32) -> Option<UpgradeRequest> {
        None
    }

    /// Further addresses of the service, `host:port`. Connection `index` of all workers opens at address `index` modulo
    /// their number, where the assignment's address is number 0; it then has a [`Self::request`] of its own.
    fn more_addresses(&self) -> &[String] {
        &[]
    }

    /// How the connection with this index among those of all workers is encrypted; `None` if it isn't.
    fn tls(&self, _index: u32) -> Option<&TlsClient> {
        None
    }

    /// What the request offers about compression; `None` for nothing. A service that doesn't accept is spoken to without.
    fn deflate(&self) -> Option<&DeflateOffer> {
        None
    }

    /// The subprotocols that the request offers; the service must choose one of them.
    fn subprotocols(&self) -> &[String] {
        &[]
    }

    /// Source addresses on this machine, each used until its ports run out. Empty means that the kernel chooses.
    fn source_addresses(&self) -> &[IpAddr] {
        &[]
    }

    /// Begins a connection that was upgraded; `index` counts the connections of all workers. What is put into the outbox
    /// is sent without a sequence number.
    fn begin(&self, _connection: &mut Self::Connection, _index: u32, _outbox: &mut Outbox) -> Admission {
        Admission::Waiting
    }

    /// Reads a message that arrived before the connection was ready.
    fn admit(
        &self,
        connection: &mut Self::Connection,
        opcode: Opcode,
        payload: &[u8],
        outbox: &mut Outbox,
    ) -> Admission;

    /// Continues a connection that is still not ready when a timer of [`Admission::Timed`] has ended.
    fn elapsed(&self, _connection: &mut Self::Connection, _timer: u32, _outbox: &mut Outbox) -> Admission {
        Admission::Waiting
    }

    /// A text message to send as soon as the connection is ready; it has no sequence number.
    fn first_message(&self) -> Option<&[u8]>;

    /// A message that keeps an idle connection open; it has no sequence number.
    fn keepalive(&self) -> Option<(Opcode, &[u8])>;

    /// Seconds without a message after which the keepalive is sent. They are rounded down to a multiple of four, but not
    /// to less than four.
    fn keepalive_after_seconds(&self) -> u32 {
        12
    }

    /// A message to send before the Close frame; it has no sequence number.
    fn farewell(&self) -> Option<(Opcode, &[u8])> {
        None
    }

    /// Creates the composer of one thread.
    fn messages(&self) -> Self::Messages;

    /// Sequence number of a connection's first message.
    fn first_sequence(&self) -> u64;

    /// Number of messages that a connection can send before the sequence number no longer fits its field.
    fn most_messages(&self) -> u64;

    /// Number of frames of each numbered message: itself and its attachments. At least 1.
    fn frames_per_message(&self) -> u8 {
        1
    }

    /// Whether each message gets a reply. Without replies, a message is settled when the socket has accepted it.
    fn expects_replies(&self) -> bool;

    /// Whether answers come in parts.
    fn answers_in_parts(&self) -> bool {
        false
    }

    /// Whether the service's application reads the sequence numbers, so that their sums can be compared.
    fn application_sums(&self) -> bool;

    /// Classifies a message on a ready connection. It isn't called for workloads without replies.
    fn classify(&self, opcode: Opcode, payload: &[u8]) -> Received;

    /// Reads a message on a ready connection of a scripted protocol; one WebSocket message may contain several messages
    /// of the protocol, or a part of one.
    fn receive(
        &self,
        _connection: &mut Self::Connection,
        opcode: Opcode,
        payload: &[u8],
        _outbox: &mut Outbox,
        received: &mut Vec<Received>,
    ) {
        received.push(self.classify(opcode, payload));
    }

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

/// Composes numbered messages of connections `C`; each thread has its own composer.
pub trait Messages<C>: Send {
    /// The message with this sequence number: text or binary, and its payload. `unix_us` is its due time by the wall
    /// clock in microseconds, as precise as the caller knows it.
    fn message(&mut self, connection: &C, sequence: u64, unix_us: u64) -> (Opcode, &[u8]);

    /// The binary message that is sent as part `nth`, from 0, behind the message with this sequence number. It is called
    /// only for workloads with more than one frame per message.
    fn attachment(&mut self, _connection: &C, _sequence: u64, _unix_us: u64, _nth: usize) -> &[u8] {
        &[]
    }
}

/// The state of a connection after a message that arrived before it was ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The connection isn't ready yet.
    Waiting,
    /// The connection isn't ready yet; if it still isn't after some time, [`Workload::elapsed`] is called, once.
    Timed {
        /// What identifies the timer to the protocol.
        timer: u32,
        /// When it ends, from now on.
        after: Duration,
    },
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
    /// A reply, or a part of one, of a scripted protocol.
    Answer {
        /// The message that it answers.
        to: AnswerTo,
        /// What it says about that message.
        part: AnswerPart,
    },
    /// A message that another connection published, in a scripted protocol.
    Published(Delivery),
    /// The service broke the protocol: the connection ends with this reason, which is a key in results.
    Violation(&'static str),
}

/// How an answer names its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTo {
    /// By the sequence number.
    Sequence(u64),
    /// By the number of the message on its connection, from 0, modulo `modulus`.
    Modulo {
        /// The number modulo `modulus`.
        remainder: u64,
        /// The modulus; not 0.
        modulus: u64,
    },
    /// By its order: it answers the oldest unanswered message.
    Oldest,
}

/// What an answer says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// A part; more will follow.
    More,
    /// The whole answer, or its last part.
    Last,
    /// The service reports an error; the message counts as wrong.
    Error,
}
