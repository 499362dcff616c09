//! Everything that keeps a tier from being a clean result, in words. Pure.

use std::collections::BTreeMap;

use bench_format::{
    plan::{Load, Thresholds},
    result::{RECEIVER_BEHIND, Witness, WorkerEvidence, WorkerResult},
};

use judge::published::{OffSchedule, Scheduled};

use super::{Asked, Measured};
use crate::{suite::Test, workloads::Workload};

/// Everything that keeps a tier from being a clean result, in words.
pub(super) fn problems(asked: &Asked, measured: &Measured, results: &[WorkerResult]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut expect = |fine: bool, words: String| {
        if !fine {
            problems.push(words);
        }
    };
    let Measured { connections, messages, window, books, .. } = measured;
    let open = connections.open;
    expect(
        open == u64::from(asked.tier),
        format!("{open} of {} connections opened{}", asked.tier, reasons(&connections.failed)),
    );
    let early: u64 = connections.closed_early.values().sum();
    expect(early == 0, format!("{early} connections ended early{}", reasons(&connections.closed_early)));
    // What a service that publishes loses is what is measured; that it says something else is wrong.
    let receives = asked.workload.witness() == Witness::Receiver;
    for (count, words) in [
        (if receives { 0 } else { messages.lost }, "sent, but lost"),
        (messages.wrong, if receives { "published without a number or a time" } else { "answered wrongly" }),
        (messages.unsent, "due, but never sent"),
        (messages.duplicates, if receives { "received twice" } else { "answered twice" }),
    ] {
        expect(count == 0, format!("{count} messages {words}"));
    }
    if let Some(behind) = measured.failures.get(RECEIVER_BEHIND) {
        expect(false, format!("{behind} connections had not all that was published in the window by the drain's end"));
    }
    if let (Workload::PingLatency, Load::Closed { messages_per_connection: Some(pings), .. }) =
        (asked.workload, &asked.load)
    {
        let wanted = u64::from(*pings) * u64::from(asked.tier);
        expect(window.replies == wanted, format!("{} of {wanted} pings answered in the window", window.replies));
    }
    for equation in books.equations.iter().filter(|equation| !equation.holds()) {
        expect(false, format!("unaccounted: {}: {} against {}", equation.name, equation.left, equation.right));
    }
    if let Some(check) = &books.connections {
        let examples = check.examples.join("; ");
        expect(
            check.mismatched == 0,
            format!("unaccounted: books of {} connections differ: {examples}", check.mismatched),
        );
    }
    for check in results.iter().filter_map(|result| result.conformance.as_ref()) {
        for (when, findings) in [("before", &check.before), ("after", &check.after)] {
            expect(findings.is_empty(), format!("conformance {when} the load: {}", findings.join(", ")));
        }
    }
    // A probe asks whether connections last, not when its few pings were answered.
    if asked.load.is_open() && asked.test != Test::ConnectionLimit {
        problems.extend(generator_problems(asked, measured, results));
    }
    problems
}

/// Whether the generator kept its own schedule.
fn generator_problems(asked: &Asked, measured: &Measured, results: &[WorkerResult]) -> Vec<String> {
    let limits = Thresholds::default();
    let mut problems = Vec::new();
    let delay_ns = measured.percentiles.get("delay_ns").and_then(|delay| delay.get("p99").copied().flatten());
    if let Some(delay_ms) = delay_ns.map(|ns| ns as f64 / 1e6).filter(|ms| *ms > limits.delay_p99_ms) {
        problems.push(format!(
            "generator_late: p99 of its delay is {delay_ms:.1} ms, allowed are {} ms",
            limits.delay_p99_ms
        ));
    }
    if let Some(share) = measured.figures.worker_cpu_share.filter(|share| *share > limits.worker_cpu_share) {
        problems.push(format!(
            "generator_cpu: a worker used {:.0} % of its CPU, allowed are {:.0} %",
            share * 100.0,
            limits.worker_cpu_share * 100.0
        ));
    }
    for WorkerEvidence { throttled_periods, periods, .. } in results.iter().map(|result| &result.evidence) {
        if let (Some(throttled), Some(periods)) = (throttled_periods, periods)
            && *throttled as f64 > *periods as f64 * limits.throttled_share
        {
            problems.push(format!("generator_cpu: throttled in {throttled} of {periods} periods"));
        }
    }
    let (due, sent) = (measured.window.due, measured.window.sent);
    // What each thread writes last may be due just before the window's end and sent just after it.
    let threads: f64 = results.iter().map(|result| result.evidence.cpu_limit.ceil()).sum();
    let at_the_edge = threads * f64::from(asked.message.coalesce);
    let enough = due as f64 * limits.send_share - at_the_edge;
    if asked.workload != Workload::ConnectionStorm && (sent as f64) < enough {
        problems.push(format!("send_rate: {sent} of {due} due messages were sent in the window"));
    }
    problems.extend(off_schedule(asked, measured, results, limits.send_share).map(|off| format!("send_rate: {off}")));
    problems
}

/// Where the service publishes, the schedule is its own.
fn off_schedule(asked: &Asked, measured: &Measured, results: &[WorkerResult], share: f64) -> Option<OffSchedule> {
    let Load::Open { rate_per_second, .. } = asked.load else { return None };
    if !asked.workload.receives() {
        return None;
    }
    let books = results.iter().flat_map(|result| &result.books);
    let receivers: Vec<_> = books.filter_map(|book| book.receiver.as_ref()).collect();
    let received = measured.histograms.get("response_ns").map_or(0, |response| response.count + response.overflow);
    let window_ns = measured.window.duration_ns;
    Scheduled { rate_per_second, window_ns, receivers: &receivers, received, share }.off()
}

fn reasons(reasons: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}
