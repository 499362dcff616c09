//! A compiled `websocket` section.

use std::sync::Arc;

use bench_format::websocket::{Frame, Framing, ReplyBy, WebsocketTarget, WireWebsocket};
use loadgen_core::workload::{Opcode, Outbox};

use crate::{
    condition::Condition,
    constants::Constants,
    fanout::FanoutReader,
    messages::{MessageSet, check_attachments},
    mistakes::Mistakes,
    reply::ReplyReader,
    request::Request,
    rows::Rows,
    script::Script,
    state::Connection,
    template::{Kind, Payload, Scope, Template},
    tls::TlsClients,
};

const OPENING: &[Kind] = &[Kind::Connection, Kind::Worker, Kind::Captured, Kind::Row, Kind::Random, Kind::Choice];
const MESSAGE: &[Kind] = Kind::ALL;
const REPLY: &[Kind] = &[Kind::Sequence, Kind::Connection, Kind::Worker, Kind::Captured, Kind::Row];
const RESPONSE: &[Kind] = &[Kind::Connection, Kind::Worker, Kind::Captured, Kind::Row];
/// Of what all connections of a worker send alike.
const SHARED: &[Kind] = &[Kind::Worker];
/// Bounds of a keepalive, in seconds: idle connections are looked for every four, up to 255 times.
const KEEPALIVE_SECONDS: std::ops::RangeInclusive<f64> = 4.0..=1020.0;

/// What a trial adds to a section.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// Path and query of the request, and the place that mistakes in it have.
    pub path: (&'a str, &'a str),
    /// The name that the service's certificate must have; absent without TLS.
    pub tls_name: Option<&'a str>,
    /// Further addresses that connections take in turn with that of the path.
    pub more_targets: &'a [WebsocketTarget],
    /// What `connect.rows_command` printed; absent where it wasn't run, which is in a check.
    pub printed_rows: Option<&'a str>,
    /// Seed of all random choices, from the assignment.
    pub seed: u64,
    /// Index of the worker.
    pub worker: u32,
    /// Size of `{{payload}}`, in bytes.
    pub payload_bytes: usize,
}

/// A section without mistakes, ready for use.
#[derive(Clone, Debug)]
pub struct Section {
    /// What is the same for all messages.
    pub constants: Arc<Constants>,
    /// Further addresses of the service, which connections take in turn.
    pub more_addresses: Vec<String>,
    /// How connections are encrypted.
    pub tls: TlsClients,
    /// The upgrade request, shared or for each connection.
    pub request: Request,
    /// What happens between the upgrade and the load.
    pub script: Script,
    /// The messages of the load.
    pub messages: MessageSet,
    /// How replies are read; absent where the service doesn't reply.
    pub reply: Option<ReplyReader>,
    /// What one connection publishes and the others receive; absent where nothing is said about it.
    pub fanout: Option<FanoutReader>,
    /// What is sent at once when a message of the service says so.
    pub responses: Vec<(Condition, Template)>,
    /// Seconds after which an idle connection sends a message, and the message.
    pub keepalive: Option<(u32, Opcode, Vec<u8>)>,
    /// What is sent before the Close frame.
    pub close: Option<(Opcode, Vec<u8>)>,
    /// How messages are cut.
    pub framing: Framing,
}

impl Section {
    /// Compiles a section for one trial.
    ///
    /// # Errors
    /// All mistakes, each as its place and what to do about it.
    pub fn compile(wire: &WireWebsocket, trial: &Trial<'_>) -> Result<Self, Vec<(String, String)>> {
        let mut mistakes = Mistakes::default();
        let section = Self::compile_all(wire, trial, &mut mistakes);
        match (section, mistakes.into_list()) {
            (Some(section), mistakes) if mistakes.is_empty() => Ok(section),
            (_, mistakes) => Err(mistakes),
        }
    }

