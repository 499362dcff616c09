//! End-to-end encrypted connections: the key exchange, and sealing and opening their messages.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use wse_utilities::{crypto::CryptoError, duplex::Duplex};

use super::{Core, Shard};
use crate::{
    connection::Connection,
    encryption::{self, ExchangeError, Secured, Session},
    envelope::{self, ClientHello, Encryption},
    format::{self, Binary, Text},
    frame::{self, Opcode, Violation},
    inbound::Kind,
    intake::PayloadLocation,
    key::ConnectionKey,
    outbound::{Backlog, Chunk},
    priority::Level,
    receive::DataKind,
    recipients::Sealing,
    stats::{DropReason, SendDropReason},
};

/// How many failed key exchanges a client may have: one costs a hundred times what a message costs.
const MAX_FAILURES: u8 = 8;

impl Core {
    /// Replies to a client's `client_hello`, with the server's public key if the client sent one of its own.
    pub(super) fn reply_to_hello(&mut self, connection: &mut Connection, hello: &ClientHello) {
        let mut replies = 1;
        let (agreed, begun) =
            match hello.key.as_deref().map(|key| self.exchange_keys(connection, key, hello.encryption)) {
                None => (None, None),
                Some(Ok((agreed, begun))) => (Some(agreed), begun),
                Some(Err(error)) => {
                    let error_message = envelope::key_exchange_error(&error.to_string());
                    frame::put(&mut self.replies, Opcode::Text, error_message.as_bytes());
                    replies += 1;
                    (None, None)
                }
            };
        let (config, now) = (&self.shared.config, self.wall_millis);
        let public = agreed.as_ref().map(|(public, version)| (public.as_str(), *version));
        let reply = envelope::server_hello(hello, connection.id, public, config, now);
        frame::put(&mut self.replies, Opcode::Text, reply.as_bytes());
        // An encrypted message must not overtake the key that opens it.
        self.reply_level = Level::Critical;
        self.count_consumed(connection, replies);
        if let Some(secured) = begun {
            self.begin(connection, secured);
        }
    }

    /// Exchanges keys, once per connection. Returns the server's public key in base64 with the version, and the outcome
    /// if it is new.
    fn exchange_keys(
        &mut self,
        connection: &mut Connection,
        peer: &str,
        version: Encryption,
    ) -> Result<((String, Encryption), Option<Secured>), ExchangeError> {
        if let Some(secured) = connection.secured() {
            secured.check_repeated(peer)?;
            return Ok(((secured.public.clone(), secured.version()), None));
        }
        if version == Encryption::Frames && connection.backlog.is_some() {
            return Err(ExchangeError::Behind);
        }
        let failed = connection.extras.as_ref().map_or(0, |extras| extras.failed_exchanges);
        if failed >= MAX_FAILURES {
            return Err(ExchangeError::TooManyAttempts);
        }
        let secured = encryption::exchange(peer, version).inspect_err(|_| {
            connection.extras.get_or_insert_default().failed_exchanges = failed + 1;
        })?;
        Ok(((secured.public.clone(), version), Some(secured)))
    }

    /// Begins to encrypt. The reply with the server's public key is in `replies` and goes out before.
    fn begin(&mut self, connection: &mut Connection, secured: Secured) {
        let (sealing, is_now) = match &secured.session {
            Session::Messages(key) => (Sealing::Key(Arc::clone(key)), false),
            Session::Frames(_) => (Sealing::Shard, true),
        };
        // Events from now on wait in the mailbox until the reply is on its way.
        self.shared.recipients.use_key(connection.key, sealing);
        if is_now {
            self.send_replies(connection);
            // What the socket didn't take must go out as it is.
            if let Some(backlog) = &mut connection.backlog {
                backlog.begin_first();
            }
        }
        self.encrypted += 1;
        connection.extras.get_or_insert_default().secured = Some(secured);
    }

