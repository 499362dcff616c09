//! The messages of the load: which of them is sent, and which of them an echo is.

use std::sync::Arc;

use bench_format::websocket::{Framing, MessageTemplate, WireWebsocket};
use loadgen_core::workload::{Messages, Opcode};

use crate::{
    constants::Constants,
    framing::MOST_ATTACHMENTS,
    mistakes::Mistakes,
    state::Connection,
    template::{Composer, Scope, Template, Values},
};

/// Templates, drawn by weight.
#[derive(Clone, Debug, Default)]
pub struct MessageSet {
    /// Each with the sum of the weights up to it.
    templates: Vec<(u64, Template)>,
    /// Those of each message; as many for each.
    attachments: Vec<Vec<Template>>,
}

impl MessageSet {
    /// Compiles the messages; their mistakes are added.
    pub fn compile(messages: &[MessageTemplate], scope: &Scope<'_>, mistakes: &mut Mistakes) -> Self {
        Self::compile_at(messages, |index| format!("messages[{index}]"), scope, mistakes)
    }

    /// Compiles messages whose places in the section are these.
    pub fn compile_at(
        messages: &[MessageTemplate],
        place: impl Fn(usize) -> String,
        scope: &Scope<'_>,
        mistakes: &mut Mistakes,
    ) -> Self {
        let (mut templates, mut attachments) = (Vec::new(), Vec::new());
        let mut total = 0;
        for (index, message) in messages.iter().enumerate() {
            let place = place(index);
            if message.weight == 0 {
                mistakes.add(format!("{place}.weight"), "0 means never; give at least 1, or remove the message");
            }
            total += u64::from(message.weight);
            let template = Template::frame(message.text.as_deref(), &message.binary, scope, &place, mistakes);
            templates.extend(template.map(|template| (total, template)));
            let all = message.attachments.iter().enumerate();
            let compile = |(nth, fields): (usize, &Vec<_>)| {
                Template::frame(None, fields, scope, &format!("{place}.attachments[{nth}]"), mistakes)
            };
            attachments.push(all.filter_map(compile).collect());
        }
        Self { templates, attachments }
    }

    /// Number of attachments of each message.
    pub fn attachments(&self) -> usize {
        self.attachments.first().map_or(0, Vec::len)
    }

    /// The templates in the order of the section, without attachments.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.templates.iter().map(|(_, template)| template)
    }

    /// All templates, with those of attachments.
    pub fn all_templates(&self) -> impl Iterator<Item = &Template> {
        self.templates().chain(self.attachments.iter().flatten())
    }

    /// The index of the template of one message.
    #[inline]
    fn drawn(&self, values: &Values<'_>) -> usize {
        match self.templates.last() {
            Some((total, _)) if self.templates.len() > 1 => {
                let draw = values.choice_of_message((*total).max(1));
                self.templates.partition_point(|(up_to, _)| *up_to <= draw)
            }
            _ => 0,
        }
    }

    /// The sequence number of the message that was sent as these bytes; `None` if none was.
    pub fn sequence_of(&self, opcode: Opcode, bytes: &[u8], values: &Values<'_>) -> Option<u64> {
        let of = |(index, template): (usize, &Template)| {
            let sequence = template.sequence_of(bytes, values).filter(|_| template.opcode() == opcode)?;
            (self.drawn(&Values { sequence, ..*values }) == index).then_some(sequence)
        };
        self.templates().enumerate().find_map(of)
    }
}

/// Lists the mistakes of messages with attachments.
pub fn check_attachments(wire: &WireWebsocket, mistakes: &mut Mistakes) {
    let most = wire.messages.iter().map(|message| message.attachments.len()).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    if wire.framing != Framing::SocketIo {
        mistakes.add("framing", "messages have attachments, which only socket-io knows; set `framing: socket-io`");
    }
    for (index, message) in wire.messages.iter().enumerate() {
        let (place, count) = (format!("messages[{index}]"), message.attachments.len());
        if count > MOST_ATTACHMENTS {
            let many = format!("there are {count}, and at most {MOST_ATTACHMENTS} are possible; remove some");
            mistakes.add(format!("{place}.attachments"), many);
            continue;
        }
        if count != most {
            let other = format!("has {count} attachments and another message {most}; give all the same number");
            mistakes.add(format!("{place}.attachments"), other);
            continue;
        }
        let announces = |text: &String| ["45", "46"].iter().any(|kind| text.starts_with(&format!("{kind}{count}-")));
        if !message.text.as_ref().is_some_and(announces) {
            mistakes.add(place, format!("doesn't announce its attachments; begin its text with 45{count}-"));
        }
    }
}

