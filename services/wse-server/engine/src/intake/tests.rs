use std::io::Write;

use super::*;

const KEY: u64 = 7;

fn intake(arenas: usize) -> Intake {
    let mut intake = Intake::new(0);
    intake.arenas_limit = arenas;
    intake
}

fn key() -> ConnectionKey {
    ConnectionKey::from_u64(KEY)
}

/// Reads `bytes` and keeps them as one message.
fn store_message(intake: &mut Intake, bytes: &[u8]) {
    assert!(intake.reserve(0, false));
    let start = intake.begin_read(bytes);
    intake.push(Kind::Json, key(), PayloadLocation::Arena(start..start + bytes.len()), 0..bytes.len(), None);
    intake.end_read();
}

fn data(queued: &[Queued]) -> Vec<Vec<u8>> {
    let messages = queued.iter().flat_map(|q| q.segment.entries.iter().map(|entry| q.segment.message(entry)));
    messages.map(|message| message.data.to_vec()).collect()
}

#[test]
fn a_read_without_stored_messages_leaves_the_arena_empty() {
    let mut intake = intake(1);
    assert!(intake.reserve(0, false));
    intake.begin_read(b"ping");
    intake.end_read();
    assert!(intake.bytes().is_empty() && intake.arrived().is_empty());
}

#[test]
fn messages_from_different_buffers_stay_in_order() {
    let mut intake = intake(4);
    store_message(&mut intake, b"arena one");
    intake.push(Kind::Raw, key(), PayloadLocation::Own(b"..copied".to_vec(), 2..8), 0..6, None);
    let big = vec![b'x'; COPY_BYTES + 1];
    intake.push(Kind::Raw, key(), PayloadLocation::Own(big.clone(), 0..big.len()), 0..big.len(), None);
    store_message(&mut intake, b"arena two");
    intake.push_event(Kind::Disconnect, key(), "id", b"");
    let arrived = std::mem::take(intake.arrived());
    let expected: Vec<Vec<u8>> = vec![b"arena one".into(), b"copied".into(), big, b"arena two".into(), Vec::new()];
    assert_eq!(data(&arrived), expected);
    let charged: usize = arrived.iter().map(|queued| queued.bytes).sum();
    assert_eq!(charged, 9 + 6 + COPY_BYTES + 1 + 9 + 2);
    assert_eq!(arrived.iter().map(|queued| queued.messages).sum::<usize>(), 4);
}

#[test]
fn messages_survive_the_change_to_another_arena_within_a_round() {
    let mut intake = intake(4);
    let chunk = vec![b'a'; READ_BYTES];
    for _ in 0..6 {
        store_message(&mut intake, &chunk);
    }
    let arrived = std::mem::take(intake.arrived());
    assert!(data(&arrived).iter().all(|message| *message == chunk));
    assert_eq!((data(&arrived).len(), intake.arenas), (6, 2));
}

#[test]
fn arenas_are_reused_only_after_their_blobs_are_dropped() {
    let mut intake = intake(2);
    let chunk = vec![b'a'; READ_BYTES];
    let mut batches = Vec::new();
    while intake.reserve(0, false) {
        store_message(&mut intake, &chunk);
        batches.append(intake.arrived());
    }
    assert_eq!((intake.arenas, batches.len()), (2, 8));
    drop(batches);
    for _ in 0..100 {
        store_message(&mut intake, &chunk);
        intake.arrived().clear();
    }
    assert_eq!(intake.arenas, 2);
}

#[test]
fn a_read_appends_to_the_partial_frame() {
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.write_all(b" and more").unwrap();
    let mut intake = intake(1);
    assert!(intake.reserve(5, false));
    intake.begin_read(b"first");
    assert_eq!(intake.read(&far, READ_BYTES).unwrap(), (9, READ_BYTES));
    assert_eq!(intake.bytes(), b"first and more");
}

#[test]
fn each_read_is_a_run_of_its_connection_in_every_piece_that_it_reached() {
    let mut intake = intake(4);
    let (first, second) = (ConnectionKey::from_u64(1), ConnectionKey::from_u64(2));
    store_message(&mut intake, b"one");
    store_message(&mut intake, b"three");
    assert_eq!(intake.end_run(first), (2, 8));
    assert_eq!(intake.end_run(first), (0, 0));
    store_message(&mut intake, b"in");
    intake.push(Kind::Raw, second, PayloadLocation::Own(b"beside".to_vec(), 0..6), 0..6, None);
    intake.push_event(Kind::Connect, first, "id", b"no message");
    assert_eq!(intake.end_run(second), (2, 8));
    let runs: Vec<Vec<Run>> = intake.arrived().iter().map(|queued| queued.runs.as_slice().to_vec()).collect();
    let run = |connection, messages, bytes| Run { connection, messages, bytes };
    assert_eq!(runs, [vec![run(first, 2, 8), run(second, 1, 2)], vec![run(second, 1, 6)]]);
    store_message(&mut intake, b"next round");
    assert_eq!(intake.end_run(second), (1, 10));
}
