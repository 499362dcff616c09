//! The cost of recording a latency: one that only the result has, and one that a display shows as well.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loadgen_core::recorder::{Metric, Recorder};

/// Values that spread over three decades, as response times do.
const VALUES: usize = 1024;

fn record(criterion: &mut Criterion) {
    let values: Vec<u64> = (1..=VALUES as u64).map(|n| 50_000 + n * n * 50).collect();
    let mut group = criterion.benchmark_group("record a latency");
    group.throughput(Throughput::Elements(VALUES as u64));
    for (name, metric) in [("in the result", Metric::Service), ("in the result and for a display", Metric::Response)] {
        group.bench_function(name, |bencher| {
            let mut recorder = Recorder::<Metric>::new(0, u64::MAX);
            bencher.iter(|| values.iter().for_each(|value| recorder.record(metric, black_box(*value), 1)));
        });
    }
    group.finish();
}

criterion_group!(benches, record);
criterion_main!(benches);
