//! Admits a client: reads its request, checks its token, and sends the first frame.

use std::sync::atomic::Ordering;

use super::{Core, read::Progress};
use crate::{
    config::Delivery,
    connection::{Connection, Phase},
    envelope,
    frame::{self, Opcode},
    handshake::{self, MAX_REQUEST, Refusal},
    inbound::Kind,
    jwt::{Admitted, AuthError},
    origin,
    stats::{CloseReason, RejectReason},
};

/// Whether the bytes contain a blank line, which ends a request.
fn has_blank_line(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"\n\r\n").or_else(|| memchr::memmem::find(bytes, b"\n\n")).is_some()
}

/// The response to a valid request.
enum Admission {
    /// The client is admitted; `admitted` has its user if a token was checked.
    Accepted { admitted: Option<Admitted>, cookies: String },
    /// The client is upgraded only so that it can read why it is refused.
    Unauthorized(AuthError),
}

impl Core {
    /// Reads a request, and responds once it is complete.
    pub(super) fn open(&mut self, connection: &mut Connection) -> Progress {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        request.reserve(MAX_REQUEST);
        request.append(&mut connection.partial);
        let progress = self.read_request(connection, &mut request);
        self.request = request;
        progress
    }

    fn read_request(&mut self, connection: &mut Connection, request: &mut Vec<u8>) -> Progress {
        let (before, room) = (request.len(), request.capacity() - request.len());
        match rustix::io::read(&connection.socket, rustix::buffer::spare_capacity(request)) {
            Ok(0) => return self.reject_without_response(RejectReason::Handshake),
            Ok(read) => connection.is_readable = read == room || connection.is_hung_up,
            Err(rustix::io::Errno::AGAIN) => connection.is_readable = false,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return self.reject_without_response(RejectReason::Handshake),
        }
        // A request that arrives byte by byte isn't parsed again for each byte.
        let may_be_complete =
            before == 0 || request.len() >= MAX_REQUEST || has_blank_line(&request[before.saturating_sub(3)..]);
        match if may_be_complete { handshake::parse(request) } else { Ok(None) } {
            Ok(None) => {
                connection.partial = request.as_slice().to_vec();
                Progress::More
            }
            Ok(Some(parsed)) => {
                let (end, accept) = (parsed.end, parsed.accept);
                connection.uses_message_pack = parsed.uses_message_pack;
                if !self.shared.admits() {
                    return self.refuse(connection, Refusal::ServiceUnavailable, RejectReason::Draining);
                }
                if !self.may_use_cookies(&parsed) {
                    return self.refuse(connection, Refusal::ForeignOrigin, RejectReason::Origin);
                }
                let reply = self.authenticate(&parsed);
                connection.partial = request[end..].to_vec();
                connection.has_unparsed = end < request.len();
                self.reply(connection, reply, &accept)
            }
            Err(refusal) => self.refuse(connection, refusal, RejectReason::Handshake),
        }
    }

    fn reject_without_response(&mut self, reason: RejectReason) -> Progress {
        self.counters.rejected[reason as usize] += 1;
        Progress::Closed(CloseReason::Eof)
    }

    /// Whether the web page that sends a request, if one does, may use the user's cookie, or the request uses none.
    fn may_use_cookies(&self, request: &handshake::Request<'_>) -> bool {
        let Some(origin) = request.origin else { return true };
        let allowed = &self.shared.config.allowed_origins;
        let uses_cookie = match &self.shared.gate {
            Some(gate) => gate.has_token_in(request.cookies.iter().copied()),
            None => !allowed.is_empty() && !request.cookies.is_empty(),
        };
        !uses_cookie || origin::is_allowed(origin, request.host, allowed)
    }

    fn authenticate(&self, request: &handshake::Request<'_>) -> Admission {
        match &self.shared.gate {
            None => Admission::Accepted { admitted: None, cookies: request.cookies.join("; ") },
            Some(gate) => match gate.admit(request.cookies.iter().copied(), request.authorization) {
                Ok(admitted) => Admission::Accepted { admitted: Some(admitted), cookies: String::new() },
                Err(error) => Admission::Unauthorized(error),
            },
        }
    }

