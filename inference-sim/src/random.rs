//! Random numbers that are a pure function of the seed, the request's number and their purpose.

/// The purpose of a random number. Each has its own stream, so that one setting doesn't shift the numbers of another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    BatchWait,
    NormalRadius,
    NormalAngle,
    Longtail,
    Fault,
}

/// A number in [0, 1) that depends only on the arguments.
pub(crate) fn uniform(seed: u64, number: u64, stream: Stream) -> f64 {
    let bits = mix(mix(mix(seed) ^ number) ^ stream as u64);
    // A double holds 53 bits exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// One step of SplitMix64: adjacent arguments give unrelated results.
fn mix(value: u64) -> u64 {
    let mut bits = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
