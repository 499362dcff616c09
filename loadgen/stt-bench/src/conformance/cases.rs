//! All conformance cases, in the order of the report. Each submodule has the checks of one subject; [`CASES`] gives
//! each check its name, stage, needs and level. Cases do not depend on each other's results.

mod accounts;
mod covers;
mod drain;
mod errors;
mod flight;
mod framing;
mod http;
mod memory;
mod schedule;
mod start;

use std::future::Future;

use super::{
    case::{Case, Running},
    finding::Verdict,
    level::Level,
    scene::Scene,
    stage::{Need, Stage},
};

fn boxed(verdict: impl Future<Output = Verdict> + Send + 'static) -> Running {
    Box::pin(verdict)
}

/// Maximum number of tries of a case about time: a busy machine can be late once.
const TRIES: u32 = 3;

macro_rules! case {
    // Level strict: what a WebSocket or HTTP library does by itself. All other cases have level core.
    (strict $name:literal, $($rest:tt)*) => {
        Case { level: Level::Strict, ..case!($name, $($rest)*) }
    };
    ($name:literal, $stage:ident, [$($need:ident),*], $run:path, $proves:literal) => {
        case!(1, $name, $stage, [$($need),*], $run, $proves)
    };
    ($tries:expr, $name:literal, $stage:ident, [$($need:ident),*], $run:path, $proves:literal) => {
        Case {
            name: $name,
            proves: $proves,
            level: Level::Core,
            stage: Stage::$stage,
            needs: &[$(Need::$need),*],
            tries: $tries,
            run: |scene: Scene| boxed($run(scene)),
        }
    };
}

