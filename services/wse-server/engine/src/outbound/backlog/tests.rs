use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::frame::Opcode;

fn backlog(sizes: &[usize]) -> Backlog {
    let mut backlog = Backlog::default();
    for size in sizes {
        let chunk = Chunk { bytes: vec![0; *size].into(), messages: 1, is_own: *size != 11 };
        backlog.push(chunk, Level::Normal, 0);
    }
    backlog
}

#[test]
fn a_message_counts_as_sent_with_its_last_byte() {
    let mut backlog = backlog(&[10, 10, 10]);
    assert_eq!((backlog.advance(15), backlog.bytes()), (1, 15));
    assert_eq!((backlog.advance(4), backlog.bytes()), (0, 11));
    assert_eq!((backlog.advance(11), backlog.is_empty()), (2, true));
}

#[test]
fn giving_up_keeps_the_partly_sent_chunk() {
    let mut backlog = backlog(&[10, 10, 10]);
    backlog.advance(5);
    assert_eq!((backlog.give_up(), backlog.bytes()), ([0, 0, 2, 0, 0], 5));
    assert_eq!((backlog.finish(), backlog.bytes()), ((0, 1), 0));
}

#[test]
fn complete_messages_of_a_partly_sent_chunk_count_as_sent_and_the_others_do_not() {
    let mut frames = BytesMut::new();
    for payload in ["one", "two", "three"] {
        frame::put(&mut frames, Opcode::Text, payload.as_bytes());
    }
    let frames = frames.freeze();
    for (written, out) in [(1, 0), (4, 0), (5, 1), (9, 1), (10, 2), (16, 2)] {
        let mut begun = Backlog::default();
        begun.push(Chunk::shared(frames.clone(), 3), Level::Normal, written);
        assert_eq!((begun.bytes(), begun.finish()), (17 - written, (out, 3 - out)), "{written}");
        let mut advanced = Backlog::default();
        advanced.push(Chunk::shared(frames.clone(), 3), Level::Normal, 0);
        advanced.push(Chunk::shared(frames.clone(), 3), Level::Normal, 0);
        assert_eq!(advanced.advance(written), 0);
        assert_eq!(advanced.finish(), (out, 6 - out), "{written}");
    }
}

#[test]
fn shared_bytes_are_not_counted_for_the_client() {
    let mut backlog = backlog(&[10, 11, 10]);
    assert_eq!((backlog.bytes(), backlog.own_bytes()), (31, 20));
    backlog.advance(15);
    assert_eq!((backlog.bytes(), backlog.own_bytes()), (16, 10));
    backlog.advance(8);
    assert_eq!((backlog.bytes(), backlog.own_bytes()), (8, 8));
    backlog.finish();
    assert_eq!((backlog.bytes(), backlog.own_bytes()), (0, 0));
}

/// A chunk that is recognisable by its first bytes: its level, then a number, then filling.
fn marked(level: Level, number: u8, length: usize) -> Chunk {
    let mut bytes = vec![0xFF; length.max(2)];
    bytes[..2].copy_from_slice(&[level as u8, number]);
    Chunk { bytes: bytes.into(), messages: 1, is_own: !number.is_multiple_of(3) }
}

/// The levels and numbers of the waiting chunks, in the order in which they go out.
fn marks(backlog: &Backlog) -> Vec<(u8, u8)> {
    backlog.iter().map(|bytes| (bytes[0], bytes[1])).collect()
}

#[test]
fn a_higher_level_overtakes_chunks_that_are_not_partly_sent() {
    let mut backlog = Backlog::default();
    for (number, level) in [Level::Low, Level::Low, Level::Critical, Level::Normal].into_iter().enumerate() {
        backlog.push(marked(level, number as u8, 10), level, 0);
    }
    assert_eq!(marks(&backlog), [(4, 2), (2, 3), (1, 0), (1, 1)]);
    backlog.advance(25);
    backlog.push(marked(Level::Critical, 9, 10), Level::Critical, 0);
    let lengths: Vec<usize> = backlog.iter().map(<[u8]>::len).collect();
    assert_eq!(lengths, [5, 10, 10], "the rest of the partly sent chunk comes first");
    assert_eq!(marks(&backlog)[1], (4, 9));
    assert!(backlog.has_below(Level::Normal) && !backlog.has_below(Level::Low));
}

