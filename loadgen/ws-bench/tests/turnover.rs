//! Whole trials in which the connections of a described service come and go.

mod service;

use std::collections::BTreeMap;

use bench_format::{
    plan::{Arrivals, Cut, Load},
    result::WorkerResult,
};
use loadgen_core::trial::ImmediateGate;
use service::{BY_SEQUENCE, Behaviour, IN_PARTS, Service, assignment};
use ws_bench::workloads::Workload;

/// A trial of ten connections that each have their number in the path, with half a second of window.
fn run(service: &Service, workload: &str, load: Load, section: &str) -> anyhow::Result<WorkerResult> {
    let mut assignment = assignment(&service.address, workload, 10, section);
    (assignment.load, assignment.window_ns) = (load, 500_000_000);
    assignment.websocket.as_mut().unwrap().path = "/ws?user={{connection}}".into();
    Workload::find(workload).unwrap().run(&assignment, &mut ImmediateGate)
}

/// 400 messages and 40 connections per second.
fn churn() -> Load {
    Load::Churn {
        rate_per_second: 400.0,
        arrivals: Arrivals::Constant,
        connections_per_second: Some(40.0),
        life_seconds: None,
    }
}

/// How often each path was requested.
fn requests(service: &Service) -> BTreeMap<String, usize> {
    let mut requests = BTreeMap::new();
    service.seen().paths.into_iter().for_each(|path| *requests.entry(path).or_default() += 1);
    requests
}

#[test]
fn each_connection_that_comes_has_a_number_and_an_opening_of_its_own() {
    let service = Service::start(Behaviour::Correct);
    let result = run(&service, "churn", churn(), BY_SEQUENCE).unwrap();
    let (turnover, seen) = (result.turnover.as_ref().unwrap(), service.seen());
    assert_eq!((turnover.due, turnover.ready, turnover.closed), (20, 20, 20), "{turnover:?}");
    assert_eq!((seen.joined, seen.byes), (30, 30), "each opens and says goodbye as the section has it");
    assert_eq!((result.messages.delivered, result.messages.lost), (200, 0), "{:?}", result.messages);
    let requests = requests(&service);
    assert_eq!(requests.len(), 30, "{requests:?}");
}

#[test]
fn replies_in_parts_have_their_times_while_connections_come_and_go() {
    let service = Service::start(Behaviour::Parts(std::time::Duration::from_millis(1)));
    let result = run(&service, "churn", churn(), IN_PARTS).unwrap();
    assert_eq!((result.messages.delivered, result.messages.lost), (200, 0), "{:?}", result.messages);
    assert!(
        ["first_ns", "gap_ns", "response_ns", "handshake_ns"].iter().all(|name| result.histograms.contains_key(*name))
    );
}

#[test]
fn a_connection_that_was_cut_comes_back_with_its_number() {
    let service = Service::start(Behaviour::Correct);
    let load = Load::Reconnect { cut: Cut::Reset, spread_seconds: 0.0, in_flight: 8 };
    let result = run(&service, "reconnect", load, BY_SEQUENCE).unwrap();
    assert_eq!(result.turnover.as_ref().unwrap().ready, 10);
    let requests = requests(&service);
    assert!(requests.len() == 10 && requests.values().all(|count| *count == 2), "{requests:?}");
}

#[test]
fn a_load_of_another_workload_is_refused_with_the_remedy() {
    let service = Service::start(Behaviour::Correct);
    let refused = |workload: &str, load| run(&service, workload, load, BY_SEQUENCE).unwrap_err().to_string();
    let open = Load::Open { rate_per_second: 1.0, arrivals: Arrivals::Constant };
    assert!(refused("churn", open).contains("give `load: { model: churn, … }`"));
    assert!(refused("request-reply", churn()).contains("keeps its connections; give an open load"));
}
