//! The questions of `ladder plan new`, in order, with the check of each answer.

use std::path::Path;

use bench_format::websocket::WireWebsocket;
use ws_bench::workloads::Workload;

use super::{
    PlanNew,
    ask::{Ask, Question},
};
use crate::{
    cli::first_plan::{FirstLadder, FirstLoad},
    spelling::closest,
    websocket::{self, PORT},
};

/// Address of a service that ladder starts, unless another is given.
const STARTED_URL: &str = "ws://127.0.0.1:{port}/";
/// What stands for "without one" and "not at a rate".
const NONE: &str = "none";
const CLOSED: &str = "closed";

/// What a first plan has to say.
pub(super) struct Answers {
    /// Empty if the service runs already.
    pub(super) command: Vec<String>,
    pub(super) url: String,
    pub(super) preset: String,
    pub(super) ladder: FirstLadder,
}

impl Answers {
    /// Takes all answers, from flags or by asking.
    ///
    /// # Errors
    /// When the value of a flag is wrong, when an answer is missing, or when standard input ends.
    pub(super) fn take(given: &PlanNew, ask: &mut Ask) -> anyhow::Result<Self> {
        let command = command(given, ask)?;
        let url = url(given, ask, &command)?;
        let (preset, section) = preset(given, ask)?;
        let workload = workload(given, ask, &section)?;
        let load = load(given, ask, workload)?;
        let tiers = tiers(given, ask, workload)?;
        let p99_ms = p99_ms(given, ask, workload, load)?;
        ask.finish()?;
        let ladder = FirstLadder { workload, variant: None, tiers, load, p99_ms };
        Ok(Self { command, url: url.unwrap_or_default(), preset, ladder })
    }
}

