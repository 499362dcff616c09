//! A worker's upload and a service's counters in which values are changed: the upload is refused, or the trial is judged
//! and its result is one that can be stored and read again.
#![no_main]

use bench_format::{
    result::{ServiceFile, TrialResult},
    trial_file::TrialFile,
};
use driver::coordinator::upload::Upload;
use libfuzzer_sys::fuzz_target;
use ws_ladder_fuzz::changed;

macro_rules! documents {
    ($name:literal) => {
        [
            include_str!(concat!("../../loadgen/judge/tests/trials/", $name, "/trial.json")),
            include_str!(concat!("../../loadgen/judge/tests/trials/", $name, "/workers/0.json")),
            include_str!(concat!("../../loadgen/judge/tests/trials/", $name, "/service.json")),
        ]
    };
}

/// Trials of the judge's own tests: trial, worker's result, service's counters.
const TRIALS: [[&str; 3]; 8] = [
    documents!("connection-storm-none"),
    documents!("fanout-broadcast-paced-publisher"),
    documents!("ping-latency-open-none"),
    documents!("sessions-gateway-none"),
    documents!("throughput-flood-none"),
    documents!("throughput-open-none"),
    documents!("churn-refusing"),
    documents!("reconnect-honest"),
];

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (which, of_worker, of_service) = input;
    let [trial, worker, service] = TRIALS[usize::from(which) % TRIALS.len()];
    let trial: TrialFile = serde_json::from_str(trial).expect("it is one of the judge's own");
    let Ok(upload) = Upload::parse(changed(worker, of_worker).to_string().into_bytes()) else { return };
    let Ok(service) = serde_json::from_value::<ServiceFile>(changed(service, of_service)) else { return };
    let judged = judge::judge(&trial, &[&upload.result], &service).expect("an upload's histograms are readable");
    let stored = serde_json::to_string(&judged.result).expect("a result can be stored");
    let read: TrialResult = serde_json::from_str(&stored).unwrap_or_else(|error| panic!("{error}: {stored}"));
    assert_eq!(serde_json::to_string(&read).expect("a result can be stored"), stored);
});
