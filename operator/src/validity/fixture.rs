//! What the tests of the rules ask of a trial.

use bench_format::{
    books::Books,
    merge::Merged,
    result::{Validity, WorkerResult},
};

use super::{results, validity};
use driver::measure::Measured;

/// The reasons of a trial after a change, as `kind: detail`.
pub(super) fn reasons(mut measured: Measured, change: impl FnOnce(&mut Measured)) -> Vec<String> {
    change(&mut measured);
    let merged = Merged::of(results(&measured)).unwrap();
    match validity(&measured, &merged, &Books::default()) {
        Validity::Valid => Vec::new(),
        Validity::Invalid { reasons } => {
            reasons.iter().map(|reason| format!("{:?}: {}", reason.kind, reason.detail)).collect()
        }
    }
}

/// What its first worker uploaded.
pub(super) fn result(measured: &mut Measured) -> &mut WorkerResult {
    &mut measured.uploads[0].result
}
