//! The printed output of each test in each format, compared with the files in `printed/`. `masked/mod.rs` says how to
//! write the files again.

mod masked;
mod publisher;
mod service;

use std::process::Command;

use publisher::{Pace, Publisher};
use service::{Flaw, SECRET, Service};

/// Runs a test in each output format and compares.
fn printed(name: &str, flags: &str) {
    for output in ["text", "markdown", "json"] {
        let arguments = format!("{flags} --warmup 0.1 --drain 20 --output {output}");
        let done = Command::new(env!("CARGO_BIN_EXE_wse-bench"))
            .args(arguments.split_whitespace())
            .env("WSE_BENCH_SECRET", SECRET)
            .output()
            .unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let printed = String::from_utf8(done.stderr).unwrap();
        let (body, clean) = match output {
            "json" => {
                let masked = masked::json::masked(&text);
                let clean = masked.matches("\"problems\": [").count() == masked.matches("\"problems\": []").count();
                (masked, clean)
            }
            _ => masked::table::masked(&text),
        };
        // A generator that is late on a busy machine is not a failure here.
        let code = done.status.code().map_or("none".into(), |code| if clean { "0".into() } else { code.to_string() });
        assert!(clean || code == "1" || name.contains("limit"), "{printed}{text}");
        masked::check(&format!("{name}.{output}.txt"), &format!("exit code {code}\n{body}"));
    }
}

/// Runs a test with the service's counters.
fn of_service(name: &str, flaw: Flaw, flags: &str) {
    let service = Service::start(flaw);
    let flags = format!("--port {} --stats-url {} --test {flags}", service.port, service.stats_url);
    printed(name, &flags);
}

#[test]
fn connection_storm() {
    of_service("connection-storm", Flaw::None, "connection-storm --tiers 2,3");
}

#[test]
fn ping_latency() {
    of_service("ping-latency", Flaw::None, "ping-latency --tiers 2,3 --pings 4 --workers 2");
}

#[test]
fn pings_at_a_rate() {
    of_service("ping-latency-at-a-rate", Flaw::None, "ping-latency --tiers 2 --rate 100 --duration 0.3");
}

#[test]
fn throughput() {
    of_service("throughput", Flaw::None, "throughput --tiers 2,3 --duration 0.3");
}

#[test]
fn throughput_without_a_witness() {
    let service = Service::start(Flaw::None);
    let flags = format!("--port {} --test throughput --tiers 2 --duration 0.3 --coalesce 4", service.port);
    printed("throughput-without-a-witness", &flags);
}

#[test]
fn throughput_of_a_service_that_lies() {
    of_service("throughput-of-a-liar", Flaw::FalseCounts, "throughput --tiers 2 --duration 0.3");
}

#[test]
fn size_matrix() {
    of_service("size-matrix", Flaw::None, "size-matrix --tiers 1,2 --duration 0.1");
}

#[test]
fn format_comparison() {
    of_service("format-comparison", Flaw::None, "format-comparison --tiers 2 --duration 0.2");
}

#[test]
fn sustained_hold() {
    of_service("sustained-hold", Flaw::None, "sustained-hold --tiers 4 --hold 0.5");
}

#[test]
fn sustained_hold_of_connections_that_are_dropped() {
    let flags = "sustained-hold --tiers 4 --hold 0.5 --no-conformance";
    of_service("sustained-hold-dropped", Flaw::DropsAfterAPing, flags);
}

#[test]
fn connection_limit() {
    of_service("connection-limit", Flaw::Full(5), "connection-limit --max-connections 8 --duration 0.2");
}

#[test]
fn connection_limit_that_is_not_reached() {
    of_service("connection-limit-not-reached", Flaw::None, "connection-limit --max-connections 6 --duration 0.2");
}

#[test]
fn fanout_broadcast() {
    let service = Publisher::alone(Pace::Paced);
    let common = format!("--port {} --test fanout-broadcast --tiers 3 --duration 1", service.port);
    printed("fanout-broadcast", &format!("{common} --stats-url {}", service.stats_url));
    printed("fanout-broadcast-without-counters", &format!("{common} --rate 200"));
}

#[test]
fn fanout_broadcast_as_a_flood() {
    let service = Publisher::alone(Pace::Flood);
    let (port, url) = (service.port, &service.stats_url);
    printed(
        "fanout-flood",
        &format!("--port {port} --test fanout-broadcast --tiers 3 --duration 0.3 --stats-url {url}"),
    );
}

#[test]
fn fanout_cluster() {
    let service = Publisher::pair(Pace::Paced);
    let Publisher { port, publishing_port, stats_url, publishing_metrics_port, .. } = &service;
    let flags = format!(
        "--port {publishing_port} --port2 {port} --metrics-port {publishing_metrics_port} --stats-url {stats_url} \
         --test fanout-cluster --tiers 3 --duration 1"
    );
    printed("fanout-cluster", &flags);
}
