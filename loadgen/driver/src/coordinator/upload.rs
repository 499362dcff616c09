//! Parses and checks a worker's upload before it changes the state of the run.

use std::hash::{DefaultHasher, Hasher};

use bench_format::{SchemaTooNew, histogram::Recorder, result::WorkerResult};

/// Largest result, or file of raw rows, that is accepted, in bytes: enough for the books of about 500 000 connections.
pub const LARGEST: usize = 256 * 1024 * 1024;

/// A worker's result, as uploaded and parsed.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The uploaded bytes, which the bundle keeps unchanged.
    pub bytes: Vec<u8>,
    /// The result that was parsed from `bytes`.
    pub result: WorkerResult,
    /// Hash of the bytes. It distinguishes a repeated upload from a different one.
    pub digest: u64,
    /// The worker's raw rows, compressed as uploaded; absent if it sent none.
    pub samples: Option<Vec<u8>>,
}

/// Why an upload is refused, with HTTP status 400.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not a worker result.
    #[error("the body is not a worker result: {0}")]
    Parse(#[from] serde_json::Error),
    /// A newer program wrote the result.
    #[error(transparent)]
    Schema(#[from] SchemaTooNew),
    /// A histogram can't be decoded.
    #[error("histogram \"{name}\" can't be read: {reason}")]
    Histogram {
        /// Name of the histogram.
        name: String,
        /// Why it can't be decoded.
        reason: String,
    },
}

impl Upload {
    /// Parses and checks a body.
    ///
    /// # Errors
    /// [`Error`] if any part of the body can't be read. Nothing of it is used then.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Error> {
        let result: WorkerResult = serde_json::from_slice(&bytes)?;
        bench_format::check_schema(result.schema)?;
        let of_intervals = result.intervals.iter().flat_map(|interval| &interval.histograms);
        for (name, histogram) in result.histograms.iter().chain(of_intervals) {
            Recorder::decode(histogram)
                .map_err(|error| Error::Histogram { name: name.to_string(), reason: error.to_string() })?;
        }
        let mut digest = DefaultHasher::new();
        digest.write(&bytes);
        Ok(Self { bytes, result, digest: digest.finish(), samples: None })
    }
}

/// Helpers for tests of uploads, in this crate and others.
#[cfg(any(test, feature = "fixture"))]
pub mod fixture {
    use bench_format::{
        plan::{Load, Message},
        result::WorkerResult,
        trial::{Assignment, Progress, Ready, Registration},
    };
    pub use judge::fixture::trial;

    use super::Upload;

    /// The assignment of one worker.
    pub fn assignment(worker: u32, workers: u32) -> Assignment {
        Assignment {
            run: "run".into(),
            trial: trial(),
            attempt: 1,
            worker,
            workers,
            address: "127.0.0.1:1".into(),
            connections: 10,
            first_connection: worker * 10,
            seed: 1,
            load: Load::Closed { messages_per_connection: None, in_flight: 1 },
            message: Message::default(),
            warmup_ns: 0,
            window_ns: 1,
            drain_ns: 1,
            late_after_ns: None,
            keep_connections: false,
            settings: Default::default(),
            websocket: None,
            samples: false,
            protocol_check: true,
        }
    }

    /// The message of a worker that is ready.
    pub fn ready(attempt: u32) -> Ready {
        Ready { run: "run".into(), trial: trial(), attempt, open: 10, problem: None }
    }

    /// The report of a worker that has done nothing yet.
    pub fn progress(attempt: u32) -> Progress {
        Progress {
            run: "run".into(),
            trial: trial(),
            attempt,
            open: 0,
            due: 0,
            sent: 0,
            answered: 0,
            errors: 0,
            latencies: vec![],
            cpu_ns: 0,
            cpu_limit: 1.0,
        }
    }

    /// The registration of a worker.
    pub fn registration(worker: u32, pid: u32) -> Registration {
        Registration { worker, pid, started_at_unix_ns: 0, program: "fake 0".into(), workloads: Default::default() }
    }

    /// A worker's result with all counts 0.
    pub fn worker_result(worker: u32, attempt: u32) -> WorkerResult {
        let text = r#"{"schema":1,"run":"run","trial":{"service":"ours","workload":"throughput","variant":"standard",
            "tier":20,"process":1,"repeat":1},"attempt":1,"worker":0,"witness":"application",
            "connections":{"attempted":10,"open":10,"failed":{},"closed_early":{}},
            "messages":{"due":0,"sent":0,"delivered":0,"late":0,"wrong":0,"dropped":{},"lost":0,"unsent":0,
            "duplicates":0,"reorders":0,"bytes_sent":0,"bytes_received":0},
            "window":{"duration_ns":1000000000,"due":0,"sent":0,"replies":0,"writes":0,"cpu_ns":0},"histograms":{},
            "evidence":{"program":"fake 0","start_at_unix_ns":0,"start_skew_ns":0,"clock_offset_ns":0,
            "clock_uncertainty_ns":0,"clock_step_ns":0,"cpu_limit":1,"cpu_seconds":0,"throttled_periods":null,
            "periods":null,"throttling":"not_measured","rss_bytes":0,"nodelay":true,"congestion_control":""},
            "environment":{"host":"","kernel":"","cpu_model":"","cpus":1,"cpus_allowed":"","memory_bytes":0,
            "virtualised":false,"congestion_control":"","somaxconn":"","port_range":"","tcp_rmem":"","tcp_wmem":"",
            "open_files":0}}"#;
        let mut result: WorkerResult = serde_json::from_str(text).expect("a constant is a result");
        (result.worker, result.attempt) = (worker, attempt);
        result
    }

    /// [`worker_result`] as an upload.
    pub fn upload(worker: u32, attempt: u32) -> Upload {
        let bytes = serde_json::to_vec(&worker_result(worker, attempt)).expect("a result is plain data");
        Upload::parse(bytes).expect("a result can be read again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut WorkerResult)) -> String {
        let mut result = fixture::worker_result(0, 1);
        change(&mut result);
        Upload::parse(serde_json::to_vec(&result).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn a_broken_histogram_is_refused_by_name() {
        let description = refused(|result| {
            let mut histogram = Recorder::new().encode();
            histogram.count = 3;
            result.histograms.insert(bench_format::Name::from_static("response_ns"), histogram);
        });
        assert!(description.starts_with("histogram \"response_ns\" can't be read: "), "{description}");
    }

    #[test]
    fn a_result_of_a_newer_program_is_refused() {
        assert!(refused(|result| result.schema = 99).contains("schema 99 is newer"));
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let description = Upload::parse(b"{\"schema\":1,\"surprise\":1}".to_vec()).unwrap_err().to_string();
        assert!(description.contains("surprise"), "{description}");
    }
}
