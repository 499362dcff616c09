//! The random seed of a trial. Pure.

use bench_format::trial::TrialId;

/// The seed of a trial's random choices. It doesn't depend on the service, so that all services get the same schedule.
/// It differs for each tier and repeat.
pub(crate) fn seed(plan: u64, trial: &TrialId) -> u64 {
    let TrialId { workload, variant, tier, process, repeat, .. } = trial;
    let text = format!("{workload}/{variant}/{tier}-p{process}-r{repeat}");
    // FNV-1a: a hash that doesn't change between Rust versions, because bundles are kept longer than that.
    text.bytes().fold(plan ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use driver::coordinator::upload::fixture::trial;

    use super::*;

    #[test]
    fn services_get_the_same_schedule_and_repeats_another() {
        let other = TrialId { service: bench_format::Name::from_static("theirs"), ..trial() };
        let again = TrialId { repeat: 2, ..trial() };
        assert_eq!(seed(1, &trial()), seed(1, &other));
        assert_ne!(seed(1, &trial()), seed(1, &again));
        assert_ne!(seed(1, &trial()), seed(2, &trial()));
    }
}