    /// Sends framed publications; a connection with a key gets each of them encrypted.
    pub(super) fn publish(&mut self, connection: &mut Connection, framed: &Bytes, messages: u32) {
        if self.encrypted == 0 {
            return self.send_shared(connection, framed, messages);
        }
        let Some(key) = connection.message_key() else { return self.send_shared(connection, framed, messages) };
        let mut sealed = Vec::with_capacity(framed.len() + messages as usize * encryption::ADDED_BYTES);
        let put = |payload| encryption::put_sealed(&mut sealed, key, payload);
        if let Err(error) = frame::payloads(framed).try_for_each(put) {
            tracing::error!(%error, "a broadcast could not be encrypted");
            self.count_unsent(connection, SendDropReason::Unencrypted, u64::from(messages));
            return;
        }
        self.send(connection, &sealed, messages);
    }

    /// One framed publication in the connection's form. `None` if it could not be encrypted, which is counted.
    fn sealed(&mut self, connection: &mut Connection, framed: Bytes) -> Option<Bytes> {
        let Some(key) = connection.message_key() else { return Some(framed) };
        let payload = frame::payloads(&framed).next().unwrap_or_default();
        match encryption::sealed_frame(key, payload) {
            Ok(sealed) => Some(sealed),
            Err(error) => {
                tracing::error!(%error, "a publication could not be encrypted");
                self.count_unsent(connection, SendDropReason::Unencrypted, 1);
                None
            }
        }
    }

    /// Opens a data frame of a client with encryption of version 2. It means what it would mean without encryption.
    ///
    /// # Errors
    /// [`Violation::Unsealed`] if it isn't the client's next message: nothing that follows could be trusted.
    pub(super) fn open_frame(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        location: &PayloadLocation,
    ) -> Result<(), Violation> {
        let bytes = location.bytes(self.intake.bytes());
        let opened = match (kind, connection.duplex()) {
            (DataKind::Binary, Some(duplex)) => encryption::open_frame(duplex, bytes),
            _ => None,
        };
        let Some((kind, plain)) = opened else {
            self.count_received(connection);
            self.drop_message(connection, DropReason::Undecryptable);
            return Err(Violation::Unsealed);
        };
        // The first byte was the opcode.
        let whole = 1..plain.len();
        self.plain_message(connection, kind, PayloadLocation::Own(plain, whole))
    }

    /// Sends framed messages to a client with encryption of version 2. They are encrypted in the moment in which they
    /// are written, because those that wait may be overtaken or dropped.
    pub(super) fn send_frames(&mut self, connection: &mut Connection, framed: &[u8], messages: u32) {
        if connection.backlog.is_some() {
            if self.has_room(connection, Level::Normal) {
                let (bytes, level) = (Bytes::copy_from_slice(framed), self.reply_level(connection));
                self.queue_unsent(connection, Chunk { bytes, messages, is_own: true }, level, 0);
            } else {
                self.drop_for_slowness(connection, Level::Normal, messages);
            }
            return;
        }
        let level = self.reply_level(connection);
        self.queue_unsent(
            connection,
            Chunk { bytes: Bytes::copy_from_slice(framed), messages, is_own: true },
            level,
            0,
        );
        let ends = connection.closes_when_flushed;
        self.flush(connection);
        // The caller decides what the end of a flush means, as it does without encryption.
        connection.closes_when_flushed = ends;
    }

    /// Encrypts the chunk of a backlog that goes out next, unless it is encrypted already.
    pub(super) fn seal_first(duplex: &mut Duplex, backlog: &mut Backlog) -> Result<(), CryptoError> {
        backlog.replace_first(|framed| {
            let mut sealed = Vec::with_capacity(framed.len() + encryption::ADDED_BYTES_2);
            encryption::put_frames(&mut sealed, duplex, framed)?;
            Ok(sealed.into())
        })
    }

    /// Reads a message that is marked as encrypted. It goes to the application even if it has one of the protocol's own
    /// types.
    ///
    /// A message that can't be opened is dropped and counted, as the reference does: an encrypted client relies on
    /// being the only one that can send messages on its connection.
    pub(super) fn open_sealed(&mut self, connection: &mut Connection, location: &PayloadLocation) {
        let bytes = location.bytes(self.intake.bytes());
        let opened = connection.message_key().and_then(|key| encryption::open(key, bytes).ok());
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
