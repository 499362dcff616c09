//! HdrHistograms: recording, encoding, merging, percentiles and their printed form.
//!
//! A histogram travels as V2, deflated and base64-encoded, which every HdrHistogram library reads. Merging adds counts
//! and is therefore exact. Nothing in ws-ladder averages percentiles, and no percentile is printed without enough
//! samples.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inflate::{InflateError, inflate};

/// Largest value that a recorder holds: ten minutes, in nanoseconds. Larger values count as overflow, and so do values
/// that had no end when the trial ended.
pub const HIGHEST_NS: u64 = 600_000_000_000;
/// Significant decimal digits of every histogram.
pub const SIGNIFICANT_DIGITS: u8 = 3;
/// The percentiles of every result: name and value.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];
const NS_PER_MS: u64 = 1_000_000;
/// The most bytes of an inflated histogram. One with a count in each of a recorder's counters has less than 300 KiB.
const MAX_INFLATED: usize = 512 << 10;
/// The first four bytes of a V2 histogram, and of a deflated one (HdrHistogram's format).
const V2_COOKIE: u32 = 0x1c84_9313;
const V2_DEFLATED_COOKIE: u32 = 0x1c84_9314;
/// Bytes of a V2 histogram before its counts.
const V2_HEADER: usize = 40;

/// The error of a histogram that can't be decoded or merged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not valid base64.
    #[error("failed to decode the base64 of a histogram")]
    Base64(#[from] base64::DecodeError),
    /// The bytes don't inflate, or to more than a histogram can have.
    #[error("failed to decode a histogram: {0}")]
    Inflate(#[from] InflateError),
    /// The bytes are not a V2 histogram, or hold another number of values than `count` states.
    #[error("failed to decode a histogram: {0}")]
    Format(String),
    /// The histogram's range exceeds that of a [`Recorder`].
    #[error("failed to add histograms: {0}")]
    Add(String),
}

/// A histogram as it appears in files and uploads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// V2 histogram, deflated and base64-encoded. The suffix of the histogram's name is the unit of the values (`_ns`).
    pub v2: String,
    /// Number of values in `v2`.
    pub count: u64,
    /// Number of values that are larger than every value in `v2`: those above [`HIGHEST_NS`], and those that had no end
    /// when the trial ended (messages without a reply).
    pub overflow: u64,
}

/// A histogram that values are recorded into. Its range is fixed, so recording doesn't allocate.
#[derive(Clone, Debug)]
pub struct Recorder {
    values: Hdr<u64>,
    overflow: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Creates an empty recorder from 1 ns to [`HIGHEST_NS`].
    pub fn new() -> Self {
        let values = Hdr::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS).expect("the bounds are constants");
        Self { values, overflow: 0 }
    }

    /// Records one value; 0 counts as 1 ns.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        if self.values.record(value_ns).is_err() {
            self.overflow += 1;
        }
    }

    /// Records one value `count` times.
    pub fn record_n(&mut self, value_ns: u64, count: u64) {
        if self.values.record_n(value_ns, count).is_err() {
            self.overflow += count;
        }
    }

    /// Counts values that are only known to exceed every recorded one: replies that never came (right-censored).
    pub fn censor(&mut self, count: u64) {
        self.overflow += count;
    }

    /// Adds the values of another recorder, without loss of precision.
    pub fn add(&mut self, other: &Recorder) {
        self.values.add(&other.values).expect("all recorders have one range");
        self.overflow += other.overflow;
    }

    /// Removes all values, overflow included.
    pub fn reset(&mut self) {
        self.values.reset();
        self.overflow = 0;
    }

    /// Number of recorded values without overflow.
    pub fn count(&self) -> u64 {
        self.values.len()
    }

    /// Number of values above [`HIGHEST_NS`], and of those that had no end.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Number of all values, those of [`Self::overflow`] included.
    pub fn total(&self) -> u64 {
        self.count() + self.overflow
    }

    /// Number of values up to `value_ns`, which is rounded to the histogram's digits.
    pub fn count_up_to(&self, value_ns: u64) -> u64 {
        self.values.count_between(0, value_ns)
    }

    /// The underlying histogram, for percentiles and distributions.
    pub fn values(&self) -> &Hdr<u64> {
        &self.values
    }

    /// Encodes the histogram for files and uploads.
    pub fn encode(&self) -> Histogram {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.values, &mut bytes)
            .expect("a histogram of this range serialises into memory");
        Histogram { v2: STANDARD.encode(&bytes), count: self.count(), overflow: self.overflow }
    }

    /// Decodes a histogram from a file or an upload.
    ///
    /// The library allocates what a histogram's header asks for, so the header is checked against the bytes first.
    ///
    /// # Errors
    /// - [`Error::Base64`] if the text is not base64
    /// - [`Error::Inflate`] if the bytes don't inflate or are too many
    /// - [`Error::Format`] if it is not a V2 histogram or holds another number of values than `count`
    /// - [`Error::Add`] if its range exceeds that of a recorder
    pub fn decode(histogram: &Histogram) -> Result<Self, Error> {
        let inflated = inflated(&histogram.v2)?;
        let values: Hdr<u64> =
            Deserializer::new().deserialize(&mut &inflated[..]).map_err(|error| Error::Format(format!("{error:?}")))?;
        if values.len() != histogram.count {
            return Err(Error::Format(format!("it holds {} values but declares {}", values.len(), histogram.count)));
        }
        let mut recorder = Self::new();
        recorder.values.add(&values).map_err(|error| Error::Add(format!("{error:?}")))?;
        recorder.overflow = histogram.overflow;
        Ok(recorder)
    }
}