#[test]
fn the_lowest_level_makes_room_first_and_of_it_the_newest() {
    let filled = || {
        let mut backlog = Backlog::default();
        for (number, level) in [Level::Low, Level::Background, Level::Background, Level::High].into_iter().enumerate() {
            backlog.push(marked(level, 3 * number as u8 + 1, 10), level, 0);
        }
        backlog
    };
    let mut backlog = filled();
    assert_eq!(backlog.make_room(Level::Normal, 35, 0), Some([1, 0, 0, 0, 0]));
    assert_eq!(marks(&backlog), [(3, 10), (1, 1), (0, 4)]);
    assert_eq!(backlog.make_room(Level::Normal, 12, 0), Some([1, 1, 0, 0, 0]));
    assert_eq!(marks(&backlog), [(3, 10)]);
    assert_eq!(filled().make_room(Level::Low, 15, 0), None, "the lower levels have too few bytes");
    assert_eq!(filled().make_room(Level::Low, usize::MAX, 11), Some([2, 0, 0, 0, 0]));
    assert_eq!(filled().make_room(Level::Background, 39, 0), None, "its own level is not below it");
}

/// An operation on a backlog.
#[derive(Clone, Debug)]
enum Step {
    Push(usize, usize),
    Write(prop::sample::Index),
    Room(usize, usize),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5_usize, 2..40_usize).prop_map(|(level, length)| Step::Push(level, length)),
        4 => any::<prop::sample::Index>().prop_map(Step::Write),
        2 => (0..5_usize, 0..200_usize).prop_map(|(level, maximum)| Step::Room(level, maximum)),
        1 => Just(Step::GiveUp),
    ]
}

proptest! {
    #[test]
    fn chunks_stay_complete_and_in_order_within_their_level_and_every_byte_is_counted(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut backlog = Backlog::default();
        let (mut next, mut wire, mut dropped, mut sent) = (0_u8, Vec::new(), 0, 0);
        for step in steps {
            match step {
                Step::Push(level, length) => {
                    backlog.push(marked(Level::ALL[level], next, length), Level::ALL[level], 0);
                    next = next.wrapping_add(1);
                }
                Step::Write(index) => {
                    let waiting: Vec<u8> = backlog.iter().flatten().copied().collect();
                    let written = index.index(waiting.len() + 1);
                    wire.extend_from_slice(&waiting[..written]);
                    sent += backlog.advance(written);
                }
                Step::Room(level, maximum) => {
                    if let Some(lost) = backlog.make_room(Level::ALL[level], maximum, 0) {
                        prop_assert!(backlog.bytes() <= maximum);
                        prop_assert!(lost[level..].iter().all(|lost| *lost == 0));
                        dropped += lost.iter().sum::<u64>();
                    }
                }
                Step::GiveUp => dropped += backlog.give_up().iter().sum::<u64>(),
            }
            prop_assert_eq!(backlog.bytes(), backlog.iter().map(<[u8]>::len).sum::<usize>());
            let chunks = backlog.levels.iter().flat_map(|queue| &queue.chunks).map(Chunk::own_bytes).sum::<usize>();
            prop_assert_eq!(backlog.own_bytes(), backlog.partly_sent.as_ref().map_or(0, PartlySent::own_bytes) + chunks);
            prop_assert_eq!(backlog.len(), backlog.iter().count());
        }
        prop_assert_eq!(u64::from(next), dropped + sent + backlog.len() as u64);
        // The wire holds whole chunks one after the other, and within a level the numbers only grow.
        let rest: Vec<u8> = backlog.iter().flatten().copied().collect();
        wire.extend_from_slice(&rest);
        let (mut at, mut last) = (0, [None; 5]);
        while at < wire.len() {
            let (level, number) = (usize::from(wire[at]), wire[at + 1]);
            prop_assert!(level < 5 && last[level].is_none_or(|last| last < number), "torn at {at}");
            last[level] = Some(number);
            at += 2 + wire[at + 2..].iter().take_while(|byte| **byte == 0xFF).count();
        }
    }
}
