//! CPU cost of composing a message from a template, beside a fixed payload of the same bytes.
//!
//! Each is put into a frame and masked, as the load thread does with every message; connections take turns.

use std::{hint::black_box, sync::Arc};

use bench_format::websocket::MessageTemplate;
use criterion::{Criterion, criterion_group, criterion_main};
use loadgen_core::{
    frame::{Batch, Masks},
    workload::{Messages, Opcode},
};
use ws_bench::{
    constants::Constants,
    messages::{MessageSet, SectionMessages},
    mistakes::Mistakes,
    state::Connection,
    template::{Kind, Payload, Scope},
};

/// As many messages as one measurement composes, from one whose number has six digits.
const SEQUENCES: std::ops::Range<u64> = 123_456..124_456;
const CONNECTIONS: u32 = 16;
const KINDS: &[Kind] =
    &[Kind::Sequence, Kind::Connection, Kind::DueUs, Kind::Payload, Kind::Random, Kind::PacketId, Kind::Choice];

fn composer(text: &str, payload_bytes: usize) -> SectionMessages {
    let message = MessageTemplate { weight: 1, text: Some(text.into()), binary: Vec::new() };
    let payload = Payload::new(payload_bytes, 7);
    let scope = Scope { kinds: KINDS, captured: &[], columns: &[], payload: &payload };
    let set = MessageSet::compile(&[message], &scope, &mut Mistakes::default());
    SectionMessages::new(Arc::new(Constants { seed: 7, ..Constants::default() }), &set)
}

fn connections() -> Vec<Connection> {
    (0..CONNECTIONS).map(|index| Connection { index: 10 + index, ..Connection::default() }).collect()
}

/// Puts a thousand messages into batches of one.
fn push_all(batch: &mut Batch, masks: &mut Masks, mut compose: impl FnMut(&Connection, u64, &mut Batch, [u8; 4])) {
    let connections = connections();
    for sequence in SEQUENCES {
        batch.clear();
        let connection = &connections[sequence as usize % connections.len()];
        compose(connection, sequence, batch, masks.next_mask());
        black_box(batch.bytes());
    }
}

fn templates(criterion: &mut Criterion) {
    for (name, text, payload_bytes) in [
        ("echo of 175 bytes", r#"{"seq":{{sequence}},"due":{{due_us}},"text":"{{payload}}"}"#, 130),
        (
            "event with ack of 60 bytes",
            r#"42{{sequence}}["message",{"n":{{random 100 999}},"text":"{{payload}}"}]"#,
            17,
        ),
        ("request of 1000 bytes", r#"{"id":"c{{connection}}-{{sequence}}","params":["{{payload}}"]}"#, 963),
    ] {
        let mut group = criterion.benchmark_group(format!("1000 messages, {name}"));
        let (mut batch, mut masks) = (Batch::default(), Masks::new(7));
        let mut messages = composer(text, payload_bytes);
        let fixed = messages.message(&connections()[0], SEQUENCES.start, 1_700_000_000_000_000).1.to_vec();
        group.bench_function("fixed", |bencher| {
            bencher.iter(|| {
                push_all(&mut batch, &mut masks, |_, _, batch, mask| batch.push(Opcode::Text, black_box(&fixed), mask));
            });
        });
        group.bench_function("template", |bencher| {
            bencher.iter(|| {
                push_all(&mut batch, &mut masks, |connection, sequence, batch, mask| {
                    let (opcode, bytes) = messages.message(connection, sequence, 1_700_000_000_000_000 + sequence);
                    batch.push(opcode, bytes, mask);
                });
            });
        });
        group.finish();
    }
}

criterion_group!(benches, templates);
criterion_main!(benches);
