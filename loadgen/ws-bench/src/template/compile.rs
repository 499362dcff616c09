//! Turns the text and the fields of a section into templates.

use bench_format::websocket::{BinaryField, BinaryNumber};
use loadgen_core::workload::Opcode;

use super::{Kind, Part, Problem, Scope, Slot, Source, Template, TemplateError};
use crate::{hex, mistakes::Mistakes, number};

/// Deepest nesting of lengths in a binary message.
const DEEPEST: usize = 8;

impl Template {
    /// Compiles a text message.
    ///
    /// # Errors
    /// A [`TemplateError`] at the first placeholder that is unknown, malformed or without a value here.
    pub fn text(text: &str, scope: &Scope<'_>) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        push_text(&mut parts, text, scope)?;
        Ok(Self { opcode: Opcode::Text, parts }.numbered())
    }

    /// Compiles a message, of which exactly one of `text` and `binary` is set. Mistakes are added under `place`.
    pub fn frame(
        text: Option<&str>,
        binary: &[BinaryField],
        scope: &Scope<'_>,
        place: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        match (text, binary) {
            (Some(text), []) => {
                Self::text(text, scope).map_err(|error| mistakes.add(format!("{place}.text"), error)).ok()
            }
            (None, [_, ..]) => {
                let before = mistakes.count();
                let mut parts = Vec::new();
                push_fields(&mut parts, binary, scope, &format!("{place}.binary"), mistakes);
                (mistakes.count() == before).then(|| Self { opcode: Opcode::Binary, parts }.numbered())
            }
            _ => {
                mistakes.add(place, "set exactly one of text and binary");
                None
            }
        }
    }

    /// The template with neighbouring literals joined and its slots numbered.
    fn numbered(mut self) -> Self {
        let mut joined: Vec<Part> = Vec::new();
        let mut slots = 0;
        for part in self.parts {
            match (joined.last_mut(), part) {
                (Some(Part::Literal(before)), Part::Literal(after)) => *before = [&before[..], &after].concat().into(),
                (_, Part::Slot(slot)) => {
                    joined.push(Part::Slot(Slot { index: slots, ..slot }));
                    slots += 1;
                }
                (_, part) => joined.push(part),
            }
        }
        self.parts = joined;
        self
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str, scope: &Scope<'_>) -> Result<(), TemplateError> {
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|found| at + found) {
        let error = |problem| TemplateError::new(text, open, problem, scope.kinds);
        push_literal(parts, &text.as_bytes()[at..open]);
        let body = &text[open + 2..];
        let length = body.find("}}").ok_or_else(|| error(Problem::Unclosed))?;
        let source = source(&body[..length], scope).map_err(error)?;
        parts.push(Part::Slot(Slot { source, format: None, index: 0 }));
        at = open + 2 + length + 2;
    }
    push_literal(parts, &text.as_bytes()[at..]);
    Ok(())
}

fn push_literal(parts: &mut Vec<Part>, bytes: &[u8]) {
    if !bytes.is_empty() {
        parts.push(Part::Literal(bytes.into()));
    }
}

/// The source of a placeholder, from the text between its braces.
fn source(body: &str, scope: &Scope<'_>) -> Result<Source, Problem> {
    let (name, rest) = body.split_once(' ').unwrap_or((body, ""));
    let source = match (name, rest) {
        ("sequence", "") => Source::Sequence,
        ("packet_id", "") => Source::PacketId,
        ("connection", "") => Source::Connection,
        ("worker", "") => Source::Worker,
        ("due_us", "") => Source::DueUs,
        ("payload", "") => Source::Payload(scope.payload.clone()),
        ("payload_bytes", "") => Source::PayloadBytes(scope.payload.size as u64),
        ("random", bounds) => random(bounds)?,
        ("choice", "") => return Err(Problem::NoChoice),
        ("choice", texts) => Source::Choice(texts.split('|').map(|text| text.as_bytes().into()).collect()),
        _ => named(body)?,
    };
    let kind = source.kind();
    if !scope.kinds.contains(&kind) {
        return Err(Problem::NotHere(kind));
    }
    match (source, body.split_once('.')) {
        (Source::Captured(_), Some((_, name))) => {
            let at = scope.captured.iter().position(|captured| captured == name);
            let names = || scope.captured.to_vec();
            at.map(Source::Captured).ok_or_else(|| Problem::NoName { kind, name: name.into(), names: names() })
        }
        (Source::Row(..), Some((_, name))) => {
            let Some(columns) = scope.columns else { return Ok(Source::Row(0, 0)) };
            let at = columns.iter().position(|(column, _)| column == name);
            let names = || columns.iter().map(|(column, _)| column.clone()).collect();
            at.map(|at| Source::Row(at, columns[at].1)).ok_or_else(|| Problem::NoName {
                kind,
                name: name.into(),
                names: names(),
            })
        }
        (source, _) => Ok(source),
    }
}