/// The counts of an encoded histogram, inflated. Equal counts have equal bytes here, although compressors may deflate
/// them to different ones.
///
/// # Errors
/// As [`Recorder::decode`], apart from the values' range and number.
pub fn inflated(v2: &str) -> Result<Vec<u8>, Error> {
    inflate_v2(&STANDARD.decode(v2)?)
}

/// Inflates a deflated V2 histogram and checks the sizes in its header: the counts are as long as what came, and the
/// digits are no more than ours. A histogram of three digits has at most 0.5 MiB of counters at any range.
fn inflate_v2(deflated: &[u8]) -> Result<Vec<u8>, Error> {
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().expect("four bytes")))
    };
    if number(deflated, 0) != Some(V2_DEFLATED_COOKIE) || deflated.len() < 8 {
        return Err(Error::Format("it is not a deflated V2 histogram".into()));
    }
    let inflated = inflate(&deflated[8..], MAX_INFLATED)?;
    let (Some(V2_COOKIE), Some(counts), Some(digits)) =
        (number(&inflated, 0), number(&inflated, 4), number(&inflated, 12))
    else {
        return Err(Error::Format("it has no V2 header".into()));
    };
    if inflated.len().checked_sub(V2_HEADER) != Some(counts as usize) {
        return Err(Error::Format(format!(
            "it declares {counts} bytes of counts and has {} bytes in all",
            inflated.len()
        )));
    }
    if digits > u32::from(SIGNIFICANT_DIGITS) {
        return Err(Error::Format(format!(
            "it has {digits} significant digits; at most {SIGNIFICANT_DIGITS} are read"
        )));
    }
    Ok(inflated)
}

/// A percentile, or `None` if there are too few samples or the rank lies among the overflowed values.
///
/// A claim "the p-th percentile is at most x" at 99 % confidence needs `ln(0.01) / ln(p / 100)` samples even when none
/// violates it: 7 for p50, 459 for p99, 4 603 for p99.9, 46 050 for p99.99 (binomial test, as MLPerf's early stopping).
pub fn percentile_ns(recorder: &Recorder, percentile: f64) -> Option<u64> {
    let total = recorder.total();
    if total < samples_needed(percentile) {
        return None;
    }
    // Overflowed values are the largest, so a rank among them has no value to print.
    let rank = (percentile / 100.0 * total as f64).ceil() as u64;
    if rank > recorder.count() {
        return None;
    }
    Some(recorder.values.value_at_quantile(rank as f64 / recorder.count() as f64))
}

/// Number of samples that a percentile needs before it is printed.
pub fn samples_needed(percentile: f64) -> u64 {
    if percentile <= 0.0 || percentile >= 100.0 {
        return 1;
    }
    (0.01_f64.ln() / (percentile / 100.0).ln()).ceil() as u64
}

