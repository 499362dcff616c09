//! The printed summary, compared with the files in `printed/`. `masked/mod.rs` of wse-bench's tests says how to write
//! the files again.

mod gateway;
#[path = "../../wse-bench/tests/masked/mod.rs"]
mod masked;

use std::process::Command;

use axum::{Json, Router, routing::get};
use bench_format::service::ServiceStats;
use gateway::{Flaw, Gateway};
use tokio::{net::TcpListener, runtime::Runtime};

/// Runs a load and compares standard output, and from standard error the lines about the gateway.
fn printed(name: &str, flaw: Flaw, flags: &str) {
    let gateway = Gateway::start(flaw);
    let flags = format!("--url {} --sessions 3 --warmup-secs 0.2 --measure-secs 1.5 {flags}", gateway.url());
    // The summary contains the name of the file of rows, so the name is always the same.
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_stt-loadgen");
    let done = Command::new(program).args(flags.split_whitespace()).current_dir(&folder).output().unwrap();
    let (summary, printed) = (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    let body = masked::json::masked(&summary);
    let of_gateway: Vec<_> = printed
        .lines()
        .filter(|line| !line.starts_with("note: ") && !masked::is_the_machines(line))
        .map(|line| masked::numbers(line) + "\n")
        .collect();
    // A generator that is late on a busy machine is not a failure here.
    let code = done.status.code().filter(|_| !of_gateway.is_empty()).unwrap_or(0);
    masked::check(&format!("{name}.txt"), &format!("exit code {code}\n{body}{}", of_gateway.concat()));
}

/// Serves a gateway's counters; returns their URL.
fn metrics(runtime: &Runtime) -> String {
    let pages = Router::new().route("/stats", get(async || Json(ServiceStats::default())));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, pages).await.unwrap() });
    url
}

#[test]
fn the_summary_of_a_gateway_that_is_right() {
    printed("right", Flaw::None, "--service-name right --repeat 2 --ramp-up-secs 0.1");
}

#[test]
fn the_summary_with_a_gateways_counters() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    printed("with-counters", Flaw::None, &format!("--metrics {}", metrics(&runtime)));
}

#[test]
fn the_summary_of_several_workers_with_rows() {
    printed("several-workers", Flaw::None, "--workers 2 --samples-out rows.csv.zst");
}

#[test]
fn the_summary_of_a_gateway_that_answers_with_errors() {
    printed("errors", Flaw::SendsAnError, "--workers 2");
}

#[test]
fn the_summary_of_a_gateway_that_closes_without_a_check() {
    printed("closes", Flaw::Closes, "--no-conformance");
}
