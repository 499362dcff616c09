//! Tests of templates: compiled, composed, and found again in echoes.

use bench_format::websocket::{BinaryField, BinaryLength, BinaryNumber, NumberFormat};
use proptest::prelude::*;

use super::*;
use crate::mistakes::Mistakes;

fn scope_test<T>(test: impl FnOnce(&Scope<'_>) -> T) -> T {
    let payload = Payload::new(20, 7);
    let captured = ["sid".to_owned()];
    test(&Scope { kinds: Kind::ALL, captured: &captured, columns: Some(&[("user".to_owned(), 3)]), payload: &payload })
}

fn text(template: &str) -> Template {
    scope_test(|scope| Template::text(template, scope).unwrap())
}

fn error(template: &str) -> TemplateError {
    scope_test(|scope| Template::text(template, scope).unwrap_err())
}

/// A binary template, or the mistakes in its fields.
fn binary(fields: &[BinaryField]) -> Result<Template, Vec<(String, String)>> {
    let mut mistakes = Mistakes::default();
    let template = scope_test(|scope| Template::frame(None, fields, scope, "messages[0]", &mut mistakes));
    template.ok_or_else(|| mistakes.into_list())
}

fn number(format: NumberFormat, value: &str) -> BinaryField {
    BinaryField { number: Some(BinaryNumber { format, value: value.into() }), ..BinaryField::default() }
}

fn letters(template: &str) -> BinaryField {
    BinaryField { text: Some(template.into()), ..BinaryField::default() }
}

fn hex(digits: &str) -> BinaryField {
    BinaryField { hex: Some(digits.into()), ..BinaryField::default() }
}

fn length(format: NumberFormat, of: Vec<BinaryField>) -> BinaryField {
    BinaryField { length: Some(BinaryLength { format, of }), ..BinaryField::default() }
}

struct Fixture {
    captured: Vec<Box<[u8]>>,
    row: Vec<Box<[u8]>>,
}

impl Fixture {
    fn new() -> Self {
        Self { captured: vec![b"s-1".as_slice().into()], row: vec![b"ann".as_slice().into()] }
    }

    fn values(&self, sequence: u64) -> Values<'_> {
        let due_us = 1_700_000_000_000_000_u64.wrapping_add(sequence);
        Values { seed: 3, connection: 12, worker: 1, sequence, due_us, captured: &self.captured, row: &self.row }
    }
}

fn composed(template: &Template, sequence: u64) -> String {
    let fixture = Fixture::new();
    String::from_utf8(template.bytes(&fixture.values(sequence))).unwrap()
}

