//! End-to-end encrypted connections: the key exchange, and sealing and opening their messages.

use std::ops::Range;

use bytes::Bytes;

use super::{Core, Shard};
use crate::{
    connection::Connection,
    encryption::{self, ExchangeError},
    envelope::{self, ClientHello},
    format::{self, Binary, Text},
    frame::{self, Opcode},
    inbound::Kind,
    intake::PayloadLocation,
    key::ConnectionKey,
    priority::Level,
    stats::{DropReason, SendDropReason},
};

/// How many failed key exchanges a client may have: one costs a hundred times what a message costs.
const MAXIMAL_FAILURES: u8 = 8;

impl Core {
    /// Replies to a client's `client_hello`, with the server's public key if the client sent one of its own.
    pub(super) fn reply_to_hello(&mut self, connection: &mut Connection, hello: &ClientHello) {
        let mut replies = 1;
        let public = match hello.key.as_deref().map(|key| self.exchange_keys(connection, key)) {
            None => None,
            Some(Ok(public)) => Some(public),
            Some(Err(error)) => {
                let error_message = envelope::key_exchange_error(&error.to_string());
                frame::put(&mut self.replies, Opcode::Text, error_message.as_bytes());
                replies += 1;
                None
            }
        };
        let (config, now) = (&self.shared.config, self.wall_millis);
        let reply = envelope::server_hello(hello, connection.id, public.as_deref(), config, now);
        frame::put(&mut self.replies, Opcode::Text, reply.as_bytes());
        // An encrypted message must not overtake the key that opens it.
        self.reply_level = Level::Critical;
        self.count_consumed(connection, replies);
    }

    /// Exchanges keys, once per connection. Returns the server's public key in base64.
    fn exchange_keys(&mut self, connection: &mut Connection, peer: &str) -> Result<String, ExchangeError> {
        if let Some(secured) = connection.secured() {
            secured.check_repeated(peer)?;
            return Ok(secured.public.clone());
        }
        let failed = connection.extras.as_ref().map_or(0, |extras| extras.failed_exchanges);
        if failed >= MAXIMAL_FAILURES {
            return Err(ExchangeError::TooManyAttempts);
        }
        let secured = encryption::exchange(peer).inspect_err(|_| {
            connection.extras.get_or_insert_default().failed_exchanges = failed + 1;
        })?;
        let public = secured.public.clone();
        // Encrypted messages from now on wait in the mailbox until this reply is on its way.
        self.shared.recipients.use_key(connection.key, secured.key.clone());
        self.encrypted += 1;
        connection.extras.get_or_insert_default().secured = Some(secured);
        Ok(public)
    }

    /// Sends framed publications; a connection with a key gets each of them encrypted.
    pub(super) fn publish(&mut self, connection: &mut Connection, framed: &Bytes, messages: u32) {
        if self.encrypted == 0 {
            return self.send_shared(connection, framed, messages);
        }
        let Some(secured) = connection.secured() else { return self.send_shared(connection, framed, messages) };
        let mut sealed = Vec::with_capacity(framed.len() + messages as usize * encryption::ADDED_BYTES);
        let put = |payload| encryption::put_sealed(&mut sealed, &secured.key, payload);
        if let Err(error) = frame::payloads(framed).try_for_each(put) {
            tracing::error!(%error, "a broadcast could not be encrypted");
            self.count_unsent(connection, SendDropReason::Unencrypted, u64::from(messages));
            return;
        }
        self.send(connection, &sealed, messages);
    }

    /// One framed publication in the connection's form. `None` if it could not be encrypted, which is counted.
    fn sealed(&mut self, connection: &mut Connection, framed: Bytes) -> Option<Bytes> {
        let Some(secured) = connection.secured() else { return Some(framed) };
        let payload = frame::payloads(&framed).next().unwrap_or_default();
        match encryption::sealed_frame(&secured.key, payload) {
            Ok(sealed) => Some(sealed),
            Err(error) => {
                tracing::error!(%error, "a publication could not be encrypted");
                self.count_unsent(connection, SendDropReason::Unencrypted, 1);
                None
            }
        }
    }

    /// Reads a message that is marked as encrypted. It goes to the application even if it has one of the protocol's own
    /// types.
    ///
    /// A message that can't be opened is dropped and counted, as the reference does: an encrypted client relies on
    /// being the only one that can send messages on its connection.
    pub(super) fn open_sealed(&mut self, connection: &mut Connection, location: &PayloadLocation) {
        let bytes = match location {
            PayloadLocation::Arena(range) => &self.intake.bytes()[range.clone()],
            PayloadLocation::Own(bytes, range) => &bytes[range.clone()],
        };
        let opened = connection.secured().and_then(|secured| encryption::open(&secured.key, bytes).ok());
        self.count_received(connection);
        match opened {
            None => self.drop_message(connection, DropReason::Undecryptable),
            Some(plain) => {
                let (kind, data, message_type) = meaning(&plain);
                let whole = 0..plain.len();
                self.deliver(connection, kind, PayloadLocation::Own(plain, whole), data, message_type);
            }
        }
    }
}

impl Shard {
    /// Queues a publication for one connection, encrypted if the connection has a key.
    pub(super) fn queue_sealed(&mut self, key: ConnectionKey, framed: Bytes, dirty: &mut Vec<ConnectionKey>) {
        let frame = match self.table.get_mut(key) {
            Some(connection) if self.core.encrypted > 0 => self.core.sealed(connection, framed),
            _ => Some(framed),
        };
        if let Some(frame) = frame {
            self.queue(key, frame, Level::Normal, dirty);
        }
    }
}

/// The content of an opened message: MessagePack as the server itself packs it, text as clients send it, or other
/// bytes.
fn meaning(plain: &[u8]) -> (Kind, Range<usize>, Option<Range<usize>>) {
    let whole = 0..plain.len();
    if let Binary::MessagePack { value, message_type } = format::classify_binary(plain, false) {
        return (Kind::MessagePack, value, message_type);
    }
    if simdutf8::basic::from_utf8(plain).is_err() {
        return (Kind::Binary, whole, None);
    }
    match format::classify_private(plain) {
        Text::Json { object, message_type } => (Kind::Json, object, message_type),
        _ => (Kind::Raw, whole, None),
    }
}
