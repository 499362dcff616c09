//! The quality of a connection as a score from 0 to 100, with the penalties that explain it. No I/O: the shard passes
//! in what it observed.
//!
//! A connection starts with 100 points and loses some for each of these:
//!
//! | for | at most | none at | all of them at |
//! | --- | --- | --- | --- |
//! | loss: messages to it that were dropped, as a part of all | 40 | 0 | 10 % |
//! | backlog: bytes that wait for it, as a part of the limit | 25 | 0 | half of it |
//! | latency: the kernel's smoothed round trip | 20 | 50 ms | 500 ms |
//! | pace: tokens that are left for events, as a part of the capacity | 10 | a fifth | nothing |
//! | jitter: how much round trips vary | 5 | 10 ms | 100 ms |
//!
//! Between the two bounds, the penalty grows linearly. From 90 the grade is excellent, from 70 good, from 40 fair,
//! below poor.

use std::time::Duration;

use serde::Serialize;

const LOSS: f64 = 40.0;
const BACKLOG: f64 = 25.0;
const LATENCY: f64 = 20.0;
const PACE: f64 = 10.0;
const JITTER: f64 = 5.0;

const WORST_LOSS: f64 = 0.1;
const WORST_BACKLOG: f64 = 0.5;
const LATENCY_MILLIS: [f64; 2] = [50.0, 500.0];
const JITTER_MILLIS: [f64; 2] = [10.0, 100.0];
/// The part of the tokens below which points are lost; at the same part a client is warned.
const ENOUGH: f64 = 0.2;

/// The grade of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// A score of 90 or more.
    Excellent,
    /// A score from 70 to 89.
    Good,
    /// A score from 40 to 69.
    Fair,
    /// A score below 40.
    Poor,
}

/// How many connections have each grade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grades {
    /// Connections with a score of 90 or more.
    pub excellent: u64,
    /// Connections with a score from 70 to 89.
    pub good: u64,
    /// Connections with a score from 40 to 69.
    pub fair: u64,
    /// Connections with a score below 40.
    pub poor: u64,
}

impl Grades {
    pub(crate) fn count(&mut self, grade: Grade) {
        match grade {
            Grade::Excellent => self.excellent += 1,
            Grade::Good => self.good += 1,
            Grade::Fair => self.fair += 1,
            Grade::Poor => self.poor += 1,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.excellent += other.excellent;
        self.good += other.good;
        self.fair += other.fair;
        self.poor += other.poor;
    }
}

/// What the score of a connection is computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observed {
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) backlog_bytes: usize,
    pub(crate) backlog_limit: usize,
    /// The kernel's smoothed round trip; `None` where it reports none.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) jitter: Option<Duration>,
    /// The part of the tokens for events that is left, from 0 to 1.
    pub(crate) allowance: f64,
}

/// The points that a connection lost, by cause. Each is 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Penalties {
    /// Points for dropped messages, at most 40.
    pub loss: f64,
    /// Points for bytes that wait, at most 25.
    pub backlog: f64,
    /// Points for a long round trip, at most 20.
    pub latency: f64,
    /// Points for events near their rate limit, at most 10.
    pub pace: f64,
    /// Points for round trips that vary, at most 5.
    pub jitter: f64,
}

/// The quality of one connection, and the observations behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// From 0 (worst) to 100.
    pub score: u8,
    /// The grade of the score.
    pub grade: Grade,
    /// The kernel's smoothed round trip in milliseconds; `None` where it reports none.
    pub round_trip_ms: Option<f64>,
    /// How much round trips vary, in milliseconds; `None` where the kernel doesn't report it.
    pub jitter_ms: Option<f64>,
    /// Messages that the connection's socket took.
    pub sent: u64,
    /// Messages to the connection that were dropped.
    pub dropped: u64,
    /// Bytes that wait for the connection.
    pub backlog_bytes: usize,
    /// The part of the tokens for events that is left, from 0 to 1.
    pub allowance: f64,
    /// The points that the score lacks to 100, by cause.
    pub penalties: Penalties,
}

