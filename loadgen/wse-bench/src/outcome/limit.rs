//! Whether the connections of a probe held, which side is the cause when not, and the result of a search. Pure.
//!
//! A limit of the generator must not be shown as the service's. When something of the generator ran out, or it may have
//! had too little CPU, the service's limit stays open.

use std::collections::BTreeMap;

use bench_format::plan::Thresholds;
use driver::measure;
use serde::Serialize;

use super::{Measured, TierResult};

/// Failures of the generator's own kernel, and how the user fixes them.
const OWN: [(&str, &str); 3] = [
    ("no_descriptors", "our own descriptors ran out: raise `ulimit -n`, or give more --workers"),
    ("no_ports", "our own ports ran out: give --source-address, or widen net.ipv4.ip_local_port_range"),
    ("no_memory", "our own kernel has no memory for more sockets"),
];
/// Failures that a generator without CPU causes as well as a service that doesn't respond.
const SILENCE: [&str; 3] = ["timeout", "ready_timeout", UNANSWERED];
/// A ping that was sent and not answered, or could not be sent.
const UNANSWERED: &str = "unanswered";

/// The part of a search that a probe belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Doubling until connections don't hold.
    Raise,
    /// Halving the interval between what held and what didn't.
    Bisect,
}

/// The side that is the cause when connections did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The service refused or closed connections, or did not respond.
    Service,
    /// The generator or its machine reached a limit.
    Generator,
    /// The cause can't be determined.
    Unclear,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The probe's part of the search.
    pub phase: Phase,
    /// Whether all connections opened, lasted, and replied.
    pub held: bool,
    /// The side that is the cause; absent when they held.
    pub side: Option<Side>,
    /// The reason as text; absent when they held.
    pub why: Option<String>,
}

/// What ended a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The service: the figure is its limit.
    Service,
    /// A limit of the generator: the figure is a lower bound.
    Generator,
    /// All requested connections held: the figure is a lower bound.
    Maximum,
    /// A cause that can't be determined: the figure is a lower bound.
    Unclear,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The most connections that all opened, lasted, and replied.
    pub held: u32,
    /// The smallest number that did not hold; absent when all that could be offered held.
    pub failed: Option<u32>,
    /// What ended the search. Unless it was the service, `held` is a lower bound.
    pub ended_by: EndedBy,
    /// The reason as text, with what to change.
    pub why: String,
}

impl Limit {
    /// The figure as it is printed; a lower bound has the sign `>=`.
    pub fn description(&self) -> String {
        let sign = if self.ended_by == EndedBy::Service { "" } else { ">= " };
        format!("{sign}{} connections ({})", self.held, self.why)
    }
}

/// Judges a probe. `trial` is absent when it could not be measured.
pub fn probed(phase: Phase, outcome: &TierResult, trial: Option<&measure::Measured>) -> Probe {
    let Some(measured) = &outcome.measured else {
        let why = Some(outcome.problems.join("; "));
        return Probe { phase, held: false, side: Some(Side::Unclear), why };
    };
    let reasons = reasons(measured);
    if reasons.is_empty() && measured.connections.open == u64::from(outcome.request.tier) {
        return Probe { phase, held: true, side: None, why: None };
    }
    let (side, why) = failed_side(&reasons, trial.and_then(generator_share));
    Probe { phase, held: false, side: Some(side), why: Some(why) }
}

/// Every failure of a connection or its ping, with its count.
fn reasons(measured: &Measured) -> BTreeMap<&str, u64> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    let Measured { connections, messages, .. } = measured;
    for (reason, count) in connections.failed.iter().chain(&connections.closed_early) {
        *reasons.entry(reason.as_str()).or_default() += count;
    }
    // The pings of failed connections are unsent as well, and are no further failure.
    let unanswered = messages.lost + if reasons.is_empty() { messages.unsent } else { 0 };
    for (reason, count) in [(UNANSWERED, unanswered), ("wrong", messages.wrong)] {
        if count > 0 {
            reasons.insert(reason, count);
        }
    }
    reasons
}

/// Share of its CPU that the generator used while connections opened. It is an upper bound, because the CPU time of the
/// whole trial is counted.
fn generator_share(trial: &measure::Measured) -> Option<f64> {
    let workers = || trial.uploads.iter().map(|upload| &upload.result.evidence);
    let opening_ns = workers().filter_map(|worker| worker.opening_ns).max()? as f64;
    let used: f64 = workers().map(|worker| worker.cpu_seconds * 1e9).sum();
    let limit = workers().map(|worker| worker.cpu_limit).fold(0.0, f64::max);
    let readings = &trial.service.readings;
    let service_ns = readings.open.as_ref().zip(readings.before.as_ref()).and_then(|(open, before)| {
        Some(open.cpu_ns?.saturating_sub(before.cpu_ns?)).filter(|_| trial.trial.cpus.shared_with_service)
    });
    let available = limit * opening_ns - service_ns.unwrap_or(0) as f64;
    Some(if available > 0.0 { used / available } else { 1.0 })
}

fn failed_side(reasons: &BTreeMap<&str, u64>, generator_share: Option<f64>) -> (Side, String) {
    if let Some((_, description)) = OWN.iter().find(|(reason, _)| reasons.contains_key(reason)) {
        return (Side::Generator, (*description).to_owned());
    }
    let description: Vec<_> =
        reasons.iter().map(|(reason, count)| format!("{count} {}", description(reason))).collect();
    let description = description.join(", ");
    let generator_has_no_cpu = generator_share.is_none_or(|share| share >= Thresholds::default().bound_share);
    if generator_has_no_cpu && reasons.keys().all(|reason| SILENCE.contains(reason)) {
        return (
            Side::Unclear,
            format!("{description}, while the generator used up its own CPU: give it CPUs of its own"),
        );
    }
    (Side::Service, description)
}

