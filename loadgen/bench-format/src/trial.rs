//! What a worker is told: one assignment per trial, and the barrier around it.
//!
//! The protocol is worker-driven JSON over HTTP (`docs/PROTOCOL.md`, "Coordinator"): register, ask for the next
//! assignment, report ready, get `start_at`, run, upload. What concerns a trial names (run, trial, attempt) and its
//! worker, and all else only asks or says the same again: a repeated request has the effect of one.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plan::{Load, Message},
    terms::Terms,
};

/// Which trial, within a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialId {
    /// The service's name in the registry.
    pub service: String,
    /// The workload.
    pub workload: String,
    /// The ladder's variant.
    pub variant: String,
    /// Connections or sessions; in a search over a rate, messages per second.
    pub tier: u32,
    /// Which service process of the tier, from 1.
    pub process: u32,
    /// Which trial on that process, from 1.
    pub repeat: u32,
}

/// The trial's folder inside `trials/` of a bundle.
impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, workload, variant, tier, process, repeat } = self;
        write!(f, "{service}/{workload}/{variant}/{tier}-p{process}-r{repeat}")
    }
}

/// A text is no trial's folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no trial; it is SERVICE/WORKLOAD/VARIANT/TIER-pPROCESS-rREPEAT")]
pub struct NoTrialId(String);

/// The other way round.
impl FromStr for TrialId {
    type Err = NoTrialId;

    fn from_str(text: &str) -> Result<Self, NoTrialId> {
        let parse = || {
            let [service, workload, variant, last] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
            let (tier, rest) = last.split_once("-p")?;
            let (process, repeat) = rest.split_once("-r")?;
            let number = |digits: &str| digits.parse().ok();
            Some(Self {
                service: service.into(),
                workload: workload.into(),
                variant: variant.into(),
                tier: number(tier)?,
                process: number(process)?,
                repeat: number(repeat)?,
            })
        };
        // Only what is written the same way again: `+1` is a number, but no part of a folder's name.
        parse().filter(|trial| trial.to_string() == text).ok_or_else(|| NoTrialId(text.into()))
    }
}

/// What one worker does in one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// Counts from 1; a trial that was interrupted is tried again under the next number.
    pub attempt: u32,
    /// This worker's index, from 0.
    pub worker: u32,
    /// How many workers share the trial.
    pub workers: u32,
    /// Where the service listens, `host:port`.
    pub address: String,
    /// This worker's connections.
    pub connections: u32,
    /// Index of its first connection among those of all workers.
    pub first_connection: u32,
    /// Seed of the trial's schedules; a worker mixes in its own index.
    pub seed: u64,
    /// How load is offered. An open rate is this worker's share.
    pub load: Load,
    /// What the messages are.
    pub message: Message,
    /// Load before the window, in nanoseconds.
    pub warmup_ns: u64,
    /// The window, in nanoseconds.
    pub window_ns: u64,
    /// Longest wait for what is in flight after the window, in nanoseconds.
    pub drain_ns: u64,
    /// A reply that takes longer, in nanoseconds, is `late` in place of `delivered`; absent without such an objective.
    #[serde(default)]
    pub late_after_ns: Option<u64>,
    /// Keep the connections for the next assignment: it may ask for more or fewer of them. Only where the workload's
    /// connections are at rest after a drain.
    #[serde(default)]
    pub keep_connections: bool,
    /// Settings of the service that a worker of its protocol has to know, by variable (`told` in
    /// `services/services.toml`), as far as the registry and the plan set them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Write a raw row for each reply of the window and upload them (`PUT /v1/workers/{worker}/samples`), where the
    /// workload has rows.
    #[serde(default)]
    pub samples: bool,
    /// Check the service's protocol before the load and after it, on connections of the check's own. Worker 0 does; off for
    /// a service that only swallows what it is sent.
    #[serde(default)]
    pub protocol_check: bool,
}

/// `POST /v1/workers`: a worker presents itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// The index that the worker was given when it was started.
    pub worker: u32,
    /// Its process id, for evidence and for its CPU limit.
    pub pid: u32,
    /// When it started, unix nanoseconds: in containers every worker is process 1, and only this tells one from the one
    /// that replaces it.
    #[serde(default)]
    pub started_at_unix_ns: u64,
    /// Program and version, for example `wse-bench 0.1.0`.
    pub program: String,
    /// The workloads that it knows, each with the terms on which it is judged.
    pub workloads: BTreeMap<String, Terms>,
}

/// `GET /v1/workers/{worker}/next`: what to do next; the coordinator answers when it knows, at the latest after 20 s.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "one a trial; a box would only move the bytes")]
pub enum Next {
    /// Ask again.
    Wait,
    /// Prepare this trial, then report ready.
    Trial(Assignment),
    /// The run is over: exit with success.
    Finished,
}

/// `POST /v1/workers/{worker}/ready`: connections are open; or they can't be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// As in the assignment.
    pub attempt: u32,
    /// Open connections; a workload that opens them inside its window reports 0.
    pub open: u32,
    /// Why the worker can't take part.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The answer to [`Ready`], given when all workers are ready.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Release {
    /// Not all are ready: ask again with the same [`Ready`].
    Wait,
    /// Load starts at this moment: unix nanoseconds of the coordinator's clock.
    Start {
        /// When warm-up begins; the window begins `warmup_ns` later.
        start_at_unix_ns: u64,
    },
    /// The trial is off; ask for the next.
    Abandoned {
        /// Why.
        reason: String,
    },
}

/// `POST /v1/workers/{worker}/window-over`: the worker has done all it was told to before its window's time. It keeps its
/// connections until the service has been read: closing them is work, too, and none of the window's.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowOver {
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// As in the assignment.
    pub attempt: u32,
}

/// The answer to [`WindowOver`], given when all workers are done, at the latest at the window's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Parting {
    /// The service has not been read: ask again with the same [`WindowOver`].
    Wait,
    /// It has, or the trial is off: drain and say goodbye.
    Drain,
}

/// `GET /v1/clock`: the coordinator's clock, for the worker's estimate of its offset.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Nanoseconds since the unix epoch.
    pub unix_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_read_back_from_its_folder() {
        let text = "rust-sync/sessions/standard/1000-p1-r2";
        assert_eq!(text.parse::<TrialId>().unwrap().to_string(), text);
        for wrong in ["", "a/b/c/1-p1", "a/b/c/d/1-p1-r1", "a/b/c/+1-p1-r1", "a/b/c/1-p1-r1 "] {
            assert_eq!(wrong.parse::<TrialId>(), Err(NoTrialId(wrong.into())));
        }
    }
}
