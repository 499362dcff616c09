//! Sending events, as far as the owner's thread does it. There are two steps, so that a language with a global lock on
//! its values, such as Python, holds it only for the first one.

use std::sync::atomic::{AtomicU64, Ordering};

use wse_utilities::crypto::CryptoError;

use crate::{
    clock, encryption,
    events::{self, EncodeError, Event, Value},
    format::Format,
    frame::{self, Opcode},
    key::ConnectionKey,
    outbound::Command,
    priority::Level,
    random,
    rate_limit::Notice,
    recipients::{Admission, EventDecision, Sealing},
    server::Server,
};

/// Sequence numbers of events. They are per process and not per server, as in the reference.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// An event that is encoded and waits to be sent, or the notice that the rate limit allows none.
#[derive(Debug)]
pub struct Outgoing {
    connection: ConnectionKey,
    notice: Option<Notice>,
    written: Option<Written>,
}

#[derive(Debug)]
struct Written {
    payload: Vec<u8>,
    format: Format,
    sealing: Sealing,
    level: Level,
    compression_threshold: usize,
}

impl Server {
    /// Sends an event to one connection, encoded and encrypted as the connection requires. Unencrypted JSON beyond
    /// `compression_threshold` bytes is compressed; 0 switches compression off. Returns the payload's size in bytes, or
    /// 0 if nothing was sent: the connection is unknown, an event with the same id was sent to it before, or its rate
    /// limit is reached.
    ///
    /// # Errors
    /// [`EncodeError`] if a value can't be encoded; the event may be sent again then.
    pub fn send_event<N: AsRef<str>, V: Value>(
        &self,
        connection: &str,
        event: &Event<N, V>,
        compression_threshold: usize,
    ) -> Result<usize, EncodeError> {
        let outgoing = self.write_event(connection, event, compression_threshold)?;
        Ok(outgoing.map_or(0, |outgoing| self.send_outgoing(outgoing)))
    }

    /// The first step of [`Server::send_event`], which needs the values. `None` if there is nothing to send.
    ///
    /// # Errors
    /// The same as [`Server::send_event`].
    pub fn write_event<N: AsRef<str>, V: Value>(
        &self,
        connection: &str,
        event: &Event<N, V>,
        compression_threshold: usize,
    ) -> Result<Option<Outgoing>, EncodeError> {
        let shared = &self.shared;
        let Some(key) = shared.registry.key(connection) else { return Ok(None) };
        let id = event.id();
        let is_open = || shared.registry.key(connection).is_some();
        let verdict = shared.recipients.admit(key, id.as_deref(), shared.uptime_seconds(), is_open);
        let (admission, notice) = match verdict {
            EventDecision::Duplicate | EventDecision::Limited(None) => return Ok(None),
            EventDecision::Limited(notice) => return Ok(Some(Outgoing { connection: key, notice, written: None })),
            EventDecision::Admitted(admission, notice) => (admission, notice),
        };
        let Admission { format, sealing } = admission;
        let now_millis = clock::now_millis();
        let next = || SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let completion = event.completion(now_millis, || random::id(now_millis), next);
        let payload = event.encode(&completion, format).inspect_err(|_| {
            if let Some(id) = &id {
                shared.recipients.withdraw(key, id);
            }
        })?;
        let written = Written { payload, format, sealing, level: event.level(), compression_threshold };
        Ok(Some(Outgoing { connection: key, notice, written: Some(written) }))
    }

    /// The second step of [`Server::send_event`]: compresses, encrypts and sends. Waits while the connection's shard is
    /// too far behind. Returns the payload's size in bytes, or 0 if nothing was sent.
    pub fn send_outgoing(&self, outgoing: Outgoing) -> usize {
        let Outgoing { connection, notice, written } = outgoing;
        let mailbox = &self.shared.mailboxes[connection.shard()];
        if let Some(notice) = notice {
            mailbox.put(Command::Send(connection, frame::encode(Opcode::Text, notice.text().as_bytes())));
        }
        let Some(written) = written else { return 0 };
        let level = written.level;
        match written.framed() {
            // Without a shard there is no connection either.
            Ok((frame, size)) => size * usize::from(mailbox.put(Command::Event(connection, frame, level))),
            Err(error) => {
                tracing::error!(%error, "an event could not be encrypted");
                self.shared.recipients.count_unencrypted();
                0
            }
        }
    }
}

impl Written {
    /// The frame, and the size of its payload in bytes.
    fn framed(self) -> Result<(bytes::Bytes, usize), CryptoError> {
        match &self.sealing {
            Sealing::Open => {}
            Sealing::Key(key) => {
                let size = self.payload.len() + encryption::ADDED_BYTES;
                return Ok((encryption::sealed_frame(key, &self.payload)?, size));
            }
            Sealing::Shard => {
                let size = self.payload.len() + encryption::ADDED_BYTES_2;
                return Ok((frame::encode(Opcode::Binary, &self.payload), size));
            }
        }
        let payload = match self.format {
            Format::Json => events::compressed(self.payload, self.compression_threshold),
            Format::MessagePack => self.payload,
        };
        Ok((frame::encode(Opcode::Binary, &payload), payload.len()))
    }
}
