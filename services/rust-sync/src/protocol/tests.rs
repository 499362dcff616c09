use proptest::prelude::*;

use super::*;

const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// A masked frame in wire format, with this first byte.
fn wire(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..126 => bytes.push(MASKED | short as u8),
        medium @ 126..65_536 => {
            bytes.push(MASKED | LENGTH_16);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(MASKED | LENGTH_64);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    let start = bytes.len();
    bytes.extend(payload);
    unmask(&mut bytes[start..], MASK);
    bytes
}

fn event_of(bytes: &[u8]) -> Result<Option<String>, Refusal> {
    let (mut bytes, mut assembly) = (bytes.to_vec(), Assembly::default());
    take_frame(&mut bytes, &mut assembly).map(|taken| taken.map(|(_, event)| format!("{event:?}")))
}

#[test]
fn a_frame_is_waited_for_until_it_is_whole() {
    for length in [0, 125, 126, 640, 65_535, 65_536] {
        let whole = wire(0x82, &vec![7; length]);
        assert_eq!(event_of(&whole), Ok(Some(format!("{:?}", Event::Binary(&vec![7; length])))));
        for cut in (0..whole.len()).take(20).chain([whole.len() - 1]) {
            assert_eq!(event_of(&whole[..cut]), Ok(None), "{cut} bytes of {length}");
        }
    }
}

#[test]
fn a_forbidden_frame_is_refused_at_its_first_bytes() {
    for (bytes, code) in [
        (&[0xC2, 0x80][..], 1002),
        (&[0x83, 0x80], 1002),
        (&[0x8B, 0x80], 1002),
        (&[0x82, 0x05], 1002),
        (&[0x09, 0x80], 1002),
        (&[0x89, 0xFE], 1002),
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        (&[0x82, 0xFE, 0, 125], 1002),
        (&[0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF], 1002),
        (&[0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0], 1002),
        (&[0x82, 0xFF, 0, 0, 0, 0, 0, 1, 0, 1], 1009),
    ] {
        assert_eq!(event_of(bytes).map_err(|refusal| refusal.code), Err(code), "{bytes:x?}");
    }
}

#[test]
fn close_payloads_are_checked() {
    let close = |payload: &[u8]| event_of(&wire(0x88, payload)).map_err(|refusal| refusal.code);
    assert_eq!(close(&[]), Ok(Some("Close(None)".into())));
    assert_eq!(close(&[0x0F, 0xA0, b'o', b'k']), Ok(Some("Close(Some(4000))".into())));
    assert_eq!(close(&[3]), Err(1002));
    assert_eq!(close(&[3, 0xE8, 0xFF]), Err(1007));
    for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
        assert_eq!(close(&code.to_be_bytes()), Err(1002), "{code}");
    }
}

#[test]
fn only_frames_of_exactly_this_shape_make_a_run() {
    let audio = wire(0x82, &[1; FRAME_BYTES]);
    for other in [wire(0x02, &[1; FRAME_BYTES]), wire(0x81, &[1; FRAME_BYTES]), wire(0x82, &[1; 641]), wire(0x89, b"x")]
    {
        let bytes = [audio.as_slice(), &audio, &other, &audio].concat();
        assert_eq!(audio_run(&bytes), 2);
    }
    assert_eq!((audio_run(&audio[..WIRE_BYTES - 1]), audio_run(&[])), (0, 0));
}

#[test]
fn text_is_framed_with_its_length() {
    let mut out = b"before".to_vec();
    put_text(&mut out, |out| out.extend_from_slice(&[b'x'; 300]));
    assert_eq!((&out[..10], out.len()), (&b"before\x81\x7e\x01\x2c"[..], 310));
}

/// Generates frames that a client may send: mostly audio, and some of every other kind.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let first =
        prop_oneof![Just(0x82_u8), Just(0x81), Just(0x02), Just(0x00), Just(0x80), Just(0x89), Just(0x8A), Just(0x88)];
    let other =
        (first, proptest::collection::vec(any::<u8>(), 0..130)).prop_map(|(first, payload)| wire(first, &payload));
    let audio = any::<u8>().prop_map(|byte| wire(0x82, &[byte; FRAME_BYTES]));
    prop_oneof![4 => audio, 1 => other]
}

proptest! {
    #[test]
    fn however_bytes_are_split_and_whichever_path_takes_them_they_mean_the_same(
        frames in proptest::collection::vec(any_frame(), 0..20),
        chunk in 1_usize..2000,
    ) {
        let bytes = frames.concat();
        let whole = meaning_of([bytes.as_slice()], true);
        prop_assert_eq!(&whole, &meaning_of(bytes.chunks(chunk), true));
        prop_assert_eq!(&whole, &meaning_of(bytes.chunks(chunk), false));
    }

    #[test]
    fn no_bytes_lead_to_a_panic_or_to_a_message_beyond_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for meaning in meaning_of([bytes.as_slice()], true) {
            if let Meaning::Text(message) | Meaning::Binary(message) = meaning {
                prop_assert!(message.len() <= MAXIMAL_MESSAGE);
            }
        }
    }
}
