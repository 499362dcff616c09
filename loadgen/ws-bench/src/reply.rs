//! What a message of the service says about the messages of the load. Pure.

use bench_format::websocket::{Reply, ReplyBy};
use loadgen_core::workload::{AnswerPart, AnswerTo, Opcode, Received};

use crate::{
    condition::Condition,
    extract::{Extracted, Extractor},
    messages::MessageSet,
    mistakes::Mistakes,
    template::{Kind, PACKET_IDS, Scope, Template, Values, digits},
};

/// How replies are read.
#[derive(Clone, Debug)]
pub struct ReplyReader {
    when: Condition,
    by: By,
    error: Option<Condition>,
    end: Option<Condition>,
}

#[derive(Clone, Debug)]
enum By {
    Same,
    Sequence { value: Extractor, text: Option<Template> },
    PacketId { value: Extractor },
    Order,
}

impl ReplyReader {
    /// Compiles the section's reply; its mistakes are added. `scope` is that of `reply.text`.
    pub fn compile(reply: &Reply, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Option<Self> {
        let when = Condition::compile(&reply.when, "reply.when", mistakes);
        let error = reply.error.as_ref().map(|when| Condition::compile_narrow(when, "reply.error", mistakes));
        let end = reply.end.as_ref().map(|when| Condition::compile_narrow(when, "reply.end", mistakes));
        if reply.by == ReplyBy::Same && reply.end.is_some() {
            mistakes.add("reply.end", "a reply that equals its message has no parts; match by sequence or order");
        }
        let by = by(reply, scope, mistakes)?;
        Some(Self { when, by, error, end })
    }

    /// Whether replies have several parts.
    pub fn has_parts(&self) -> bool {
        self.end.is_some()
    }

    /// Reads one message of the service.
    pub fn read(&self, messages: &MessageSet, opcode: Opcode, message: &[u8], values: &Values<'_>) -> Received {
        let holds = |condition: &Option<Condition>| condition.as_ref().is_some_and(|when| when.holds(message));
        let part = if holds(&self.error) {
            AnswerPart::Error
        } else if holds(&self.end) {
            AnswerPart::Last
        } else if !self.when.holds(message) {
            return Received::Other;
        } else if self.end.is_some() {
            AnswerPart::More
        } else {
            AnswerPart::Last
        };
        let to = match &self.by {
            By::Order => Some(AnswerTo::Oldest),
            By::Same => messages.sequence_of(opcode, message, values).map(AnswerTo::Sequence),
            By::Sequence { value, text } => sequence(value, text.as_ref(), message, values).map(AnswerTo::Sequence),
            By::PacketId { value } => packet_id(value, message),
        };
        to.map_or(Received::Wrong, |to| Received::Answer { to, part })
    }
}

fn by(reply: &Reply, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Option<By> {
    let needs_value = matches!(reply.by, ReplyBy::Sequence | ReplyBy::PacketId);
    if reply.text.is_some() && reply.by != ReplyBy::Sequence {
        mistakes.add("reply.text", "is only used with by: sequence; remove it");
    }
    if reply.value.is_some() && !needs_value {
        mistakes.add("reply.value", "is only used with by: sequence and by: packet_id; remove it");
    }
    let value = match &reply.value {
        Some(extract) if needs_value => Extractor::compile(extract, "reply.value", mistakes),
        None if needs_value => {
            mistakes.add("reply.value", "is missing; say by json, regex or bytes where a reply has the number");
            None
        }
        _ => None,
    };
    match reply.by {
        ReplyBy::Same => Some(By::Same),
        ReplyBy::Order => Some(By::Order),
        ReplyBy::PacketId => value.map(|value| By::PacketId { value }),
        ReplyBy::Sequence => {
            let text = reply.text.as_ref().and_then(|text| reply_text(text, scope, mistakes));
            value.map(|value| By::Sequence { value, text })
        }
    }
}

fn reply_text(text: &str, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Option<Template> {
    let template = Template::text(text, scope).map_err(|error| mistakes.add("reply.text", error)).ok()?;
    if !template.has(Kind::Sequence) {
        mistakes.add("reply.text", "has no {{sequence}}; write it where the number of the message stands");
    }
    if template.has_unclear_number() {
        mistakes.add("reply.text", "a number runs into the digits behind it; put another character between them");
    }
    Some(template)
}

fn sequence(value: &Extractor, text: Option<&Template>, message: &[u8], values: &Values<'_>) -> Option<u64> {
    match (value.find(message)?, text) {
        (Extracted::Number(number), None) => Some(number),
        (found, Some(text)) => text.sequence_of(&found.text(), values),
        (Extracted::Text(text), None) => whole_number(&text),
    }
}

fn packet_id(value: &Extractor, message: &[u8]) -> Option<AnswerTo> {
    let id = match value.find(message)? {
        Extracted::Number(number) => number,
        Extracted::Text(text) => whole_number(&text)?,
    };
    (1..=PACKET_IDS).contains(&id).then(|| AnswerTo::Modulo { remainder: id - 1, modulus: PACKET_IDS })
}

/// The number that a text is as a whole.
fn whole_number(text: &[u8]) -> Option<u64> {
    digits(text).filter(|(_, length)| *length == text.len()).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::{Extract, When};

    use super::*;
    use crate::{constants::Constants, state::Connection, template::Payload};

    fn starts_with(text: &str) -> When {
        When { starts_with: Some(text.into()), ..When::default() }
    }

    fn reply(by: ReplyBy) -> Reply {
        let value = Extract { regex: Some("[a-z]+ ([^ ]*)".into()), ..Extract::default() };
        let has_value = matches!(by, ReplyBy::Sequence | ReplyBy::PacketId);
        Reply { when: starts_with("r "), by, value: has_value.then_some(value), ..Reply::default() }
    }

    fn read(reply: &Reply, message: &str) -> Received {
        let payload = Payload::default();
        let kinds = &[Kind::Sequence, Kind::Connection];
        let scope = Scope { kinds, captured: &[], columns: Some(&[]), payload: &payload };
        let mut mistakes = Mistakes::default();
        let reader = ReplyReader::compile(reply, &scope, &mut mistakes).unwrap();
        assert_eq!(mistakes.into_list(), []);
        let connection = Connection { index: 12, ..Connection::default() };
        let constants = Constants::default();
        let values = constants.values(&connection, 0, 0);
        reader.read(&MessageSet::default(), Opcode::Text, message.as_bytes(), &values)
    }

    fn answer(to: AnswerTo, part: AnswerPart) -> Received {
        Received::Answer { to, part }
    }

    #[test]
    fn a_number_must_be_the_whole_value() {
        let reply = reply(ReplyBy::Sequence);
        assert_eq!(read(&reply, "r 17"), answer(AnswerTo::Sequence(17), AnswerPart::Last));
        assert_eq!(read(&reply, "x 17"), Received::Other);
        for wrong in ["r 017", "r 17x", "r -1", "r 18446744073709551616", "r "] {
            assert_eq!(read(&reply, wrong), Received::Wrong, "{wrong}");
        }
    }

    #[test]
    fn a_text_around_the_number_must_be_that_of_the_connection() {
        let reply = Reply { text: Some("c{{connection}}-{{sequence}}".into()), ..reply(ReplyBy::Sequence) };
        assert_eq!(read(&reply, "r c12-5"), answer(AnswerTo::Sequence(5), AnswerPart::Last));
        for wrong in ["r c13-5", "r c12-5-", "r 5"] {
            assert_eq!(read(&reply, wrong), Received::Wrong, "{wrong}");
        }
    }

    #[test]
    fn a_packet_id_is_a_remainder() {
        let reply = reply(ReplyBy::PacketId);
        let to = |remainder| AnswerTo::Modulo { remainder, modulus: PACKET_IDS };
        assert_eq!(read(&reply, "r 1"), answer(to(0), AnswerPart::Last));
        assert_eq!(read(&reply, "r 65535"), answer(to(65_534), AnswerPart::Last));
        assert_eq!([read(&reply, "r 0"), read(&reply, "r 65536")], [Received::Wrong; 2]);
    }

    #[test]
    fn errors_and_ends_are_replies_even_where_when_does_not_hold() {
        let (error, end) = (Some(starts_with("e ")), Some(starts_with("end ")));
        let reply = Reply { error, end, ..reply(ReplyBy::Order) };
        let oldest = |part| answer(AnswerTo::Oldest, part);
        assert_eq!(read(&reply, "r"), Received::Other);
        assert_eq!(read(&reply, "r 1"), oldest(AnswerPart::More));
        assert_eq!(read(&reply, "end 1"), oldest(AnswerPart::Last));
        assert_eq!(read(&reply, "e 1"), oldest(AnswerPart::Error));
    }
}