    fn compile_all(wire: &WireWebsocket, trial: &Trial<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let rows = Rows::of(&wire.connect, trial.printed_rows).unwrap_or_else(|(place, message)| {
            mistakes.add(place, message);
            Rows::unread()
        });
        let payload = Payload::new(trial.payload_bytes, trial.seed);
        let scope = |kinds, captured| Scope { kinds, captured, columns: rows.columns(), payload: &payload };
        let more = || trial.more_targets.iter();
        let paths = std::iter::once(trial.path.0).chain(more().map(|target| &target.path[..]));
        let request = Request::compile(paths, trial.path.1, &wire.connect, &rows, mistakes);
        let script = Script::compile(&wire.open, &scope(OPENING, &[]), mistakes);
        let messages = MessageSet::compile(&wire.messages, &scope(MESSAGE, script.captured()), mistakes);
        let reply_scope = scope(REPLY, script.captured());
        let reply = wire.reply.as_ref().map(|reply| ReplyReader::compile(reply, &reply_scope, mistakes));
        let scopes = (&scope(OPENING, &[]), &scope(MESSAGE, script.captured()));
        let fanout = wire.fanout.as_ref().map(|fanout| FanoutReader::compile(fanout, &script, scopes, mistakes));
        let responses = responses(wire, &scope(RESPONSE, script.captured()), mistakes);
        let constants = Constants { seed: trial.seed, worker: trial.worker, rows: Rows::default() };
        let keepalive = wire.keepalive.as_ref().and_then(|keepalive| {
            if !KEEPALIVE_SECONDS.contains(&keepalive.after_seconds) {
                let message = format!("{} s is not from 4 to 1020 seconds", keepalive.after_seconds);
                mistakes.add("keepalive.after_seconds", message);
            }
            let (opcode, bytes) = shared(&keepalive.send, &constants, "keepalive.send", mistakes)?;
            Some((keepalive.after_seconds as u32, opcode, bytes))
        });
        if more().any(|target| target.tls_name.is_some() != trial.tls_name.is_some()) {
            mistakes.add("more_targets", "ws and wss are mixed; give all addresses the same scheme");
        }
        let tls = trial.tls_name.map_or(Some(TlsClients::default()), |name| {
            let names = std::iter::once(name).chain(more().filter_map(|target| target.tls_name.as_deref()));
            TlsClients::compile(wire.connect.tls.as_ref(), names, mistakes)
        });
        let close = wire.close.as_ref().and_then(|close| shared(close, &constants, "close", mistakes));
        match_messages(wire, &messages, mistakes);
        check_attachments(wire, mistakes);
        // What is described and didn't compile has a mistake.
        reply.as_ref().is_none_or(Option::is_some).then_some(())?;
        fanout.as_ref().is_none_or(Option::is_some).then_some(())?;
        Some(Self {
            constants: Arc::new(Constants { rows, ..constants }),
            more_addresses: more().map(|target| target.address.clone()).collect(),
            tls: tls?,
            request: request?,
            script,
            messages,
            reply: reply.flatten(),
            fanout: fanout.flatten(),
            responses,
            keepalive,
            close,
            framing: wire.framing,
        })
    }

    /// Sends the response to a message of the service; returns whether there is one.
    pub fn respond(&self, connection: &Connection, message: &[u8], outbox: &mut Outbox) -> bool {
        let Some((_, template)) = self.responses.iter().find(|(when, _)| when.holds(message)) else { return false };
        outbox.send(template.opcode(), template.bytes(&self.constants.values(connection, 0, 0)));
        true
    }
}

fn responses(wire: &WireWebsocket, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Vec<(Condition, Template)> {
    let mut responses = Vec::new();
    for (index, response) in wire.respond.iter().enumerate() {
        let when = Condition::compile_narrow(&response.when, &format!("respond[{index}].when"), mistakes);
        let (text, binary) = (response.send.text.as_deref(), &response.send.binary);
        let template = Template::frame(text, binary, scope, &format!("respond[{index}].send"), mistakes);
        responses.extend(template.map(|template| (when, template)));
    }
    responses
}

/// A message that all connections of a worker send alike.
fn shared(frame: &Frame, constants: &Constants, place: &str, mistakes: &mut Mistakes) -> Option<(Opcode, Vec<u8>)> {
    let scope = Scope { kinds: SHARED, captured: &[], columns: Some(&[]), payload: &Payload::default() };
    let template = Template::frame(frame.text.as_deref(), &frame.binary, &scope, place, mistakes)?;
    Some((template.opcode(), template.bytes(&constants.values(&Connection::default(), 0, 0))))
}

/// Checks that each message has what its reply is found by.
fn match_messages(wire: &WireWebsocket, messages: &MessageSet, mistakes: &mut Mistakes) {
    let Some(reply) = &wire.reply else { return };
    let needed = match reply.by {
        ReplyBy::Same | ReplyBy::Sequence => Kind::Sequence,
        ReplyBy::PacketId => Kind::PacketId,
        ReplyBy::Order => return,
    };
    for (index, template) in messages.templates().enumerate() {
        let place = format!("messages[{index}]");
        if !template.has(needed) {
            let by = match reply.by {
                ReplyBy::Same => "same",
                ReplyBy::Sequence => "sequence",
                _ => "packet_id",
            };
            let syntax = needed.syntax();
            mistakes.add(&place, format!("has no {syntax}, which reply.by: {by} needs; add it, or match by: order"));
        }
        if reply.by == ReplyBy::Same && messages.attachments() > 0 {
            mistakes.add(
                "reply.by",
                "a message with attachments has several frames, and no reply equals it; match by sequence",
            );
        }
        if reply.by == ReplyBy::Same && template.has_unclear_number() {
            mistakes.add(&place, "a number runs into the digits behind it; put another character between them");
        }
    }
}
