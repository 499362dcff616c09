//! A fan-out: what one connection publishes, and how the others recognize it. Pure.

use bench_format::websocket::{Fanout, MessageTemplate};
use loadgen_core::workload::Delivery;

use crate::{
    condition::Condition,
    extract::{Extracted, Extractor},
    messages::MessageSet,
    mistakes::Mistakes,
    script::Script,
    template::{Kind, Scope, digits},
};

/// The compiled `fanout` of a section.
#[derive(Clone, Debug)]
pub struct FanoutReader {
    /// The opening of a connection that receives: that of all connections, and its subscription.
    pub subscribing: Script,
    /// The message that the first connection of all workers publishes; empty if it has a mistake.
    pub published: MessageSet,
    when: Condition,
    sequence: Extractor,
    due_us: Extractor,
}

impl FanoutReader {
    /// Compiles a fan-out; its mistakes are added. `opening` is the opening of all connections, and the scopes are those
    /// of its steps and of messages.
    pub fn compile(
        fanout: &Fanout,
        opening: &Script,
        (steps, messages): (&Scope<'_>, &Scope<'_>),
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let subscribing = opening.clone().extended(&fanout.subscribe, "fanout.subscribe", steps, mistakes);
        let template = MessageTemplate {
            weight: 1,
            text: fanout.publish.text.clone(),
            binary: fanout.publish.binary.clone(),
            attachments: Vec::new(),
        };
        let published = MessageSet::compile_at(&[template], |_| "fanout.publish".into(), messages, mistakes);
        for (kind, purpose) in [(Kind::Sequence, "losses are found by it"), (Kind::DueUs, "latency counts from it")] {
            if published.templates().any(|template| !template.has(kind)) {
                mistakes.add("fanout.publish", format!("has no {}; add it, because {purpose}", kind.syntax()));
            }
        }
        let when = Condition::compile(&fanout.when, "fanout.when", mistakes);
        let sequence = Extractor::compile(&fanout.sequence, "fanout.sequence", mistakes);
        let due_us = Extractor::compile(&fanout.due_us, "fanout.due_us", mistakes);
        Some(Self { subscribing, published, when, sequence: sequence?, due_us: due_us? })
    }

    /// Reads one message of the service.
    pub fn read(&self, message: &[u8]) -> Delivery {
        if !self.when.holds(message) {
            return Delivery::Other;
        }
        match (number(&self.sequence, message), number(&self.due_us, message)) {
            (Some(sequence), Some(due_unix_us)) => Delivery::Published { sequence, due_unix_us },
            _ => Delivery::Wrong,
        }
    }
}

fn number(extractor: &Extractor, message: &[u8]) -> Option<u64> {
    match extractor.find(message)? {
        Extracted::Number(number) => Some(number),
        Extracted::Text(text) => digits(&text).filter(|(_, length)| *length == text.len()).map(|(number, _)| number),
    }
}
