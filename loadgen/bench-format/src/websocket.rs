//! How a service that keeps no books is spoken to: the `websocket` section of a plan, and a worker's part of it.
//!
//! The section describes any WebSocket service: where it is, how a connection opens, what is sent, and how a reply is
//! matched to its message. A preset (`presets/*.yaml`) is such a section without services.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use counters::{Counter, Counters, ReportedCounters};
pub use message::{
    BinaryField, BinaryLength, BinaryNumber, BytesAt, Extract, Frame, MessageTemplate, NumberFormat, When,
};
pub use rows::{PrintedRows, RowsCommand, RowsFormat};
pub use usage::UsageSource;

mod counters;
mod message;
mod rows;
mod usage;

/// The `websocket` section of a plan: services that only the plan describes, and how they are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireWebsocket {
    /// The preset from which all fields are taken that this section doesn't set: a name in `presets/` or a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Services by name. The plan's `services` list names those that climb. Empty in a preset and in an assignment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, WebsocketService>,
    /// How a connection is requested.
    #[serde(default)]
    pub connect: Connect,
    /// What happens on a connection before load, step by step. Without steps a connection is ready after the upgrade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpeningStep>,
    /// The messages of the load. With several, each message is drawn by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageTemplate>,
    /// How a reply finds its message; absent where the service doesn't reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// What one connection publishes and how all others receive it, for the workload `fanout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Fanout>,
    /// What is sent at once when a message of the service says so, for example a keep-alive inside messages. It doesn't
    /// count as load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub respond: Vec<Response>,
    /// What an idle connection sends so that it stays open. It doesn't count as load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// What is sent before the Close frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Frame>,
    /// How the service's messages are cut from WebSocket messages.
    #[serde(default)]
    pub framing: Framing,
}

/// A service that only the plan describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketService {
    /// Where it accepts connections: `ws://HOST:PORT/PATH?QUERY`, or `wss://…` with TLS. With a command, `{port}` stands for a free port.
    pub url: String,
    /// Further URLs that connections take in turn with `url`: connection i opens at URL i modulo their number. All have the
    /// scheme of `url`; `{port}` stands for the same port. Counters, usage and the check whether the service is ready are
    /// those of `url`, except that each address must accept a connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_urls: Vec<String>,
    /// The program and its arguments, if ladder starts the service; `{port}` stands for the port of the URL, and `{bin}` for
    /// the folder of ladder's own program. Without it, the service runs already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The folder in which the command runs, relative to the root of the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Environment variables of the command, in addition to ladder's; `{port}` stands for the port of the URL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Version of the service, for the results. A service without a version is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The command that prints the version, instead of `version`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version_command: Vec<String>,
    /// Least load time before each window, in seconds, for a runtime that needs longer to reach full speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_seconds: Option<f64>,
    /// The service's own counters, and which of the harness's each of them is; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// What is read as the service's CPU time and memory; absent for the processes that ladder started, or for those that
    /// listen at the address on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageSource>,
}

/// How a connection is requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// Headers of the upgrade request, beyond those of RFC 6455. Values may have the placeholders `{{connection}}`,
    /// `{{worker}}` and `{{row.NAME}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Subprotocols that are offered, in order of preference. The service must choose one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subprotocols: Vec<String>,
    /// How messages may be compressed (`permessage-deflate`, RFC 7692). Without it, nothing is offered. A service that doesn't
    /// accept the offer is spoken to without compression, which the workers' evidence says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deflate: Option<DeflateTerms>,
    /// How connections to `wss` addresses are encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// A CSV file with a header line, or a file of JSON lines (`.jsonl`, `.ndjson`), which the workers read. Each
    /// connection takes the next row, from the start again after the last; its columns are the placeholders
    /// `{{row.NAME}}`. There are at most 64 MiB, 1 000 000 rows of 64 KiB, and 256 columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// A command that prints rows, instead of a file; at most 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_command: Option<RowsCommand>,
    /// Addresses of the workers' machine to connect from, each until its ports are used up. Without them, the kernel
    /// chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_addresses: Vec<String>,
}

/// What is offered about compression. Compressed messages of the service are inflated to at most 16 MiB each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeflateTerms {
    /// Whether the messages that are sent are compressed, if the service accepts. Without it, only the service compresses.
    pub compress_sent: bool,
    /// Require that each message of the service can be inflated without the ones before it. The worker then needs no memory
    /// for each connection.
    #[serde(default)]
    pub server_no_context_takeover: bool,
    /// Compress each message that is sent without the ones before it. A service may require the same.
    #[serde(default)]
    pub client_no_context_takeover: bool,
    /// Largest window of the service, from 8 to 15 bits; absent if the service chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_max_window_bits: Option<u8>,
    /// Largest window of the worker, from 9 to 15 bits (8 if nothing is compressed); absent if the service chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_max_window_bits: Option<u8>,
}

