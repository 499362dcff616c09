//! A few error frames as they were, for people who want to know what a gateway said.

pub use bench_format::result::ErrorSample;
use serde::{Deserialize, Serialize};

use crate::protocol::ErrorFrame;

/// Distinct error frames that are kept.
const KEPT: usize = 5;
/// Characters of a message that are kept.
const KEPT_CHARACTERS: usize = 300;

/// The first distinct ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorSamples(pub Vec<ErrorSample>);

impl ErrorSamples {
    pub(crate) fn keep(&mut self, error: &ErrorFrame<'_>) {
        if self.0.len() == KEPT {
            return;
        }
        let cut = |text: &str| text.chars().take(KEPT_CHARACTERS).collect();
        self.add(ErrorSample {
            stage: cut(&error.stage),
            kind: cut(&error.kind),
            message: cut(&error.message),
            inference_status: error.inference_status,
            retryable: error.retryable,
        });
    }

    /// Keeps another one, if there is room and it is new.
    pub fn add(&mut self, sample: ErrorSample) {
        if self.0.len() < KEPT && !self.0.contains(&sample) {
            self.0.push(sample);
        }
    }
}
