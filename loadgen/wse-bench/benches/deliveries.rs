//! CPU cost of a published message after it was read: frame, sequence number, order, time.
//!
//! A read contains a hundred messages of a hundred bytes in sequence, as in a flood.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loadgen_core::{
    Publishing,
    phases::Phases,
    receiver::{Reading, Receiver},
    recorder::Recorder,
};
use wse_bench::protocol::{Use, Wse};

const MESSAGES: u64 = 100;
const NOW_NS: u64 = 10_000_000_000;

/// Frames with consecutive numbers from `first`, each due a few milliseconds before now.
fn frames(first: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for sequence in first..first + MESSAGES {
        let due_us = NOW_NS / 1000 - 5000 + sequence % 4000;
        // Sixteen digits, like a present time in microseconds.
        let due_us = 1_700_000_000_000_000 + due_us;
        let text = format!(
            r#"{{"c":"U","t":"fanout_tick","p":{{"seq":{sequence},"ts_us":{due_us},"s":"ES","px":5234.75,"q":2}}}}"#
        );
        bytes.extend([0x81, text.len() as u8]);
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn deliveries(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("take published messages of 100 bytes");
    group.throughput(Throughput::Elements(MESSAGES));
    let bytes = frames(1_234_500);
    let wse = Wse::new("a-secret-that-signs-a-token-and-no-more", Use::Receive).expect("the secret is long enough");
    let phases = Phases::new(0, 0, 2 * NOW_NS, 0);
    let mut recorder = Recorder::new(phases.window_start_ns, phases.window_end_ns);
    group.bench_function("100 per read", |bencher| {
        bencher.iter(|| {
            let mut receiver = Receiver::default();
            let load = Some((phases, &mut recorder, 1_700_000_000_000_000_000));
            let mut reading = Reading { now_ns: NOW_NS, publishing: Publishing::Flood, load };
            let stretch = reading.take_published(&wse, &mut receiver, black_box(&bytes));
            assert_eq!(stretch.deliveries, MESSAGES);
            receiver
        });
    });
    group.finish();
}

criterion_group!(benches, deliveries);
criterion_main!(benches);