/// How connections to `wss` addresses are encrypted. Files are read by the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificates of the authorities that sign the service's certificate, in PEM; absent for those of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The client's own certificate with its chain, in PEM; with `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The private key of the certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name that the service's certificate must have, instead of the address's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Accept any certificate. For services whose certificate nothing on this machine can check.
    #[serde(default)]
    pub insecure: bool,
}

/// One step between the upgrade and the load; exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpeningStep {
    /// Sends a message, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<Frame>,
    /// Waits for a message. Other messages meanwhile are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Pauses. Messages meanwhile are ignored, but for those that `respond` responds to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Pause>,
}

/// A pause of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// How long it is. All pauses of an opening together must be shorter than the 15 s after which an attempt fails.
    pub seconds: f64,
}

/// A message that the opening waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The message. Without a condition, any message.
    #[serde(default)]
    pub when: When,
    /// A message by which the service refuses the connection; the attempt has then failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<When>,
    /// Seconds after which the attempt has failed if the message didn't come, with the step in the reason; at most the 15
    /// s after which every attempt fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<f64>,
    /// Values that are kept for later messages of the connection: `{{captured.NAME}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, Extract>,
}

/// How a reply finds its message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The messages that are replies. Without a condition, all of them.
    #[serde(default)]
    pub when: When,
    /// How a reply names its message.
    #[serde(default)]
    pub by: ReplyBy,
    /// Where a reply has the number of its message, for `sequence` and `packet_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Extract>,
    /// What stands there, for `sequence`, as a template with `{{sequence}}`, for example `c{{connection}}-{{sequence}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Messages that are replies and report an error. The message then counts as wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<When>,
    /// The last part of a reply, if a reply has several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<When>,
}

/// How a reply names its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplyBy {
    /// It equals the message, byte by byte.
    #[default]
    Same,
    /// It contains the sequence number of the message.
    Sequence,
    /// It contains the packet id of the message: 1 to 65 535, then 1 again.
    PacketId,
    /// Replies come in the order of the messages.
    Order,
}

/// What one connection publishes, and how all others receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fanout {
    /// Further steps of the connections that receive, after `open`. The last one should wait until the subscription is in
    /// effect: what is published afterwards is due on the connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribe: Vec<OpeningStep>,
    /// The message that is published. It needs `{{sequence}}` and `{{due_us}}`.
    pub publish: Frame,
    /// The messages that are publications, as they arrive. Without a condition, all of them.
    #[serde(default)]
    pub when: When,
    /// Where a publication has its `{{sequence}}`.
    pub sequence: Extract,
    /// Where a publication has its `{{due_us}}`.
    pub due_us: Extract,
}

/// A message that is sent at once in response to one of the service's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// Which of the service's messages it responds to.
    pub when: When,
    /// The response that is sent at once.
    pub send: Frame,
}

/// What an idle connection sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keepalive {
    /// Seconds without a message after which it is sent, to the next four seconds.
    pub after_seconds: f64,
    /// The message that is sent then.
    pub send: Frame,
}

/// How the service's messages are cut from WebSocket messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// One WebSocket message is one message.
    #[default]
    Frame,
    /// Each line of a WebSocket message is a message; empty lines are none.
    Lines,
    /// Each part of a WebSocket message before a record separator (0x1E) is a message.
    RecordSeparator,
    /// The payloads of WebSocket messages are a stream of MQTT control packets.
    Mqtt,
    /// The payloads of WebSocket messages are a stream of lines that end with CR LF; a line that begins with `MSG` or
    /// `HMSG` names the length of the payload that follows it and belongs to it (NATS).
    Nats,
    /// A text message that begins with `45N-` or `46N-` and the N binary messages behind it, its attachments, are one message:
    /// the text with the attachments behind it (binary events and acknowledgements of Socket.IO). All other text messages
    /// are messages.
    SocketIo,
}

/// A further address of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketTarget {
    /// Host and port.
    pub address: String,
    /// Path and query of the upgrade request.
    pub path: String,
    /// The name that the certificate there must have; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
}

/// What an assignment says about the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebsocketTask {
    /// Path and query of the upgrade request.
    pub path: String,
    /// The name that the service's certificate must have; absent for a service without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
    /// Further addresses, which connections take in turn with the assignment's: connection i of all workers opens at address
    /// i modulo their number, where the assignment's is 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_targets: Vec<WebsocketTarget>,
    /// What `connect.rows_command` printed; present only with such a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub printed_rows: Option<PrintedRows>,
    /// The section of the plan without its services.
    pub section: WireWebsocket,
}