/// A captured value or a column whose position isn't known yet.
fn named(body: &str) -> Result<Source, Problem> {
    match body.split_once('.') {
        Some(("captured", _)) => Ok(Source::Captured(0)),
        Some(("row", _)) => Ok(Source::Row(0, 0)),
        _ => Err(Problem::Unknown(body.into())),
    }
}

fn random(bounds: &str) -> Result<Source, Problem> {
    let malformed = || Problem::Bounds(bounds.into());
    let (from, to) = bounds.split_once(' ').ok_or_else(malformed)?;
    let number = |digits: &str| digits.parse::<u64>().ok();
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok(Source::Random(from..=to)),
        _ => Err(malformed()),
    }
}

fn push_fields(parts: &mut Vec<Part>, fields: &[BinaryField], scope: &Scope<'_>, place: &str, mistakes: &mut Mistakes) {
    if place.matches(".length.of").count() > DEEPEST {
        return mistakes.add(place, format!("lengths are nested deeper than {DEEPEST}"));
    }
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{place}[{index}]");
        match (&field.text, &field.hex, &field.number, &field.length) {
            (Some(text), None, None, None) => {
                if let Err(error) = push_text(parts, text, scope) {
                    mistakes.add(format!("{place}.text"), error);
                }
            }
            (None, Some(digits), None, None) => match hex::decode(digits) {
                Ok(bytes) => push_literal(parts, &bytes),
                Err(error) => mistakes.add(format!("{place}.hex"), error),
            },
            (None, None, Some(number), None) => match number_part(number, scope) {
                Ok(part) => parts.push(part),
                Err(error) => mistakes.add(format!("{place}.number.value"), error),
            },
            (None, None, None, Some(length)) => {
                parts.push(Part::Open(length.format));
                let from = parts.len();
                push_fields(parts, &length.of, scope, &format!("{place}.length.of"), mistakes);
                let (longest, most) = (most_bytes(&parts[from..]), number::most(length.format));
                if longest as u64 > most {
                    let advice = "use a wider format, or shorter fields";
                    mistakes.add(
                        format!("{place}.length.format"),
                        format!("the fields may take {longest} bytes, but the length can be {most} at most; {advice}"),
                    );
                }
                parts.push(Part::Close);
            }
            _ => mistakes.add(place, "set exactly one of text, hex, number and length"),
        }
    }
}

fn number_part(number: &BinaryNumber, scope: &Scope<'_>) -> Result<Part, String> {
    let most = number::most(number.format);
    let too_large = |value| format!("{value} doesn't fit; the format holds {most} at most");
    if let Ok(value) = number.value.parse::<u64>() {
        let (bytes, length) = number::encode(number.format, value);
        return if value > most { Err(too_large(value)) } else { Ok(Part::Literal(bytes[..length].into())) };
    }
    let mut parts = Vec::new();
    push_text(&mut parts, &number.value, scope).map_err(|error| error.to_string())?;
    let Some([Part::Slot(slot)]) = parts.first_chunk::<1>().filter(|_| parts.len() == 1) else {
        return Err(format!("{:?} is no number; give digits or one placeholder", number.value));
    };
    match (slot.source.kind(), slot.source.most()) {
        // The connection ends before a number would be repeated; the due time is a matter of 52 bits.
        (Kind::Sequence, Some(_)) => {}
        (Kind::DueUs, Some(_)) if most > u64::from(u32::MAX) => {}
        (_, Some(value)) if value <= most => {}
        (_, Some(value)) => return Err(too_large(value)),
        (kind, None) => return Err(format!("{} stands for a text; put it into a text field", kind.syntax())),
    }
    Ok(Part::Slot(Slot { format: Some(number.format), ..slot.clone() }))
}

/// Largest number of bytes that the parts take.
fn most_bytes(parts: &[Part]) -> usize {
    let longest = |format| number::width(format).unwrap_or(10);
    let bytes = parts.iter().map(|part| match part {
        Part::Literal(bytes) => bytes.len(),
        Part::Slot(Slot { format: Some(format), .. }) | Part::Open(format) => longest(*format),
        Part::Slot(slot) => slot.source.most_bytes(),
        Part::Close => 0,
    });
    bytes.sum()
}
