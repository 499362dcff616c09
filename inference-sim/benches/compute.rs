//! The cost of a result without the kernel and HTTP.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inference_sim::{Audio, Chain, LANES, Lanes};

/// The usual request: one second of audio and four passes.
const SAMPLES: u32 = 16_000;
const PASSES: u32 = 4;

fn compute(criterion: &mut Criterion) {
    let bodies: Vec<Vec<u8>> = (0..LANES as u32).map(body).collect();
    let chain = |body| Chain { audio: Audio::new(body).expect("whole samples"), passes: PASSES };
    let chains: Vec<Chain> = bodies.iter().map(|body| chain(body)).collect();
    let mut lanes = Lanes::new();
    let mut group = criterion.benchmark_group("32000 bytes, 4 passes");
    for requests in [1, 2, 8, LANES] {
        group.throughput(Throughput::Elements(requests as u64));
        group.bench_function(format!("{requests} at once"), |bencher| {
            bencher.iter(|| lanes.infer(black_box(&chains[..requests])));
        });
    }
    group.finish();
}

fn body(seed: u32) -> Vec<u8> {
    let sample = |index: u32| (index.wrapping_mul(7919) ^ seed) as u16;
    (0..SAMPLES).flat_map(|index| sample(index).to_le_bytes()).collect()
}

criterion_group!(benches, compute);
criterion_main!(benches);