/// Templates of many shapes, each with a sequence number.
fn templates() -> Vec<Template> {
    let packet = |topic| {
        let content = vec![
            length(NumberFormat::U16be, vec![letters(topic)]),
            number(NumberFormat::U16be, "{{packet_id}}"),
            letters("{{payload}} {{due_us}};"),
            number(NumberFormat::Varint, "{{sequence}}"),
        ];
        binary(&[hex("32"), length(NumberFormat::Varint, content)]).unwrap()
    };
    vec![
        text(r#"{"id":{{sequence}},"at":{{due_us}},"text":"{{payload}}"}"#),
        text("{{random 0 1000}}-{{choice a|ab|abc|}}{{choice b|c}}:{{sequence}}/{{packet_id}} {{sequence}}"),
        text("{{captured.sid}}.{{row.user}}.{{connection}}.{{worker}}.{{sequence}}"),
        text("{{payload}}{{sequence}}{{payload}}"),
        packet("a/{{connection}}"),
        packet("{{choice long/topic|t}}/{{random 1 100000}}/"),
        binary(&[number(NumberFormat::U64le, "{{sequence}}"), letters("{{payload}}")]).unwrap(),
    ]
}

/// Pieces of templates, many of which are unclear beside a number.
const PIECES: [&str; 14] = [
    "{{packet_id}}",
    "{{connection}}",
    "{{due_us}}",
    "{{payload}}",
    "{{random 0 20}}",
    "{{choice a|a1|ab}}",
    "{{choice |b|bb}}",
    "{{choice 1|11}}",
    "{{captured.sid}}",
    "{{row.user}}",
    "a",
    "b",
    "-",
    "1",
];

proptest! {
    #[test]
    fn a_message_is_the_same_after_any_other(sequences in prop::collection::vec(0_u64..200_000, 1..20)) {
        let fixture = Fixture::new();
        for template in templates() {
            let mut composer = Composer::new(template.clone());
            for sequence in &sequences {
                let values = fixture.values(*sequence);
                let (opcode, bytes) = composer.compose(&values);
                prop_assert_eq!(opcode, template.opcode());
                prop_assert_eq!(bytes, template.bytes(&values));
            }
        }
    }

    #[test]
    fn an_echo_names_its_message(sequence: u64) {
        let fixture = Fixture::new();
        for template in templates() {
            let bytes = template.bytes(&fixture.values(sequence));
            prop_assert_eq!(template.sequence_of(&bytes, &fixture.values(0)), Some(sequence), "{:?}", template);
        }
    }

    #[test]
    fn a_changed_echo_is_another_message_or_none(sequence in 0_u64..100_000, at in any::<prop::sample::Index>(), change in 1_u8..) {
        let fixture = Fixture::new();
        for template in templates().into_iter().filter(|template| !template.has(Kind::DueUs)) {
            let mut bytes = template.bytes(&fixture.values(sequence));
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            let found = template.sequence_of(&bytes, &fixture.values(0));
            // Where it is a message, it is exactly the one that would have been sent under that number.
            if let Some(other) = found {
                prop_assert_eq!(template.bytes(&fixture.values(other)), bytes);
            }
            prop_assert_ne!(found, Some(sequence));
        }
    }

    #[test]
    fn a_longer_or_shorter_echo_is_none(sequence: u64, cut in any::<prop::sample::Index>()) {
        let fixture = Fixture::new();
        // The last one ends with its number, whose first digits are a number, too.
        for template in templates().into_iter().skip(3) {
            let mut bytes = template.bytes(&fixture.values(sequence));
            let shorter = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(template.sequence_of(shorter, &fixture.values(0)), None);
            bytes.push(b'x');
            prop_assert_eq!(template.sequence_of(&bytes, &fixture.values(0)), None);
        }
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let fixture = Fixture::new();
        for template in templates() {
            template.sequence_of(&bytes, &fixture.values(0));
        }
    }

    #[test]
    fn an_echo_of_any_clear_template_names_its_message(
        parts in prop::collection::vec(0..PIECES.len(), 1..7), at in any::<prop::sample::Index>(), sequence in 0_u64..2000,
    ) {
        let mut pieces: Vec<_> = parts.iter().map(|index| PIECES[*index]).collect();
        pieces.insert(at.index(parts.len() + 1), "{{sequence}}");
        let template = text(&pieces.concat());
        let fixture = Fixture::new();
        let bytes = template.bytes(&fixture.values(sequence));
        if !template.has_unclear_number() {
            prop_assert_eq!(template.sequence_of(&bytes, &fixture.values(0)), Some(sequence), "{:?}", pieces);
        }
    }

    #[test]
    fn random_text_as_a_template_compiles_or_is_reported(source in r"[{}a .|]{0,12}") {
        let _ = scope_test(|scope| Template::text(&source, scope));
    }
}

#[test]
fn every_placeholder_stands_for_its_value() {
    let template = text(
        "{{sequence}} {{packet_id}} {{connection}} {{worker}} {{due_us}} {{captured.sid}} {{row.user}} {{payload_bytes}}",
    );
    assert_eq!(composed(&template, 65_535), "65535 1 12 1 1700000000065535 s-1 ann 20");
    assert_eq!(composed(&text("a{b}}c"), 0), "a{b}}c", "single braces are text");
    assert_eq!(composed(&text(r#"{"id":{{sequence}}}"#), 9), r#"{"id":9}"#);
}

#[test]
fn random_choices_follow_from_seed_connection_and_sequence() {
    let template = text("{{random 1 6}}{{choice a|b|c}}{{payload}}");
    let all: std::collections::BTreeSet<_> = (0..1000).map(|sequence| composed(&template, sequence)).collect();
    assert!(all.len() > 990, "{} different messages of 1000", all.len());
    assert!(all.iter().all(|message| message.len() == 22 && ('1'..='6').contains(&message.chars().next().unwrap())));
    let faces: std::collections::BTreeSet<_> = all.iter().map(|message| &message[..2]).collect();
    assert_eq!(faces.len(), 18, "all numbers with all texts");
    assert_eq!(composed(&template, 5), composed(&template, 5));
    let fixture = Fixture::new();
    let other = template.bytes(&Values { connection: 13, ..fixture.values(5) });
    assert_ne!(other, composed(&template, 5).into_bytes());
}

#[test]
fn a_binary_message_has_its_lengths() {
    // An MQTT CONNECT (MQTT 3.1.1, section 3.1).
    let connect = binary(&[
        hex("10"),
        length(
            NumberFormat::Varint,
            vec![
                length(NumberFormat::U16be, vec![letters("MQTT")]),
                hex("04 02"),
                number(NumberFormat::U16be, "2"),
                length(NumberFormat::U16be, vec![letters("c{{worker}}")]),
            ],
        ),
    ]);
    let bytes = connect.unwrap().bytes(&Fixture::new().values(0));
    assert_eq!(bytes, crate::hex::decode("10 0e 00 04 4d 51 54 54 04 02 00 02 00 02 63 31").unwrap());
}

#[test]
fn a_mistake_names_template_column_and_what_is_known() {
    let unknown = error("é {{sequnce}}");
    assert_eq!((unknown.column, &unknown.problem), (3, &Problem::Unknown("sequnce".into())));
    let message = unknown.to_string();
    assert!(message.starts_with(r#"column 3 of "é {{sequnce}}": there is no placeholder {{sequnce}}; known here:"#));
    assert!(message.contains("{{random A B}}") && message.contains("{{row.NAME}}"), "{message}");
    for (template, problem) in [
        ("{{sequence", Problem::Unclosed),
        ("{{}}", Problem::Unknown(String::new())),
        ("{{ sequence }}", Problem::Unknown(" sequence ".into())),
        ("{{sequence 1}}", Problem::Unknown("sequence 1".into())),
        ("{{random 6 1}}", Problem::Bounds("6 1".into())),
        ("{{random -1 1}}", Problem::Bounds("-1 1".into())),
        ("{{random}}", Problem::Bounds(String::new())),
        ("{{choice}}", Problem::NoChoice),
    ] {
        assert_eq!(error(template).problem, problem, "{template}");
    }
    assert!(error("{{captured.id}}").to_string().contains(r#"the name "id" (sid)"#));
    assert!(error("{{row.x}}").to_string().contains(r#"no column of the rows has the name "x" (user)"#));
}

#[test]
fn a_placeholder_without_a_value_at_its_place_is_a_mistake() {
    let payload = Payload::default();
    let scope = Scope { kinds: &[Kind::Worker], captured: &[], columns: Some(&[]), payload: &payload };
    let error = Template::text("{{worker}} {{sequence}}", &scope).unwrap_err();
    assert_eq!((error.column, error.problem), (12, Problem::NotHere(Kind::Sequence)));
    assert_eq!(error.known, "{{worker}}");
}

#[test]
fn fields_of_a_binary_message_that_cannot_be_are_listed_with_their_places() {
    let mistakes = binary(&[
        BinaryField::default(),
        hex("0"),
        number(NumberFormat::U8, "256"),
        number(NumberFormat::U8, "{{packet_id}}"),
        number(NumberFormat::U32be, "{{payload}}"),
        number(NumberFormat::U16be, "1{{worker}}"),
        number(NumberFormat::U32be, "{{due_us}}"),
        length(NumberFormat::U8, vec![letters("{{captured.sid}}")]),
        letters("{{nothing}}"),
    ])
    .unwrap_err();
    let places: Vec<_> = mistakes.iter().map(|(place, _)| place.strip_prefix("messages[0].binary").unwrap()).collect();
    let value = |n| format!("[{n}].number.value");
    let expected = [
        "[0]".to_owned(),
        "[1].hex".into(),
        value(2),
        value(3),
        value(4),
        value(5),
        value(6),
        "[7].length.format".into(),
        "[8].text".into(),
    ];
    assert_eq!(places, expected, "{mistakes:#?}");
}

#[test]
fn the_narrowest_field_bounds_the_sequence() {
    let most = |format| binary(&[number(format, "{{sequence}}")]).unwrap().most_sequence();
    assert_eq!(most(NumberFormat::U8), 255);
    assert_eq!(most(NumberFormat::U32le), u64::from(u32::MAX));
    assert_eq!(text("{{sequence}}").most_sequence(), u64::MAX);
}

#[test]
fn a_number_that_runs_into_digits_is_unclear() {
    for unclear in
        ["{{sequence}}{{due_us}}", "{{sequence}}0", "{{sequence}}{{captured.sid}}", "{{random 1 2}}{{choice a|}}1"]
    {
        assert!(text(unclear).has_unclear_number(), "{unclear}");
    }
    for clear in [
        "{{sequence}}-{{due_us}}",
        "{{connection}}{{sequence}}",
        "1{{sequence}}",
        "{{sequence}}{{payload}}",
        "{{sequence}}{{choice a|b}}",
    ] {
        assert!(!text(clear).has_unclear_number(), "{clear}");
    }
}
