//! Helpers for the tests of the rules.

use bench_format::result::{Books, Validity, WorkerResult};

use super::validity;
use crate::{case::Case, fixture::Files};

/// The reasons of a trial after a change, as `kind: detail`.
pub(super) fn reasons(mut files: Files, change: impl FnOnce(&mut Files)) -> Vec<String> {
    change(&mut files);
    let uploads: Vec<_> = files.uploads.iter().collect();
    let case = Case::new(&files.trial, &uploads, &files.service).unwrap();
    match validity(&case, &Books::default()) {
        Validity::Valid => Vec::new(),
        Validity::Invalid { reasons } => {
            reasons.iter().map(|reason| format!("{:?}: {}", reason.kind, reason.detail)).collect()
        }
    }
}

/// The upload of the first worker.
pub(super) fn result(files: &mut Files) -> &mut WorkerResult {
    &mut files.uploads[0]
}
