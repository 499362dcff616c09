//! The workloads by name, and the pattern by which the load generator carries out an assignment of each.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use bench_format::{
    plan::Load,
    result::{Witness, WorkerResult},
    terms::Terms,
    trial::Assignment,
    websocket::{PrintedRows, WireWebsocket},
};
use loadgen_core::{
    Pattern,
    connect::check_source,
    trial::{self, Gate},
};

use crate::{
    protocol::{Use, Websocket},
    section::{Section, Trial},
};

/// Name and version of this program, for registrations and results.
pub const PROGRAM: &str = concat!("ws-bench ", env!("CARGO_PKG_VERSION"));

/// Largest `{{payload}}`, in bytes; it equals the largest frame that is read.
const LARGEST_PAYLOAD: u32 = 16 << 20;

/// A workload of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// How fast connections open, their opening included.
    ConnectionStorm,
    /// Whether connections last while they send nothing but keepalives.
    Idle,
    /// How long a reply takes.
    RequestReply,
    /// How long the parts of a reply take.
    Stream,
    /// Messages that no reply is expected to.
    Uplink,
    /// How fast what one connection publishes reaches all others.
    Fanout,
    /// How long a reply takes, and a handshake, while connections come and go.
    Churn,
    /// How long it takes until all connections are back that were cut at once.
    Reconnect,
}