/// Composes the messages of one thread.
pub struct SectionMessages {
    constants: Arc<Constants>,
    set: MessageSet,
    composers: Vec<Composer>,
    attachments: Vec<Vec<Composer>>,
}

impl SectionMessages {
    /// Creates the composer of one thread.
    pub fn new(constants: Arc<Constants>, set: &MessageSet) -> Self {
        let composers = set.templates().cloned().map(Composer::new).collect();
        let of_message = |all: &Vec<Template>| all.iter().cloned().map(Composer::new).collect();
        let attachments = set.attachments.iter().map(of_message).collect();
        Self { constants, set: set.clone(), composers, attachments }
    }
}

impl Messages<Connection> for SectionMessages {
    #[inline]
    fn message(&mut self, connection: &Connection, sequence: u64, unix_us: u64) -> (Opcode, &[u8]) {
        let values = self.constants.values(connection, sequence, unix_us);
        match self.composers.get_mut(self.set.drawn(&values)) {
            Some(composer) => composer.compose(&values),
            None => (Opcode::Text, &[]),
        }
    }

    fn attachment(&mut self, connection: &Connection, sequence: u64, unix_us: u64, nth: usize) -> &[u8] {
        let values = self.constants.values(connection, sequence, unix_us);
        let drawn = self.attachments.get_mut(self.set.drawn(&values));
        drawn.and_then(|all| all.get_mut(nth)).map_or(&[], |composer| composer.compose(&values).1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::template::{Kind, Payload};

    fn set(messages: &[(u32, &str)]) -> MessageSet {
        let message = |(weight, text): &(u32, &str)| MessageTemplate {
            weight: *weight,
            text: Some((*text).into()),
            binary: Vec::new(),
            attachments: Vec::new(),
        };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let payload = Payload::default();
        let scope = Scope { kinds: &[Kind::Sequence], captured: &[], columns: Some(&[]), payload: &payload };
        MessageSet::compile(&messages, &scope, &mut Mistakes::default())
    }

    #[test]
    fn messages_are_drawn_by_weight() {
        let set = set(&[(3, "a{{sequence}}"), (1, "b{{sequence}}")]);
        let mut messages = SectionMessages::new(Arc::new(Constants { seed: 5, ..Constants::default() }), &set);
        let mut counts = BTreeMap::new();
        for sequence in 0..4000 {
            let (_, bytes) = messages.message(&Connection::default(), sequence, 0);
            *counts.entry(bytes[0]).or_insert(0) += 1;
        }
        // Three quarters; the standard deviation of the count is 27.
        assert!((2890..=3110).contains(&counts[&b'a']), "{counts:?}");
        assert_eq!(counts[&b'a'] + counts[&b'b'], 4000);
    }

    #[test]
    fn an_echo_is_of_the_message_that_was_drawn() {
        let set = set(&[(1, "a{{sequence}}"), (1, "b{{sequence}}")]);
        let constants = Arc::new(Constants::default());
        let mut messages = SectionMessages::new(Arc::clone(&constants), &set);
        let connection = Connection::default();
        let values = constants.values(&connection, 0, 0);
        for sequence in 0..100 {
            let (opcode, bytes) = messages.message(&connection, sequence, 0);
            let sent = bytes.to_vec();
            assert_eq!(set.sequence_of(opcode, &sent, &values), Some(sequence));
            assert_eq!(set.sequence_of(Opcode::Binary, &sent, &values), None, "the type of the message is another");
            let other = [&[sent[0] ^ b'a' ^ b'b'], &sent[1..]].concat();
            assert_eq!(set.sequence_of(opcode, &other, &values), None, "the other message has another number");
        }
    }
}