fn command(given: &PlanNew, ask: &mut Ask) -> anyhow::Result<Vec<String>> {
    let question = Question {
        flag: "--command or --running",
        text: "Command that starts the service, with {port} for its port; empty if the service runs already",
        // Shown by the question itself.
        default: None,
    };
    let split = |text: &str| Ok(text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    if given.running {
        return Ok(vec![]);
    }
    Ok(ask.answer(given.command.as_deref(), &question, split)?.unwrap_or_default())
}

fn url(given: &PlanNew, ask: &mut Ask, command: &[String]) -> anyhow::Result<Option<String>> {
    let starts = !command.is_empty();
    let question = Question {
        flag: "--url",
        text: "Address of the service, ws://HOST:PORT/PATH",
        default: starts.then_some(STARTED_URL),
    };
    let says_port = command.iter().any(|part| part.contains(PORT));
    ask.answer(given.url.as_deref(), &question, |text| {
        websocket::parse(&text.replace(PORT, "1"))?;
        match text.contains(PORT) {
            true if !starts => Err("{port} is for a service that ladder starts; give the port".into()),
            true if !says_port => Err("the command doesn't have {port}; put it there, or give the port here".into()),
            _ => Ok(text.to_owned()),
        }
    })
}

fn preset(given: &PlanNew, ask: &mut Ask) -> anyhow::Result<(String, WireWebsocket)> {
    let names = websocket::preset_names().join(", ");
    let text = format!("How it is spoken to: {names}; or the path of a file");
    let question = Question { flag: "--preset", text: &text, default: Some("echo") };
    let folder = given.file.parent().unwrap_or(Path::new("."));
    let answer =
        ask.answer(given.preset.as_deref(), &question, |name| Ok((name.to_owned(), websocket::preset(name, folder)?)))?;
    Ok(answer.unwrap_or_default())
}

/// The workload; offered are those for which the preset says enough.
fn workload(given: &PlanNew, ask: &mut Ask, section: &WireWebsocket) -> anyhow::Result<Workload> {
    // The first that is possible is the default.
    let order = [
        Workload::Stream,
        Workload::RequestReply,
        Workload::Fanout,
        Workload::Uplink,
        Workload::ConnectionStorm,
        Workload::Idle,
        Workload::Churn,
        Workload::Reconnect,
    ];
    let possible: Vec<&str> =
        order.into_iter().filter(|workload| workload.missing(section).is_empty()).map(Workload::name).collect();
    let text = format!("What is measured: {}", possible.join(", "));
    let question = Question { flag: "--workload", text: &text, default: possible.first().copied() };
    let answer = ask.answer(given.workload.as_deref(), &question, |name| {
        let workload = Workload::find(name).map_err(|_| match closest(name, possible.iter().copied()) {
            Some(meant) => format!("there is no such workload; did you mean {meant}?"),
            None => format!("there is no such workload; known: {}", Workload::ALL.map(Workload::name).join(", ")),
        })?;
        match workload.missing(section).first() {
            Some((place, reason)) => Err(format!("{reason} (websocket.{place})")),
            None => Ok(workload),
        }
    })?;
    Ok(answer.unwrap_or(Workload::Idle))
}

fn load(given: &PlanNew, ask: &mut Ask, workload: Workload) -> anyhow::Result<FirstLoad> {
    let (text, default) = match workload {
        // Nothing is sent.
        Workload::Idle | Workload::Reconnect => {
            let refused = |_: &str| Err(format!("{} sends nothing, so it has no rate; leave it out", workload.name()));
            let question = Question { flag: "--rate", text: "", default: None };
            return match &given.rate {
                Some(rate) => Ok(ask.answer(Some(rate), &question, refused)?.unwrap_or(FirstLoad::Closed)),
                None => Ok(FirstLoad::Closed),
            };
        }
        Workload::ConnectionStorm => {
            ("Connections that are opened per second, or closed: as fast as they open", CLOSED)
        }
        Workload::Fanout => ("Publications per second", "100"),
        Workload::Churn => ("Messages per second over all connections", "500"),
        Workload::Uplink => ("Messages per second over all connections, or closed: as many as the sockets take", "500"),
        Workload::RequestReply | Workload::Stream => {
            ("Messages per second over all connections, or closed: each next message after the reply", "500")
        }
    };
    let question = Question { flag: "--rate", text, default: Some(default) };
    let answer = ask.answer(given.rate.as_deref(), &question, |text| match (text, text.parse::<u32>()) {
        (CLOSED, _) if workload == Workload::Fanout => Err("a fan-out publishes at a rate; give a number".into()),
        (CLOSED, _) if workload == Workload::Churn => Err("churn sends messages at a rate; give a number".into()),
        (CLOSED, _) => Ok(FirstLoad::Closed),
        (_, Ok(rate)) if rate > 0 => Ok(FirstLoad::PerSecond(rate)),
        _ => Err(format!("it is neither a whole number from 1 on nor `{CLOSED}`")),
    })?;
    Ok(answer.unwrap_or(FirstLoad::Closed))
}

fn tiers(given: &PlanNew, ask: &mut Ask, workload: Workload) -> anyhow::Result<Vec<u32>> {
    let default = match workload {
        Workload::Idle | Workload::ConnectionStorm | Workload::Reconnect => "100",
        _ => "50",
    };
    let text = "Numbers of connections, rising: one tier each";
    let question = Question { flag: "--tiers", text, default: Some(default) };
    // One connection publishes, and the others receive.
    let least = if workload == Workload::Fanout { 2 } else { 1 };
    let answer = ask.answer(given.tiers.as_deref(), &question, |text| {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let tiers: Option<Vec<u32>> = parts.map(|part| part.parse().ok()).collect();
        match tiers {
            Some(tiers) if tiers.first().is_some_and(|first| *first >= least) && tiers.is_sorted_by(|a, b| a < b) => {
                Ok(tiers)
            }
            _ => Err(format!("give whole numbers from {least} on, each larger than the one before: 1,10,100")),
        }
    })?;
    Ok(answer.unwrap_or_default())
}

/// The objective; asked for where messages have response times at a rate.
fn p99_ms(given: &PlanNew, ask: &mut Ask, workload: Workload, load: FirstLoad) -> anyhow::Result<Option<f64>> {
    let has_responses =
        matches!(workload, Workload::RequestReply | Workload::Stream | Workload::Fanout | Workload::Churn);
    let at_rate = load != FirstLoad::Closed;
    if given.p99_ms.is_none() && !(has_responses && at_rate) {
        return Ok(None);
    }
    let text = "Longest p99 of the response time in milliseconds, or none";
    let question = Question { flag: "--p99-ms", text, default: Some("100") };
    let answer = ask.answer(given.p99_ms.as_deref(), &question, |text| match (text, text.parse::<f64>()) {
        (NONE, _) => Ok(None),
        (_, Ok(ms)) if ms > 0.0 && ms.is_finite() => {
            if has_responses {
                Ok(Some(ms))
            } else {
                Err(format!("{} has no response times; leave it out", workload.name()))
            }
        }
        _ => Err(format!("it is neither a number above 0 nor `{NONE}`")),
    })?;
    Ok(answer.flatten())
}
