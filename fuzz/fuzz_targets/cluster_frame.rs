//! Frames of the cluster protocol: every parsed frame lies inside the input, and encoding it gives the same frame.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wse_engine::cluster::{
    frame::{self, Kind, STAMPED},
    numbering::Count,
};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some((frame, used))) = frame::parse(rest) {
        assert!(used >= frame::LENGTH + frame::HEAD && used <= rest.len());
        let range = rest.as_ptr_range();
        for part in [frame.topic, frame.payload] {
            assert!(part.is_empty() || range.contains(&part.as_ptr()));
        }
        if let Some(kind) = Kind::of(frame.kind).filter(|_| frame::fits(frame.topic, frame.payload)) {
            let mut out = BytesMut::new();
            frame::put(&mut out, kind, frame.flags & !STAMPED, frame.topic, frame.payload, frame.stamp);
            let (again, length) = frame::parse(&out).expect("it was written").expect("it is whole");
            assert_eq!(length, out.len());
            assert_eq!((again.topic, again.payload, again.stamp), (frame.topic, frame.payload, frame.stamp));
        }
        if let Some(count) = Count::parse(frame.payload) {
            assert_eq!(&count.encode()[..], &frame.payload[..12]);
        }
        rest = &rest[used..];
    }
});
