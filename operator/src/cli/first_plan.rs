//! The text of a first plan for a service that only the plan describes: what `ladder try` and `ladder plan new` write.

use std::fmt::Write;

use bench_format::SCHEMA;
use ws_bench::workloads::Workload;

/// The ways in which a ladder of a first plan offers load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstLoad {
    /// Each connection sends its next message after the reply to the last; of a storm: as fast as connections open.
    Closed,
    /// So many messages (of a storm: connections) per second, over all connections.
    PerSecond(u32),
}

/// A ladder of a first plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FirstLadder {
    pub(super) workload: Workload,
    /// Distinguishes the ladder from others of the same workload; absent where there is no other.
    pub(super) variant: Option<&'static str>,
    /// Numbers of connections, rising; not empty.
    pub(super) tiers: Vec<u32>,
    pub(super) load: FirstLoad,
    /// Longest p99 of the response time with which a trial passes, in milliseconds; absent without an objective.
    pub(super) p99_ms: Option<f64>,
}

/// What distinguishes one first plan from another.
pub(super) struct FirstPlan<'a> {
    /// The first line, a comment.
    pub(super) mark: &'a str,
    pub(super) name: &'a str,
    pub(super) why: &'a str,
    /// Path of the file that it is written to, for the commands in comments.
    pub(super) file: &'a str,
    /// Address of the service; with a command, it may have `{port}`.
    pub(super) url: &'a str,
    /// The command that starts the service; empty if it runs already.
    pub(super) command: &'a [String],
    pub(super) preset: &'a str,
    pub(super) ladders: &'a [FirstLadder],
    /// Comment lines after the ladders.
    pub(super) note: &'a str,
}

impl FirstPlan<'_> {
    /// The plan with its comments: short trials, with loads that any laptop carries if the ladders' are.
    pub(super) fn text(&self) -> String {
        let Self { mark, file, note, .. } = self;
        let (name, why) = (quoted(self.name), quoted(self.why));
        let (preset, service) = (quoted(self.preset), self.service());
        let ladders: String = self.ladders.iter().map(|ladder| ladder.text(file)).collect();
        format!(
            "{mark}, for you to change. docs/YOUR-SERVICE.md explains each part.
schema: {SCHEMA}
name: {name}
why: {why}
seed: 1
services: [service]
warmup_seconds: 1
window_seconds: 4
drain_seconds: 5
websocket:
  # How it is spoken to; what you set here comes before the preset.
  extends: {preset}
  services:
    service:
{service}      version: unknown
ladders:
{ladders}{note}"
        )
    }

    fn service(&self) -> String {
        let url = quoted(self.url);
        if self.command.is_empty() {
            return format!(
                "      url: {url}
      # With a command, ladder starts the service itself, gives it CPUs of its own, and a fresh process where you ask:
      # command: [node, server.js, \"{{port}}\"]
      # url: ws://127.0.0.1:{{port}}/
"
            );
        }
        let command: Vec<String> = self.command.iter().map(|part| quoted(part)).collect();
        format!(
            "      # ladder starts it, gives it CPUs of its own, and a fresh process where you ask; {{port}} is a free port.
      command: [{}]
      url: {url}
      # Better than `unknown`: the command that prints its version, version_command: [node, --version]
",
            command.join(", ")
        )
    }
}

impl FirstLadder {
    fn text(&self, file: &str) -> String {
        let tiers: Vec<String> = self.tiers.iter().map(u32::to_string).collect();
        let mut text = format!("  # {}\n  - workload: {}\n", self.comment(), self.workload.name());
        // Writing to a string can't fail.
        if let Some(variant) = self.variant {
            let _ = writeln!(text, "    variant: {variant}");
        }
        let _ = writeln!(text, "    tiers: [{}]", tiers.join(", "));
        let _ = match self.load {
            _ if self.workload == Workload::Reconnect => writeln!(text, "    load: {{ model: reconnect }}"),
            FirstLoad::PerSecond(rate) if self.workload == Workload::Churn => {
                writeln!(text, "    load: {{ model: churn, rate_per_second: {rate}, life_seconds: 5 }}")
            }
            FirstLoad::Closed => writeln!(text, "    load: {{ model: closed }}"),
            FirstLoad::PerSecond(rate) => writeln!(text, "    load: {{ model: open, rate_per_second: {rate} }}"),
        };
        if self.workload == Workload::ConnectionStorm {
            text += "    warmup_seconds: 0\n";
        }
        text + &self.objective(file)
    }

    fn comment(&self) -> &'static str {
        match (self.workload, self.load) {
            (Workload::ConnectionStorm, _) => "How fast connections open.",
            (Workload::Reconnect, _) => "How long it takes until all connections are back that were cut at once.",
            (Workload::Churn, _) => {
                "Messages at a rate while connections come and go, each after five seconds: what that does to both."
            }
            (Workload::Idle, _) => "What an open connection costs.",
            (Workload::Fanout, _) => {
                "What one connection publishes, on all others: how long it takes, and what is missing."
            }
            (Workload::Uplink, _) => {
                "Messages without replies: what receiving them costs. Nothing confirms that they arrived."
            }
            (Workload::RequestReply | Workload::Stream, FirstLoad::Closed) => {
                "One message at a time on each connection: what the service answers at its own pace."
            }
            (Workload::RequestReply | Workload::Stream, FirstLoad::PerSecond(_)) => {
                "Messages at a rate: latency counts from the time at which each is due, so a service that stalls can't hide it."
            }
        }
    }

    /// The objective, and at a rate the search that looks for the largest that meets it.
    fn objective(&self, file: &str) -> String {
        let Some(p99_ms) = self.p99_ms else { return String::new() };
        let mut text = format!(
            "    objectives:
      - figure: {{ percentile_ms: {{ histogram: response, percentile: 99 }} }}
        at_most: {p99_ms}
"
        );
        if let (FirstLoad::PerSecond(rate), Some(connections)) = (self.load, self.tiers.last())
            && self.workload != Workload::Churn
        {
            let (from, to) = ((rate / 5).max(1), rate.saturating_mul(100));
            let _ = write!(
                text,
                "    # The rate up to which that holds, with an interval: ladder search {file}, some ten minutes.
    search: {{ over: rate_per_second, connections: {connections}, from: {from}, to: {to}, final_trial_seconds: 2, \
                 duration_sum_seconds: 6, rounds: {{ window_seconds: 4 }} }}
"
            );
        }
        text
    }
}

/// A text as a YAML scalar.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_quotes_and_colons_stay_one_scalar() {
        let command = ["sh".to_owned(), "-c".to_owned(), "echo \"a: b\" {port}".to_owned()];
        let plan = FirstPlan {
            mark: "# x",
            name: "n",
            why: "a: \"b\"",
            file: "n.yaml",
            url: "ws://127.0.0.1:{port}/",
            command: &command,
            preset: "echo",
            ladders: &[FirstLadder {
                workload: Workload::Idle,
                variant: None,
                tiers: vec![1, 2],
                load: FirstLoad::Closed,
                p99_ms: None,
            }],
            note: "",
        };
        let wire = crate::plan::read::parse(&plan.text(), std::path::Path::new("n.yaml")).unwrap();
        let service = &wire.websocket.unwrap().services["service"];
        assert_eq!((&service.command[..], wire.why.as_str()), (&command[..], "a: \"b\""));
        assert_eq!(wire.ladders[0].tiers, [1, 2]);
    }
}
