//! A service that only a plan describes: a section in which values are changed has mistakes, or it is spoken by: all bytes
//! that the service sends are handled, and what is kept of it and what is sent in response stay bounded.
#![no_main]

use bench_format::websocket::WireWebsocket;
use libfuzzer_sys::fuzz_target;
use loadgen_core::workload::{Admission, Messages, Opcode, Outbox, Workload};
use ws_bench::{
    check, check_printed,
    protocol::{Use, Websocket},
    section::{Section, Trial},
};
use ws_ladder_fuzz::changed;

/// A section in which each field is set.
const SECTION: &str = include_str!("../documents/websocket.json");
/// What connections are used for, by the first byte.
const USES: [Use; 5] = [Use::Open, Use::Replies, Use::Parts, Use::Send, Use::Fanout];
/// What the command for rows has printed.
const ROWS: &str = "{\"user\":7,\"token\":\"t-1\"}\n{\"user\":8,\"token\":\"t-2\"}\n";
/// Most messages in response to one of the service's, with those of the opening.
const MOST_RESPONSES: usize = 2048;

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let Ok(wire) = serde_json::from_value::<WireWebsocket>(changed(SECTION, input.1)) else { return };
    assert!(check(&wire).iter().all(|(_, message)| !message.is_empty()), "without the rows, too");
    let mistakes = check_printed(&wire, ROWS);
    assert!(mistakes.iter().all(|(_, message)| !message.is_empty()));
    let trial = Trial {
        path: ("/", "path"),
        tls_name: None,
        more_targets: &[],
        printed_rows: Some(ROWS),
        seed: 1,
        worker: 0,
        payload_bytes: 16,
    };
    let Ok(section) = Section::compile(&wire, &trial) else {
        return assert!(!mistakes.is_empty());
    };
    let client = Websocket::new(section, USES[usize::from(input.0) % USES.len()]);
    let (mut connection, mut outbox, mut received) = (Default::default(), Outbox::default(), Vec::new());
    let mut admission = client.begin(&mut connection, 1, &mut outbox);
    for message in input.2.split(|byte| *byte == 0xFF) {
        let (opcode, message) = match message {
            [0xFE, binary @ ..] => (Opcode::Binary, binary),
            text => (Opcode::Text, text),
        };
        match admission {
            Admission::Waiting => admission = client.admit(&mut connection, opcode, message, &mut outbox),
            // An empty message stands for the time that passes.
            Admission::Timed { timer, .. } if message.is_empty() => {
                admission = client.elapsed(&mut connection, timer, &mut outbox);
            }
            Admission::Timed { .. } => match client.admit(&mut connection, opcode, message, &mut outbox) {
                Admission::Waiting => {}
                next => admission = next,
            },
            Admission::Refused(_) => break,
            Admission::Ready { .. } => {
                client.receive(&mut connection, opcode, message, &mut outbox, &mut received);
                received.clear();
            }
        }
        assert!(outbox.take().count() <= MOST_RESPONSES);
    }
    let mut messages = client.messages();
    for sequence in [0, 1, 70_000] {
        let first = messages.message(&connection, sequence, 5).1.to_vec();
        assert_eq!(messages.message(&connection, sequence, 5).1, first, "a message can be composed again");
        for nth in 0..usize::from(client.frames_per_message() - 1) {
            let first = messages.attachment(&connection, sequence, 5, nth).to_vec();
            assert_eq!(messages.attachment(&connection, sequence, 5, nth), first);
        }
    }
});