/// Where `value` lies between `none` (0) and `all` (1), clamped to that range.
fn part(value: f64, none: f64, all: f64) -> f64 {
    ((value - none) / (all - none)).clamp(0.0, 1.0)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl Quality {
    /// Computes the score and its penalties. An unknown round trip or jitter costs no points.
    pub(crate) fn of(observed: &Observed) -> Self {
        let Observed { sent, dropped, backlog_bytes, backlog_limit, round_trip, jitter, allowance } = *observed;
        let (round_trip_ms, jitter_ms) = (round_trip.map(millis), jitter.map(millis));
        let loss = dropped as f64 / (sent + dropped).max(1) as f64;
        let backlog = backlog_bytes as f64 / backlog_limit.max(1) as f64;
        let penalties = Penalties {
            loss: LOSS * part(loss, 0.0, WORST_LOSS),
            backlog: BACKLOG * part(backlog, 0.0, WORST_BACKLOG),
            latency: LATENCY * round_trip_ms.map_or(0.0, |ms| part(ms, LATENCY_MILLIS[0], LATENCY_MILLIS[1])),
            pace: PACE * part(ENOUGH - allowance, 0.0, ENOUGH),
            jitter: JITTER * jitter_ms.map_or(0.0, |ms| part(ms, JITTER_MILLIS[0], JITTER_MILLIS[1])),
        };
        let Penalties { loss, backlog, latency, pace, jitter } = penalties;
        let score = (100.0 - loss - backlog - latency - pace - jitter).round().clamp(0.0, 100.0) as u8;
        let grade = match score {
            90.. => Grade::Excellent,
            70.. => Grade::Good,
            40.. => Grade::Fair,
            _ => Grade::Poor,
        };
        Self { score, grade, round_trip_ms, jitter_ms, sent, dropped, backlog_bytes, allowance, penalties }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fine() -> Observed {
        Observed {
            sent: 1000,
            dropped: 0,
            backlog_bytes: 0,
            backlog_limit: 1 << 20,
            round_trip: Some(Duration::from_micros(80)),
            jitter: Some(Duration::from_micros(20)),
            allowance: 1.0,
        }
    }

    #[test]
    fn a_connection_without_faults_scores_100() {
        let quality = Quality::of(&fine());
        assert_eq!((quality.score, quality.grade), (100, Grade::Excellent));
        assert!(quality.round_trip_ms.is_some_and(|ms| (ms - 0.08).abs() < 1e-9));
        let unknown = Observed { sent: 0, round_trip: None, jitter: None, ..fine() };
        assert_eq!(Quality::of(&unknown).score, 100);
    }

    #[test]
    fn each_fault_costs_its_documented_points() {
        let ms = |millis| Some(Duration::from_millis(millis));
        for (observed, score, grade) in [
            (Observed { sent: 950, dropped: 50, ..fine() }, 80, Grade::Good),
            (Observed { sent: 0, dropped: 1, ..fine() }, 60, Grade::Fair),
            (Observed { backlog_bytes: 1 << 18, ..fine() }, 88, Grade::Good),
            (Observed { backlog_bytes: 1 << 20, ..fine() }, 75, Grade::Good),
            (Observed { round_trip: ms(50), jitter: ms(10), ..fine() }, 100, Grade::Excellent),
            (Observed { round_trip: ms(275), jitter: ms(55), ..fine() }, 88, Grade::Good),
            (Observed { round_trip: ms(9000), jitter: ms(9000), ..fine() }, 75, Grade::Good),
            (Observed { allowance: 0.1, ..fine() }, 95, Grade::Excellent),
            (Observed { allowance: 0.0, ..fine() }, 90, Grade::Excellent),
            (Observed { sent: 0, dropped: 9, backlog_bytes: 1 << 20, round_trip: ms(500), ..fine() }, 15, Grade::Poor),
        ] {
            let quality = Quality::of(&observed);
            assert_eq!((quality.score, quality.grade), (score, grade), "{quality:?}");
        }
    }

    proptest! {
        #[test]
        fn quality_is_from_0_to_100_and_monotonic(
            sent: u32, dropped: u32, backlog_bytes: u32, millis: u32, allowance in -1.0..2.0f64,
        ) {
            let time = Some(Duration::from_millis(u64::from(millis)));
            let observed = Observed {
                sent: sent.into(), dropped: dropped.into(), backlog_bytes: backlog_bytes as usize, backlog_limit: 1 << 24,
                round_trip: time, jitter: time, allowance,
            };
            let score = Quality::of(&observed).score;
            prop_assert!(score <= 100);
            let worse = Observed { dropped: observed.dropped + 1000, backlog_bytes: observed.backlog_bytes + 5000, ..observed };
            prop_assert!(Quality::of(&worse).score <= score);
        }
    }
}
