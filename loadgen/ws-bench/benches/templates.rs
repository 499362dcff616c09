//! CPU cost of composing a message from a template, beside a fixed payload of the same bytes.
//!
//! Framed: each message is put into a frame and masked. Written: it is also handed to a socket, one message per
//! system call, as the load thread does. Connections take turns.

use std::{hint::black_box, net::UdpSocket, sync::Arc};

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
const DUE_US: u64 = 1_700_000_000_000_000;
const KINDS: &[Kind] =
    &[Kind::Sequence, Kind::Connection, Kind::DueUs, Kind::Payload, Kind::Random, Kind::PacketId, Kind::Choice];

fn composer(text: &str, payload_bytes: usize) -> SectionMessages {
    let message = MessageTemplate { weight: 1, text: Some(text.into()), binary: Vec::new(), attachments: Vec::new() };
    let payload = Payload::new(payload_bytes, 7);
    let scope = Scope { kinds: KINDS, captured: &[], columns: Some(&[]), payload: &payload };
    let set = MessageSet::compile(&[message], &scope, &mut Mistakes::default());
    SectionMessages::new(Arc::new(Constants { seed: 7, ..Constants::default() }), &set)
}

fn connections() -> Vec<Connection> {
    (0..CONNECTIONS).map(|index| Connection { index: 10 + index, ..Connection::default() }).collect()
}

/// A socket whose messages the kernel handles and then discards, because no buffer is left: what a write costs, without
/// another thread that wakes up. The other end must be kept.
fn socket() -> (UdpSocket, UdpSocket) {
    let other = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    socket.connect(other.local_addr().expect("it is bound")).expect("it is a loopback address");
    (socket, other)
}

/// Puts a thousand messages into batches of one and passes each to `write`.
fn push_all(
    write: &mut impl FnMut(&[u8]),
    batch: &mut Batch,
    masks: &mut Masks,
    mut compose: impl FnMut(&Connection, u64, &mut Batch, [u8; 4]),
) {
    let connections = connections();
    for sequence in SEQUENCES {
        batch.clear();
        let connection = &connections[sequence as usize % connections.len()];
        compose(connection, sequence, batch, masks.next_mask());
        write(batch.bytes());
    }
}

fn compare(criterion: &mut Criterion, name: &str, mut write: impl FnMut(&[u8])) {
    for (kind, text, payload_bytes) in [
        ("echo of 175 bytes", r#"{"seq":{{sequence}},"due":{{due_us}},"text":"{{payload}}"}"#, 130),
        ("event of 60 bytes", r#"42{{sequence}}["message",{"n":{{random 100 999}},"text":"{{payload}}"}]"#, 17),
        ("request of 1000 bytes", r#"{"id":"c{{connection}}-{{sequence}}","params":["{{payload}}"]}"#, 963),
    ] {
        let mut group = criterion.benchmark_group(format!("1000 messages {name}, {kind}"));
        let (mut batch, mut masks) = (Batch::default(), Masks::new(7));
        let mut messages = composer(text, payload_bytes);
        let fixed = messages.message(&connections()[0], SEQUENCES.start, DUE_US).1.to_vec();
        group.bench_function("fixed", |bencher| {
            bencher.iter(|| {
                push_all(&mut write, &mut batch, &mut masks, |_, _, batch, mask| {
                    batch.push(Opcode::Text, black_box(&fixed), mask);
                });
            });
        });
        group.bench_function("template", |bencher| {
            bencher.iter(|| {
                push_all(&mut write, &mut batch, &mut masks, |connection, sequence, batch, mask| {
                    let (opcode, bytes) = messages.message(connection, sequence, DUE_US + sequence);
                    batch.push(opcode, bytes, mask);
                });
            });
        });
        group.finish();
    }
}

fn templates(criterion: &mut Criterion) {
    compare(criterion, "framed", |bytes| {
        black_box(bytes);
    });
    let (socket, _other) = socket();
    compare(criterion, "written", |bytes| {
        socket.send(bytes).expect("the other end exists");
    });
}

criterion_group!(benches, templates);
criterion_main!(benches);
