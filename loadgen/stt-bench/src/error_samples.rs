//! A few error frames with their text, for people who want to read what a gateway reported.

pub use bench_format::result::ErrorSample;
use serde::{Deserialize, Serialize};

use crate::protocol::ErrorFrame;

/// Most distinct error frames that are kept.
const KEPT: usize = 5;
/// Characters that are kept of a text.
const KEPT_CHARACTERS: usize = 300;

/// The first distinct error frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorSamples(pub Vec<ErrorSample>);

impl ErrorSamples {
    pub(crate) fn keep(&mut self, error: &ErrorFrame<'_>) {
        if self.0.len() == KEPT {
            return;
        }
        let shorten = |text: &str| text.chars().take(KEPT_CHARACTERS).collect();
        self.add(ErrorSample {
            stage: shorten(&error.stage),
            kind: shorten(&error.kind),
            message: shorten(&error.message),
            inference_status: error.inference_status,
            retryable: error.retryable,
        });
    }

    /// Keeps a sample if there is room and no equal one.
    pub fn add(&mut self, sample: ErrorSample) {
        if self.0.len() < KEPT && !self.0.contains(&sample) {
            self.0.push(sample);
        }
    }
}