impl Workload {
    /// All workloads, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::ConnectionStorm,
        Self::Idle,
        Self::RequestReply,
        Self::Stream,
        Self::Uplink,
        Self::Fanout,
        Self::Churn,
        Self::Reconnect,
    ];

    /// The workload's name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConnectionStorm => "connection-storm",
            Self::Idle => "idle",
            Self::RequestReply => "request-reply",
            Self::Stream => "stream",
            Self::Uplink => "uplink",
            Self::Fanout => "fanout",
            Self::Churn => "churn",
            Self::Reconnect => "reconnect",
        }
    }

    /// Finds a workload by its name.
    ///
    /// # Errors
    /// When there is no such workload; the error lists the names.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        match Self::ALL.into_iter().find(|workload| workload.name() == name) {
            Some(workload) => Ok(workload),
            None => bail!("there is no workload {name:?}; known are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }

    /// The rules by which the judge counts this workload.
    pub fn terms(self) -> Terms {
        let by = |witness| Terms { witness, ..Terms::default() };
        match self {
            Self::ConnectionStorm => Terms { opens_in_window: true, ..by(Witness::Reply) },
            Self::RequestReply | Self::Stream | Self::Churn => {
                let response = Some("response".to_owned());
                Terms { late_by: response.clone(), ages: response, ..by(Witness::Reply) }
            }
            Self::Idle => by(Witness::None),
            Self::Reconnect => by(Witness::Reply),
            // If the service counts what it delivers; otherwise nothing confirms it.
            Self::Uplink => by(Witness::Application),
            Self::Fanout => Terms { one_publisher: true, ..by(Witness::Receiver) },
        }
    }

    /// The terms of each workload, by name; a worker registers with them.
    pub fn all_terms() -> BTreeMap<String, Terms> {
        Self::ALL.iter().map(|workload| (workload.name().to_owned(), workload.terms())).collect()
    }

    /// What a section lacks for this workload, each as its place and what to do about it.
    pub fn missing(self, section: &WireWebsocket) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        let mut need =
            |place: &str, advice: &str| missing.push((place.to_owned(), format!("{} {advice}", self.name())));
        let sends = matches!(self, Self::RequestReply | Self::Stream | Self::Uplink | Self::Churn);
        if sends && section.messages.is_empty() {
            need("messages", "sends messages, but there are none; describe at least one");
        }
        if self == Self::Fanout && section.fanout.is_none() {
            need("fanout", "needs a description of what is published and how it is received");
        }
        match (self, &section.reply) {
            (Self::RequestReply | Self::Stream | Self::Churn, None) => {
                need("reply", "waits for replies; say how a reply finds its message, or use the workload uplink");
            }
            (Self::Stream, Some(reply)) if reply.end.is_none() => {
                need(
                    "reply.end",
                    "has replies in parts; say which part is the last, or use the workload request-reply",
                );
            }
            _ => {}
        }
        missing
    }

    /// What to give instead of a load that this workload can't offer; `None` if it can.
    pub fn other_load(self, load: &Load) -> Option<String> {
        let advice = match (self, load) {
            (Self::Churn, Load::Churn { .. }) | (Self::Reconnect, Load::Reconnect { .. }) => return None,
            (Self::Churn, _) => "lets connections come and go; give `load: { model: churn, … }`",
            (Self::Reconnect, _) => "cuts connections; give `load: { model: reconnect }`",
            (_, Load::Open { .. } | Load::Closed { .. }) => return None,
            (_, Load::Sessions { .. }) => "has no pace of its own; its load is open or closed, not sessions",
            (_, Load::Churn { .. }) => "keeps its connections; give an open load, or the workload churn",
            (_, Load::Reconnect { .. }) => {
                "keeps its connections; give an open or closed load, or the workload reconnect"
            }
        };
        Some(format!("{} {advice}", self.name()))
    }

    /// The pattern of the load, and what connections are used for.
    ///
    /// # Errors
    /// When the load, its rate or the message isn't possible for this workload.
    pub fn plan(self, assignment: &Assignment) -> anyhow::Result<(Pattern, Use)> {
        let (load, message) = (&assignment.load, &assignment.message);
        ensure!(message.coalesce > 0, "0 messages per write send nothing; give at least 1");
        ensure!(message.shapes == 1, "{} shapes; write that many messages into the section instead", message.shapes);
        ensure!(
            message.size_bytes <= LARGEST_PAYLOAD,
            "messages of {} bytes exceed the {LARGEST_PAYLOAD} that are possible",
            message.size_bytes
        );
        if let Load::Open { rate_per_second, .. } | Load::Churn { rate_per_second, .. } = load
            && !(rate_per_second.is_finite() && *rate_per_second > 0.0)
        {
            bail!("a rate of {rate_per_second} per second offers no load; give a number above 0");
        }
        if let Some(advice) = self.other_load(load) {
            bail!("{advice}");
        }
        Ok(match self {
            Self::ConnectionStorm => (storm(load), Use::Open),
            Self::Idle => (Pattern::Idle, Use::Open),
            Self::RequestReply => (with_replies(load), Use::Replies),
            Self::Stream => (with_replies(load), Use::Parts),
            Self::Uplink => (without_replies(load)?, Use::Send),
            Self::Fanout => (published(load)?, Use::Fanout),
            Self::Churn => (churn(load, assignment.connections)?, replies_of(assignment)),
            Self::Reconnect => (reconnect(load)?, Use::Open),
        })
    }

    /// Carries out an assignment.
    ///
    /// # Errors
    /// When the assignment isn't possible, its section has mistakes, its address can't be resolved, or the trial fails.
    pub fn run(self, assignment: &Assignment, gate: &mut dyn Gate) -> anyhow::Result<WorkerResult> {
        let (pattern, purpose) = self.plan(assignment)?;
        let section = self.section(assignment, pattern)?;
        for address in &section.request.source_addresses {
            check_source(*address)
                .with_context(|| format!("failed to connect from {address}; is it this machine's?"))?;
        }
        let client = Websocket::new(section, purpose);
        Ok(trial::run(client, assignment, pattern, self.terms().witness, PROGRAM, gate)?)
    }

    /// The compiled section of an assignment.
    fn section(self, assignment: &Assignment, pattern: Pattern) -> anyhow::Result<Section> {
        let Some(task) = &assignment.websocket else {
            bail!("the assignment describes no service; the plan needs a section websocket");
        };
        let trial = Trial {
            path: (&task.path, "path"),
            tls_name: task.tls_name.as_deref(),
            more_targets: &task.more_targets,
            // A worker never runs a command: without its output there are no rows.
            printed_rows: Some(task.printed_rows.as_ref().map_or("", PrintedRows::text)),
            seed: assignment.seed,
            worker: assignment.worker,
            payload_bytes: assignment.message.size_bytes as usize,
        };
        let mut mistakes = self.missing(&task.section);
        let section = Section::compile(&task.section, &trial).map_err(|others| mistakes.extend(others)).ok();
        if let Some(section) = &section
            && pattern == Pattern::Flood
            && section.messages.all_templates().any(|template| template.has(crate::template::Kind::DueUs))
        {
            let advice =
                "{{due_us}} has no value in a closed load, whose messages are due when the socket accepts them";
            mistakes.push(("messages".into(), advice.into()));
        }
        match section {
            Some(section) if mistakes.is_empty() => Ok(section),
            _ => {
                let lines: Vec<_> = mistakes.iter().map(|(place, message)| format!("{place}: {message}")).collect();
                bail!("the section websocket has mistakes:\n{}", lines.join("\n"))
            }
        }
    }
}

