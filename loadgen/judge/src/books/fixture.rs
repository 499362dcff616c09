//! A trial with given sums, for the tests of its equations.

use bench_format::{
    result::{Books, MessageCounts, Witness},
    service::ConnectionBook,
    terms::Terms,
    trial_file::BookKeeping,
};

use super::books;
use crate::{
    case::Case, complete::complete, delta::ServiceDelta, fixture::flood, merge::Merged, published::ReportedSends,
};

/// A trial with these sums, terms and kind of book keeping.
pub(super) struct Sums {
    pub(super) merged: Merged,
    pub(super) delta: ServiceDelta,
    pub(super) service: Option<Vec<ConnectionBook>>,
    pub(super) terms: Terms,
    pub(super) keeping: BookKeeping,
}

impl Sums {
    /// The completed message counts and the books.
    pub(super) fn judged(self) -> (MessageCounts, Books) {
        let mut files = flood();
        (files.trial.terms, files.trial.keeping, files.service.connections) = (self.terms, self.keeping, self.service);
        let reported = ReportedSends { sent: Some(self.delta.sent), ..ReportedSends::default() };
        let (trial, service) = (&files.trial, &files.service);
        let case = Case { trial, uploads: &[], service, merged: self.merged, delta: self.delta, reported };
        let messages = complete(&case);
        let books = books(&case, &messages);
        (messages, books)
    }
}

pub(super) fn witnessed_by(witness: Witness) -> Terms {
    Terms { witness, ..Terms::default() }
}
