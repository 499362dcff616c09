//! The client of a service that only a plan describes: the workload that the load generator runs.

use std::{net::IpAddr, sync::Arc};

use loadgen_core::workload::{Admission, DeflateOffer, Opcode, Outbox, Received, TlsClient, UpgradeRequest, Workload};

use crate::{
    framing::{Uncuttable, cut},
    messages::{MessageSet, SectionMessages},
    script::Script,
    section::Section,
    state::Connection,
};

/// Most responses to one WebSocket message.
const MOST_RESPONSES: usize = 1024;
/// The service requested more of them; a key in results.
const TOO_MANY_RESPONSES: &str = "too_many_responses";

/// What connections are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing but being open.
    Open,
    /// Messages that get a reply each.
    Replies,
    /// Messages that get a reply in parts each.
    Parts,
    /// Messages that no reply is expected to.
    Send,
    /// The first connection publishes, and all others receive.
    Fanout,
}

/// A client of the service.
pub struct Websocket {
    section: Arc<Section>,
    purpose: Use,
}

impl Websocket {
    /// Creates the client of a compiled section.
    pub fn new(section: Section, purpose: Use) -> Self {
        Self { section: Arc::new(section), purpose }
    }

    /// The opening of a connection.
    fn script(&self, index: u32) -> &Script {
        match &self.section.fanout {
            Some(fanout) if self.purpose == Use::Fanout && index > 0 => &fanout.subscribing,
            _ => &self.section.script,
        }
    }

    /// The messages of the load.
    fn sent(&self) -> &MessageSet {
        match &self.section.fanout {
            Some(fanout) if self.purpose == Use::Fanout => &fanout.published,
            _ => &self.section.messages,
        }
    }

    /// Cuts a WebSocket message and passes each message to `handle`, except those that get a response.
    fn take(
        &self,
        connection: &mut Connection,
        (opcode, payload): (Opcode, &[u8]),
        outbox: &mut Outbox,
        mut handle: impl FnMut(&mut Connection, &[u8], &mut Outbox),
    ) -> Result<(), Uncuttable> {
        let mut rest = std::mem::take(&mut connection.rest);
        let mut responses = 0;
        let result = cut(self.section.framing, &mut rest, opcode, payload, |message| {
            if self.section.responses.is_empty() {
                handle(connection, message, outbox);
            } else if responses <= MOST_RESPONSES {
                let is_response = self.section.respond(connection, message, outbox);
                responses += usize::from(is_response);
                if !is_response {
                    handle(connection, message, outbox);
                }
            }
        });
        connection.rest = rest;
        if responses > MOST_RESPONSES { Err(Uncuttable(TOO_MANY_RESPONSES)) } else { result }
    }
}

impl Workload for Websocket {
    type Connection = Connection;
    type Messages = SectionMessages;

    const IS_SCRIPTED: bool = true;

    fn path(&self) -> String {
        self.section.request.path(&self.section.constants.values(&Connection::default(), 0, 0))
    }

    fn headers(&self) -> Vec<(String, String)> {
        self.section.request.headers(&self.section.constants.values(&Connection::default(), 0, 0))
    }

    fn request(&self, host: &str, index: u32) -> Option<UpgradeRequest> {
        let section = &self.section;
        let connection = Connection { index, ..Connection::default() };
        let own = || section.request.upgrade(host, &section.constants.values(&connection, 0, 0));
        (!section.request.is_shared()).then(own)
    }

    fn more_addresses(&self) -> &[String] {
        &self.section.more_addresses
    }

    fn tls(&self, index: u32) -> Option<&TlsClient> {
        self.section.tls.of(index)
    }

    fn subprotocols(&self) -> &[String] {
        &self.section.request.subprotocols
    }

    fn deflate(&self) -> Option<&DeflateOffer> {
        self.section.request.deflate.as_ref()
    }

    fn source_addresses(&self) -> &[IpAddr] {
        &self.section.request.source_addresses
    }

    fn begin(&self, connection: &mut Connection, index: u32, outbox: &mut Outbox) -> Admission {
        connection.index = index;
        self.script(index).begin(&self.section.constants, connection, outbox)
    }

    fn admit(&self, connection: &mut Connection, opcode: Opcode, payload: &[u8], outbox: &mut Outbox) -> Admission {
        let mut admission = Admission::Waiting;
        let cut = self.take(connection, (opcode, payload), outbox, |connection, message, outbox| {
            // A message behind the one that made the connection ready answers nothing, because nothing was sent.
            if matches!(admission, Admission::Waiting | Admission::Timed { .. }) {
                let script = self.script(connection.index);
                match script.admit(&self.section.constants, connection, message, outbox) {
                    // The timer of the step still runs.
                    Admission::Waiting => {}
                    next => admission = next,
                }
            }
        });
        match cut {
            Err(Uncuttable(reason)) => Admission::Refused(reason.into()),
            Ok(()) => admission,
        }
    }

    fn elapsed(&self, connection: &mut Connection, timer: u32, outbox: &mut Outbox) -> Admission {
        self.script(connection.index).elapsed(&self.section.constants, connection, timer, outbox)
    }

    fn first_message(&self) -> Option<&[u8]> {
        None
    }

    fn keepalive(&self) -> Option<(Opcode, &[u8])> {
        self.section.keepalive.as_ref().map(|(_, opcode, bytes)| (*opcode, &bytes[..]))
    }

    fn keepalive_after_seconds(&self) -> u32 {
        self.section.keepalive.as_ref().map_or(12, |(seconds, ..)| *seconds)
    }

    fn farewell(&self) -> Option<(Opcode, &[u8])> {
        self.section.close.as_ref().map(|(opcode, bytes)| (*opcode, &bytes[..]))
    }

    fn messages(&self) -> SectionMessages {
        SectionMessages::new(Arc::clone(&self.section.constants), self.sent())
    }

    fn first_sequence(&self) -> u64 {
        0
    }

    fn most_messages(&self) -> u64 {
        let most = self.sent().all_templates().map(crate::template::Template::most_sequence).min();
        most.unwrap_or(u64::MAX).saturating_add(1)
    }

    fn frames_per_message(&self) -> u8 {
        // A section has at most 64 attachments.
        1 + self.sent().attachments() as u8
    }

    fn expects_replies(&self) -> bool {
        matches!(self.purpose, Use::Replies | Use::Parts)
    }

    fn answers_in_parts(&self) -> bool {
        self.purpose == Use::Parts
    }

    fn application_sums(&self) -> bool {
        false
    }

    fn classify(&self, _: Opcode, _: &[u8]) -> Received {
        // Every message comes through `receive`, which knows the connection.
        Received::Other
    }

    fn receive(
        &self,
        connection: &mut Connection,
        opcode: Opcode,
        payload: &[u8],
        outbox: &mut Outbox,
        received: &mut Vec<Received>,
    ) {
        let section = &self.section;
        let reader = section.reply.as_ref().filter(|_| self.expects_replies());
        let fanout = section.fanout.as_ref().filter(|_| self.purpose == Use::Fanout);
        let cut = self.take(connection, (opcode, payload), outbox, |connection, message, _| {
            if let Some(fanout) = fanout {
                received.push(Received::Published(fanout.read(message)));
            }
            let Some(reader) = reader else { return };
            let values = section.constants.values(connection, 0, 0);
            match reader.read(&section.messages, opcode, message, &values) {
                Received::Other => {}
                other => received.push(other),
            }
        });
        if let Err(Uncuttable(reason)) = cut {
            received.push(Received::Violation(reason));
        }
    }
}