fn storm(load: &Load) -> Pattern {
    let rate_per_second = match load {
        Load::Open { rate_per_second, .. } => Some(*rate_per_second),
        _ => None,
    };
    Pattern::Storm { rate_per_second }
}

fn with_replies(load: &Load) -> Pattern {
    match load {
        Load::Open { rate_per_second, arrivals } => {
            Pattern::Open { rate_per_second: *rate_per_second, arrivals: *arrivals }
        }
        Load::Closed { messages_per_connection, .. } => Pattern::PingPong { per_connection: *messages_per_connection },
        _ => Pattern::PingPong { per_connection: None },
    }
}

fn published(load: &Load) -> anyhow::Result<Pattern> {
    match load {
        Load::Open { rate_per_second, arrivals } => {
            Ok(Pattern::Fanout { rate_per_second: *rate_per_second, arrivals: *arrivals })
        }
        _ => bail!("a fan-out publishes at a rate; give an open load"),
    }
}

fn without_replies(load: &Load) -> anyhow::Result<Pattern> {
    match load {
        Load::Open { rate_per_second, arrivals } => {
            Ok(Pattern::Open { rate_per_second: *rate_per_second, arrivals: *arrivals })
        }
        Load::Closed { messages_per_connection: Some(count), .. } => {
            bail!("a flood has no count of messages per connection, but {count} are requested; leave it out")
        }
        _ => Ok(Pattern::Flood),
    }
}

fn churn(load: &Load, connections: u32) -> anyhow::Result<Pattern> {
    let Load::Churn { rate_per_second, arrivals, .. } = *load else { bail!("connections come and go in a load churn") };
    match load.churn_per_second(connections).filter(|rate| rate.is_finite() && *rate > 0.0) {
        Some(connections_per_second) => Ok(Pattern::Churn { rate_per_second, arrivals, connections_per_second }),
        None => bail!("no connection comes or goes; give connections_per_second or life_seconds, above 0"),
    }
}

/// What connections are used for whose replies may have parts.
fn replies_of(assignment: &Assignment) -> Use {
    let reply = assignment.websocket.as_ref().and_then(|task| task.section.reply.as_ref());
    if reply.is_some_and(|reply| reply.end.is_some()) { Use::Parts } else { Use::Replies }
}

fn reconnect(load: &Load) -> anyhow::Result<Pattern> {
    let Load::Reconnect { cut, spread_seconds, .. } = *load else { bail!("connections are cut in a load reconnect") };
    ensure!((0.0..=86_400.0).contains(&spread_seconds), "a spread of {spread_seconds} s is not a length of time");
    Ok(Pattern::Reconnect { cut, spread_ns: (spread_seconds * 1e9) as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_workload_and_has_terms() {
        let terms = Workload::all_terms();
        assert_eq!(terms.len(), Workload::ALL.len());
        for workload in Workload::ALL {
            assert_eq!(Workload::find(workload.name()).unwrap(), workload);
            assert_eq!(terms[workload.name()], workload.terms());
        }
        let response = Some("response".to_owned());
        for name in ["request-reply", "stream", "churn"] {
            assert_eq!((terms[name].witness, &terms[name].late_by), (Witness::Reply, &response), "{name}");
        }
        assert_eq!(terms["uplink"].witness, Witness::Application);
        assert!(terms["connection-storm"].opens_in_window);
    }
}
