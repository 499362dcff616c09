//! Writes interval histograms as a HdrHistogram interval log, version 1.3, which any HdrHistogram reader opens.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use bench_format::{Name, histogram::Recorder, result::TrialResult};
use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};

/// The log prints maxima in milliseconds, as readers expect of nanosecond values.
const MAX_VALUE_DIVISOR: f64 = 1e6;

/// The log of one metric. Each interval is recorded under its start in the window and its length, both in nanoseconds,
/// and tagged with the metric's name without its unit.
pub fn write(name: &Name, result: &TrialResult, intervals: &BTreeMap<u64, (u64, Recorder)>) -> Vec<u8> {
    let start = UNIX_EPOCH + Duration::from_nanos(result.started_at_unix_ns);
    let comment = format!("{} {} of {}", result.run, name, result.trial);
    let tag = Tag::new(name.trim_end_matches("_ns"));
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&comment)
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(MAX_VALUE_DIVISOR)
        .begin_log_with(&mut bytes, &mut serializer)
        .expect("writing into memory can't fail");
    for (&start_ns, (length_ns, recorder)) in intervals {
        let (start, length) = (Duration::from_nanos(start_ns), Duration::from_nanos(*length_ns));
        log.write_histogram(recorder.values(), start, length, tag)
            .expect("writing into memory can't fail, and the histogram's range is ours");
    }
    drop(log);
    bytes
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use hdrhistogram::{
        Histogram,
        serialization::{
            Deserializer,
            interval_log::{IntervalLogIterator, LogEntry},
        },
    };

    use super::*;
    use judge::fixture::flood;

    #[test]
    fn a_log_reads_back_with_its_counts_times_and_tag() {
        let mut recorder = Recorder::new();
        (1..=100).for_each(|value| recorder.record(value));
        let second = 1_000_000_000;
        let intervals = [(0, (second, recorder.clone())), (second, (second, recorder))].into();
        let result = flood().judge().unwrap().result;
        let bytes = write(&Name::from_static("response_ns"), &result, &intervals);
        let entries: Vec<_> = IntervalLogIterator::new(&bytes)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].start_timestamp(), Duration::from_secs(1));
        assert_eq!(entries[1].tag().map(|tag| tag.as_str()), Some("response"));
        let encoded = STANDARD.decode(entries[1].encoded_histogram()).unwrap();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &encoded[..]).unwrap();
        assert_eq!(histogram.len(), 100);
    }
}