/// All cases, in the order of the report.
pub const CASES: &[Case] = &[
    case!("ready", Wire, [], start::ready, "a client is taken, and its Close before start is a normal end"),
    case!("partial", Wire, [FourPasses], start::partial, "a partial has exactly its 14 keys, and the golden values"),
    case!("invalid-start", Wire, [], start::invalid_start, "a first message that is no start is refused: 1002"),
    case!("invalid-frame", Wire, [], start::invalid_frame, "audio of another length than 640 bytes is refused: 1003"),
    case!(TRIES, "cadence", Wire, [], covers::cadence, "partials come once per interval"),
    case!("close", Wire, [], covers::close, "Close is answered within a second, and the connection ends"),
    case!("extra-key", Wire, [], start::extra_key, "a start with a further key is refused: 1002"),
    case!("binary-first", Wire, [], start::binary_first, "audio before start is refused: 1002"),
    case!("spaced-start", Wire, [], start::spaced_start, "a start may have white space"),
    case!("text-after-start", Wire, [], start::text_after_start, "text after start is refused: 1002"),
    case!(
        TRIES,
        "ping-before-start",
        Wire,
        [],
        framing::ping_before_start,
        "pings before start are answered, and start is still taken"
    ),
    case!(
        TRIES,
        "ping-after-start",
        Wire,
        [],
        framing::ping_after_start,
        "pings in a session are answered within 500 ms"
    ),
    case!("fragmentation", Wire, [], framing::fragmentation, "messages in parts are put together"),
    case!(strict "oversized", Wire, [], framing::oversized, "a message of more than 64 KiB is refused: 1009"),
    case!(strict "oversized-fragments", Wire, [], framing::oversized_fragments, "the same in parts: 1009"),
    case!(strict "unmasked", Wire, [], framing::unmasked, "a frame without a mask is refused: 1002"),
    case!(strict "reserved", Wire, [], framing::reserved, "reserved bits and unknown opcodes are refused: 1002"),
    case!(
        strict "bad-control",
        Wire,
        [],
        framing::bad_control,
        "control frames that are too long or in parts are refused: 1002"
    ),
    case!("health", Wire, [], http::health, "/health reports the runtime"),
    case!(strict "unknown-path", Wire, [], http::unknown_path, "a path that isn't there is 404"),
    case!(strict "wrong-method", Wire, [], http::wrong_method, "another method than GET is 405"),
    case!(strict "bad-upgrade", Wire, [], http::bad_upgrade, "what is no upgrade of version 13 is 400 or 426"),
    case!("coverage", Wire, [], covers::coverage, "sequence numbers go on, and every frame is covered exactly once"),
    case!(
        "contents",
        Wire,
        [],
        covers::contents,
        "a partial is the inference's answer to exactly the frames that it covers"
    ),
    case!(
        "batches",
        Scripted,
        [Script],
        covers::batches,
        "the inference gets exactly the bytes sent: nothing lost, doubled or out of order"
    ),
    case!("request", Scripted, [Script], covers::request, "POST /infer with x-cpu-passes and Content-Length"),
    case!(
        "echo",
        Scripted,
        [Script],
        covers::echo,
        "a partial reports the gateway's own CPU_PASSES and MODEL_DELAY_MS"
    ),
    case!(
        "pass-through",
        Scripted,
        [Script],
        covers::pass_through,
        "what the inference reports is passed on unchanged"
    ),
    case!(
        "error-frame",
        Scripted,
        [Script],
        errors::error_schema,
        "an error frame has exactly its 16 keys, and the numbers of its batch"
    ),
    case!("recovery", Scripted, [Script], errors::recovery, "after an error frame the session goes on"),
    case!(TRIES, "timeout", Scripted, [Script], errors::timeout, "no answer in time: timeout"),
    case!("http-5xx", Scripted, [Script], errors::server_error, "500 and 503: http_5xx, retryable"),
    case!("http-429", Scripted, [Script], errors::too_many_requests, "429: http_429, retryable"),
    case!("http-4xx", Scripted, [Script], errors::client_error, "400 and 404: http_5xx, not retryable"),
    case!(
        "reset",
        Scripted,
        [Script],
        errors::reset,
        "a broken connection to the inference: connection_reset, retryable"
    ),
    case!("garbage", Scripted, [Script], errors::garbage, "an answer that can't be read: parse_error"),
    case!(
        "unknown-field",
        Scripted,
        [Script],
        errors::unknown_field,
        "an answer with other keys than the six: parse_error"
    ),
    case!(
        "wrong-counts",
        Scripted,
        [Script],
        errors::wrong_counts,
        "an answer that counts something else than was sent: parse_error"
    ),
    case!(
        TRIES,
        "one-in-flight",
        Scripted,
        [Script],
        flight::one_in_flight,
        "at most one request in flight per connection"
    ),
    case!(
        TRIES,
        "skip-tick",
        Scripted,
        [Script],
        flight::skip_tick,
        "a tick that finds a request in flight is skipped; the next batch has all frames since"
    ),
    case!(
        TRIES,
        "schedule",
        Scripted,
        [Script],
        schedule::schedule,
        "ticks keep to an absolute schedule, without drift"
    ),
    case!(TRIES, "first-tick", Scripted, [Script], schedule::first_tick, "the schedule begins with start"),
    case!(
        "books",
        Accounts,
        [Script, Metrics],
        accounts::books,
        "known traffic is in the books, each message in its place"
    ),
    case!(
        "books-under-load",
        Accounts,
        [Script, Metrics],
        accounts::books_under_load,
        "the books balance at any moment"
    ),
    case!(
        "connections",
        Accounts,
        [Metrics],
        accounts::connections,
        "connections are counted when they come and when they go"
    ),
    case!("metrics", Accounts, [Script, Metrics], accounts::metrics, "the metrics port has what the contract lists"),
    case!(
        "close-during-inference",
        Accounts,
        [Script, Metrics],
        accounts::close_during_inference,
        "a client that leaves during inference leaves nothing behind"
    ),
    case!(
        "overflow",
        Accounts,
        [Script, Metrics],
        memory::overflow,
        "the input buffer is bounded; what is dropped is reported in one error frame"
    ),
    case!(
        "bounded-memory",
        Accounts,
        [Script, Metrics],
        memory::bounded_memory,
        "when the inference stalls, what the gateway holds stays bounded"
    ),
    case!(
        "slow-consumer",
        Slow,
        [Script, Metrics],
        memory::slow_consumer,
        "a client that does not read is cut off, and others don't notice"
    ),
    case!(
        TRIES,
        "stall",
        Stall,
        [Script, Process],
        schedule::stall,
        "a stall shows in the lateness once, and moves no later tick"
    ),
    case!(
        "drain",
        Drain,
        [Script, Metrics, Process],
        drain::drain,
        "SIGTERM: everything held is answered, every client gets Close 1001, exit code 0"
    ),
    case!("survives", Last, [Process], accounts::survives, "no process of the gateway ended by itself"),
    case!("at-rest", Last, [Metrics], accounts::at_rest, "when all is over nothing is left, and the books balance"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }
}