    fn reply(&mut self, connection: &mut Connection, reply: Admission, accept: &[u8; 28]) -> Progress {
        match reply {
            Admission::Accepted { admitted, cookies } => {
                let open = self.shared.open.fetch_add(1, Ordering::Relaxed);
                if open >= self.shared.config.max_connections {
                    self.shared.open.fetch_sub(1, Ordering::Relaxed);
                    return self.refuse(connection, Refusal::ServiceUnavailable, RejectReason::Full);
                }
                self.accept_client(connection, admitted, &cookies, accept)
            }
            Admission::Unauthorized(error) => self.reject_token(connection, error, accept),
        }
    }

    /// Upgrades and registers the connection, and sends its first message in the same write, so that nothing can come
    /// before it.
    fn accept_client(
        &mut self,
        connection: &mut Connection,
        admitted: Option<Admitted>,
        cookies: &str,
        accept: &[u8; 28],
    ) -> Progress {
        connection.id = self.random.id(self.wall_millis);
        connection.phase = Phase::Open;
        connection.is_registered = true;
        connection.last_data_millis = self.now_millis;
        self.counters.accepted += 1;
        if connection.uses_message_pack {
            self.shared.recipients.use_message_pack(connection.key);
        }
        self.shared.registry.open(connection.id, connection.key);
        let user = admitted.map(|admitted| {
            if self.shared.config.disconnect_at_expiry {
                connection.extras.get_or_insert_default().expires_millis = Some(admitted.expires_millis);
            }
            if let Some(rules) = admitted.topics {
                connection.is_subscriber = true;
                // The connection has no subscriptions yet, so there are no changes to report.
                self.shared.topics.set_acl(connection.key, rules, |_| {});
            }
            if self.shared.presence.is_some() {
                self.shared.registry.set_user(connection.key, &admitted.user);
            }
            admitted.user
        });
        if self.shared.config.delivery == Delivery::Queue {
            let (kind, data) = match &user {
                Some(user) => (Kind::AuthConnect, user.as_str()),
                None => (Kind::Connect, cookies),
            };
            self.intake.push_event(kind, connection.key, &connection.id.to_string(), data.as_bytes());
        }
        let mut out = std::mem::take(&mut self.replies);
        handshake::put_upgrade(&mut out, accept);
        let upgrade_bytes = out.len();
        let mut messages = 0;
        if let Some(user) = user {
            let message = self.random.id(self.wall_millis);
            let ready_message =
                envelope::server_ready(connection.id, message, &user, &self.shared.config, self.wall_millis);
            frame::put(&mut out, Opcode::Text, ready_message.as_bytes());
            messages = 1;
        }
        self.send(connection, &out, messages);
        // The upgrade itself is not WebSocket traffic. The buffer of a new socket takes it completely.
        self.counters.bytes_sent = self.counters.bytes_sent.saturating_sub(upgrade_bytes as u64);
        out.clear();
        self.replies = out;
        Progress::More
    }

    /// Upgrades the connection to send an error and close it: browsers show scripts no status of a refused upgrade.
    fn reject_token(&mut self, connection: &mut Connection, error: AuthError, accept: &[u8; 28]) -> Progress {
        self.counters.rejected[RejectReason::Auth as usize] += 1;
        let mut out = Vec::new();
        handshake::put_upgrade(&mut out, accept);
        let message = envelope::auth_error(error.code(), error.message(), self.wall_millis);
        frame::put(&mut out, Opcode::Text, message.as_bytes());
        frame::put_close(&mut out, 4401, "Authentication failed");
        self.send_final_bytes(connection, &out)
    }

    /// Responds to a request that is not upgraded.
    pub(super) fn refuse(&mut self, connection: &mut Connection, refusal: Refusal, reason: RejectReason) -> Progress {
        self.counters.rejected[reason as usize] += 1;
        self.send_final_bytes(connection, refusal.response().as_bytes())
    }

    /// Sends a last response to a client that was not admitted, and half closes the connection, so that the client can
    /// read it.
    fn send_final_bytes(&mut self, connection: &mut Connection, bytes: &[u8]) -> Progress {
        connection.phase = Phase::Lingering;
        let sent = self.counters.bytes_sent;
        self.send(connection, bytes, 0);
        self.counters.bytes_sent = sent;
        self.half_close(connection);
        Progress::More
    }
}