/// Formats a value in milliseconds with the significant digits of a histogram: `0.0420`, `1.69`, `87.5`, `1234`.
pub fn milliseconds(value_ns: u64) -> String {
    let digits_after_the_first = |ns: u64| ns.max(1).ilog10();
    let further_digits = u32::from(SIGNIFICANT_DIGITS) - 1;
    let step = 10_u64.pow(digits_after_the_first(value_ns).saturating_sub(further_digits)).min(NS_PER_MS);
    let rounded = value_ns.saturating_add(step / 2) / step * step;
    // Take the decimals from the rounded value: 9.996 is printed as 10.0, not 10.00.
    let decimals =
        (NS_PER_MS.ilog10() + further_digits).saturating_sub(digits_after_the_first(rounded)).min(NS_PER_MS.ilog10());
    format!("{:.*}", decimals as usize, rounded as f64 / NS_PER_MS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(values: impl IntoIterator<Item = u64>) -> Recorder {
        let mut recorder = Recorder::new();
        values.into_iter().for_each(|value| recorder.record(value));
        recorder
    }

    #[test]
    fn merging_equals_recording_into_one() {
        let mut left = recorder(1..1000);
        left.add(&recorder(1000..2000));
        assert_eq!(left.encode(), recorder(1..2000).encode());
    }

    #[test]
    fn a_round_trip_keeps_every_count() {
        let original = recorder([1, 10_000, HIGHEST_NS, HIGHEST_NS * 3]);
        let decoded = Recorder::decode(&original.encode()).unwrap();
        assert_eq!((decoded.count(), decoded.overflow()), (3, 1));
        assert_eq!(decoded.encode(), original.encode());
    }

    #[test]
    fn a_wrong_count_is_refused() {
        let mut wire = recorder([5]).encode();
        wire.count = 2;
        assert!(Recorder::decode(&wire).is_err());
    }

    /// A histogram as uploaded, of V2 bytes that may say anything.
    fn uploaded(inflated: &[u8]) -> Histogram {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, inflated).unwrap();
        let deflated = encoder.finish().unwrap();
        let mut bytes = V2_DEFLATED_COOKIE.to_be_bytes().to_vec();
        bytes.extend((deflated.len() as u32).to_be_bytes());
        bytes.extend(deflated);
        Histogram { v2: STANDARD.encode(bytes), count: 0, overflow: 0 }
    }

    fn header(counts: u32, digits: u32) -> Vec<u8> {
        let mut inflated = V2_COOKIE.to_be_bytes().to_vec();
        for field in [counts, 0, digits] {
            inflated.extend(field.to_be_bytes());
        }
        inflated.extend(1_u64.to_be_bytes());
        inflated.extend(HIGHEST_NS.to_be_bytes());
        inflated.extend(1.0_f64.to_be_bytes());
        inflated
    }

    #[test]
    fn a_histogram_whose_header_claims_gigabytes_is_refused_before_they_are_allocated() {
        assert!(Recorder::decode(&uploaded(&header(0, 3))).is_ok());
        for (inflated, message) in [
            (header(3 << 30, 3), "it declares 3221225472 bytes of counts and has 40 bytes in all"),
            (header(0, 5), "it has 5 significant digits; at most 3 are read"),
            (vec![0; 64 << 20], "inflates to more than 524288 bytes"),
            (vec![0; 100], "it has no V2 header"),
        ] {
            let error = Recorder::decode(&uploaded(&inflated)).unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_decode_or_return_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Recorder::decode(&uploaded(&bytes));
            let mut inflated = header(bytes.len() as u32, 3);
            inflated.extend(&bytes);
            let _ = Recorder::decode(&uploaded(&inflated));
            let _ = Recorder::decode(&Histogram { v2: STANDARD.encode(&bytes), count: 0, overflow: 0 });
        }
    }

    #[test]
    fn the_needed_samples_are_those_of_the_published_table() {
        assert_eq!([50.0, 99.0, 99.9, 99.99].map(samples_needed), [7, 459, 4603, 46_050]);
    }

    #[test]
    fn milliseconds_are_printed_with_three_significant_digits() {
        let values = [42, 850, 42_000, 380_000, 1_690_000, 9_996_000, 87_460_000, 498_700_000, 999_600_000];
        let printed = ["0.000042", "0.000850", "0.0420", "0.380", "1.69", "10.0", "87.5", "499", "1000"];
        assert_eq!(values.map(milliseconds), printed);
        assert_eq!(milliseconds(12_345_678_901), "12346");
    }

    #[test]
    fn a_percentile_without_enough_samples_is_not_printed() {
        assert_eq!(percentile_ns(&recorder(1..=400), 99.0), None);
        assert!(percentile_ns(&recorder(1..=500), 99.0).is_some());
    }

    #[test]
    fn a_percentile_among_overflowed_values_is_not_printed() {
        let mut samples = recorder(1..=500);
        (0..50).for_each(|_| samples.record(HIGHEST_NS * 2));
        assert_eq!(percentile_ns(&samples, 99.0), None);
        assert!(percentile_ns(&samples, 50.0).is_some());
    }
}
