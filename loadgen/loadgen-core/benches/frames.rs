//! The cost of a message before the kernel gets it, and of a reply afterwards: building with a new mask, and parsing.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loadgen_core::frame::{Batch, Masks, Opcode, parse, progress};

/// Length of a trade update, in bytes.
const MESSAGE: usize = 175;

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build and mask 175 bytes");
    let payload = [b'x'; MESSAGE];
    for count in [1_u64, 64] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} per batch"), |bencher| {
            let (mut batch, mut masks) = (Batch::default(), Masks::new(1));
            bencher.iter(|| {
                batch.clear();
                for _ in 0..count {
                    batch.push(Opcode::Text, black_box(&payload), masks.next_mask());
                }
                black_box(batch.bytes().len())
            });
        });
    }
    group.finish();
}

fn walk(criterion: &mut Criterion) {
    let (mut batch, mut masks) = (Batch::default(), Masks::new(1));
    (0..64).for_each(|_| batch.push(Opcode::Text, &[b'x'; MESSAGE], masks.next_mask()));
    let mut group = criterion.benchmark_group("count whole frames after a partial write");
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 frames", |bencher| {
        bencher.iter(|| progress(black_box(batch.bytes()), batch.bytes().len() - 1));
    });
    group.finish();
}

fn parse_read(criterion: &mut Criterion) {
    // As a service sends them: unmasked, 113 bytes each, back to back.
    let mut stream = Vec::new();
    for _ in 0..64 {
        stream.extend([0x81, 113]);
        stream.extend([b'x'; 113]);
    }
    let mut group = criterion.benchmark_group("parse 113-byte replies");
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 per read", |bencher| {
        bencher.iter(|| {
            let (mut at, mut bytes) = (0, 0);
            while let Ok(Some(frame)) = parse(black_box(&stream[at..])) {
                at += frame.length;
                bytes += frame.payload.len();
            }
            bytes
        });
    });
    group.finish();
}

criterion_group!(benches, build, walk, parse_read);
criterion_main!(benches);