/// A failure's key as text.
fn description(reason: &str) -> String {
    let named = match reason {
        "refused" => "refused by TCP",
        "reset" => "reset by the service",
        "eof" => "ended by the service without a close frame",
        "timeout" => "not answered within 15 s",
        "ready_timeout" => "upgraded but never ready, for 15 s",
        UNANSWERED => "open but their ping not answered",
        "wrong" => "pings answered wrongly",
        "unreachable" => "without a route to the service",
        _ => "",
    };
    match (named, reason.strip_prefix("http_"), reason.strip_prefix("close_")) {
        ("", Some(status), _) => format!("refused with HTTP status {status}"),
        ("", _, Some(code)) => format!("closed by the service with code {code}"),
        ("", None, None) => reason.to_owned(),
        (named, ..) => named.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bench_format::result::Reading;
    use driver::measure::fixture::of;
    use judge::fixture::Files;

    use super::*;
    use crate::{
        outcome::fixture::{changed, request},
        suite::Test,
    };

    /// A probe of 100 connections, of which `failed` failed for a reason, after `change`. Opening took 20 seconds, and
    /// the generator used one second of CPU.
    fn probe(reason: &str, failed: u64, change: impl FnOnce(&mut Files)) -> Probe {
        let files = changed(|files| {
            let connections = &mut files.uploads[0].connections;
            (connections.attempted, connections.open) = (100, 100 - failed);
            if failed > 0 {
                connections.failed.insert(reason.into(), failed);
            }
            let evidence = &mut files.uploads[0].evidence;
            (evidence.cpu_seconds, evidence.opening_ns) = (1.0, Some(20_000_000_000));
            change(files);
        });
        let trial = of(files);
        let outcome = TierResult::new(request(Test::ConnectionLimit, 100), &trial, String::new());
        probed(Phase::Raise, &outcome, Some(&trial))
    }

    /// Sets how long opening took.
    fn in_time(files: &mut Files, seconds: u64) {
        files.uploads[0].evidence.opening_ns = Some(seconds * 1_000_000_000);
    }

    #[test]
    fn connections_that_all_opened_lasted_and_answered_held() {
        assert!(probe("", 0, |_| ()).held);
    }

    #[test]
    fn a_refusal_of_the_service_is_its_limit() {
        for (reason, description) in [
            ("http_503", "3 refused with HTTP status 503"),
            ("refused", "3 refused by TCP"),
            ("close_1013", "3 closed by the service with code 1013"),
            ("timeout", "3 not answered within 15 s"),
        ] {
            let probe = probe(reason, 3, |_| ());
            assert_eq!((probe.side, probe.why.as_deref()), (Some(Side::Service), Some(description)), "{reason}");
        }
    }

    #[test]
    fn a_limit_of_this_machine_is_not_the_services() {
        for (reason, description) in [("no_descriptors", "our own descriptors"), ("no_ports", "--source-address")] {
            let probe = probe(reason, 3, |_| ());
            assert_eq!(probe.side, Some(Side::Generator));
            assert!(probe.why.as_ref().unwrap().contains(description), "{probe:?}");
        }
    }

    #[test]
    fn silence_proves_nothing_while_the_generator_had_no_cpu_left() {
        let without_cpu = |reason| probe(reason, 3, |files| in_time(files, 1));
        assert_eq!(without_cpu("timeout").side, Some(Side::Unclear));
        assert_eq!(without_cpu("http_503").side, Some(Side::Service), "a refusal is one all the same");
        let crowded = probe("timeout", 3, |files| {
            in_time(files, 2);
            files.trial.cpus.shared_with_service = true;
            let readings = &mut files.service.readings;
            let before = readings.before.clone().unwrap();
            readings.open = Some(Reading { cpu_ns: before.cpu_ns.map(|ns| ns + 1_000_000_000), ..before });
        });
        assert_eq!(crowded.side, Some(Side::Unclear), "the service took the rest");
    }

    #[test]
    fn an_unanswered_ping_is_a_connection_that_did_not_hold() {
        let probe = probe("", 0, |files| {
            files.trial.terms.witness = bench_format::result::Witness::Reply;
            files.uploads[0].messages.lost = 2;
        });
        assert_eq!(probe.why.as_deref(), Some("2 open but their ping not answered"));
    }

    #[test]
    fn a_probe_that_could_not_be_measured_has_no_limit() {
        let outcome = TierResult::failed(request(Test::ConnectionLimit, 100), "no luck".into(), String::new());
        let probe = probed(Phase::Bisect, &outcome, None);
        assert_eq!((probe.held, probe.side, probe.why.as_deref()), (false, Some(Side::Unclear), Some("no luck")));
    }

    #[test]
    fn only_a_limit_of_the_service_is_printed_without_a_sign() {
        let limit = |ended_by| Limit { held: 7, failed: None, ended_by, why: "w".into() }.description();
        assert_eq!(limit(EndedBy::Service), "7 connections (w)");
        for ended_by in [EndedBy::Generator, EndedBy::Maximum, EndedBy::Unclear] {
            assert_eq!(limit(ended_by), ">= 7 connections (w)");
        }
    }
}
