//! `ladder try`: from the address of a running service to a plan and a first report.

use std::{
    fs,
    net::ToSocketAddrs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bench_format::websocket::{WebsocketService, WireWebsocket};
use clap::Args;
use reqwest::Url;
use ws_bench::{
    look::{Closing, Look, Place, Spoken, look},
    workloads::Workload,
};

use super::{
    core_check::CoreCheck,
    described::add_described,
    first_plan::{FirstLadder, FirstLoad, FirstPlan},
    run::{RequestedRun, Shared, begin_and_execute},
};
use crate::{outside::authority, plan, registry::Registry, websocket};

/// The order in which presets are preferred when several are answered: the special ones before those that accept
/// anything.
const PREFERRED: [&str; 13] = [
    "socket.io",
    "graphql-transport-ws",
    "mqtt-5",
    "mqtt-3.1.1",
    "stomp-1.2",
    "nats",
    "wamp",
    "signalr",
    "phoenix",
    "centrifugo",
    "llm-tokens",
    "json-rpc",
    "echo",
];
/// What a plan says where nothing was answered.
const UNANSWERED: &str =
    "  # It answered no message; describe one in `websocket.messages` and `websocket.reply`, and add a ladder with the
  # workload request-reply.
";
/// The first line of a plan that this command wrote, and may write again.
const MARK: &str = "# Written by `ladder try`";

pub(super) const EXAMPLES: &str = "Examples:
  ladder try ws://127.0.0.1:3000/
  ladder try 'ws://127.0.0.1:3000/socket.io/?EIO=4&transport=websocket' --preset socket.io
  ladder try ws://127.0.0.1:3000/ --plan-only && $EDITOR try.yaml && ladder run try.yaml";

#[derive(Debug, Args)]
pub(super) struct Try {
    /// Address of the service: ws://HOST:PORT/PATH.
    url: String,
    /// How the service is spoken to, instead of what it answers to: a name in presets/, or a path.
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// The plan to write.
    #[arg(long, value_name = "FILE", default_value = "try.yaml")]
    plan: PathBuf,
    /// Write the plan and stop before any load.
    #[arg(long)]
    plan_only: bool,
    #[command(flatten)]
    shared: Shared,
}

/// Looks, writes the plan, climbs it and returns the exit code.
pub(super) fn run(arguments: &Try) -> anyhow::Result<u8> {
    let url = websocket::parse(&arguments.url).map_err(anyhow::Error::msg)?;
    websocket::check_hosts(&section_of(&url), &arguments.shared.i_may_load_this_host)?;
    let written_before = fs::read_to_string(&arguments.plan).is_ok_and(|text| text.starts_with(MARK));
    if arguments.plan.exists() && !written_before {
        bail!("{} exists, and is not from `ladder try`; give another file with --plan", arguments.plan.display());
    }
    let candidates = candidates(arguments)?;
    let place = place(&url)?;
    let sections: Vec<&WireWebsocket> = candidates.iter().map(|(_, section)| section).collect();
    let seen = look(&place, &sections);
    let names: Vec<&str> = candidates.iter().map(|(name, _)| name.as_str()).collect();
    lines(&url, &seen, &names).iter().for_each(|line| eprintln!("{line}"));
    let chosen = choose(&seen, &names, arguments.preset.is_some())?;
    let (name, section) = &candidates[chosen];
    let spoken = &seen.spoken[chosen];
    let text = plan_text((&url, &arguments.plan), name, section, spoken, seen.subscribes[chosen]);
    fs::write(&arguments.plan, text).with_context(|| format!("failed to write {}", arguments.plan.display()))?;
    eprintln!(
        "{}: the plan of this first look; change it and run it again with: ladder run {0}",
        arguments.plan.display()
    );
    if arguments.plan_only {
        return Ok(0);
    }
    climb(arguments)
}

fn climb(arguments: &Try) -> anyhow::Result<u8> {
    let shared = &arguments.shared;
    let mut registry = Registry::load(&shared.registry)?;
    let wire = plan::read::read(&arguments.plan)?;
    add_described(&wire, &shared.i_may_load_this_host, &mut registry)?;
    let requested = RequestedRun {
        wire,
        path: arguments.plan.clone(),
        services: vec![],
        reproduce_command: format!("ladder run {}", arguments.plan.display()),
        searches: false,
        outside: None,
        comparison: None,
        pilot_window: None,
    };
    begin_and_execute(shared, &registry, CoreCheck::Never, requested)
}

/// The presets to try, with their names: the one that is named, or all.
fn candidates(arguments: &Try) -> anyhow::Result<Vec<(String, WireWebsocket)>> {
    let load = |name: &str| {
        let section = websocket::preset(name, Path::new(".")).map_err(anyhow::Error::msg)?;
        anyhow::Ok((name.to_owned(), section))
    };
    match &arguments.preset {
        Some(name) => Ok(vec![load(name).context("--preset")?]),
        None => PREFERRED.iter().map(|name| load(name)).collect(),
    }
}

fn place(url: &Url) -> anyhow::Result<Place> {
    let host = authority(url);
    let mut addresses = host.to_socket_addrs().with_context(|| format!("failed to resolve {host}"))?;
    let target = addresses.next().with_context(|| format!("{host} has no address"))?;
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    Ok(Place { target, host, path, tls_name: ws_bench::tls_name(url.as_str()).map(str::to_owned) })
}

fn section_of(url: &Url) -> WireWebsocket {
    let service = WebsocketService {
        url: url.to_string(),
        more_urls: vec![],
        command: vec![],
        folder: None,
        env: Default::default(),
        version: None,
        version_command: vec![],
        warmup_seconds: None,
        counters: None,
        usage: None,
    };
    WireWebsocket { services: [("service".to_owned(), service)].into(), ..WireWebsocket::default() }
}

/// What was seen, line by line.
fn lines(url: &Url, seen: &Look, names: &[&str]) -> Vec<String> {
    let mut lines = vec![match &seen.refusal {
        None => format!("{url} upgrades to WebSocket"),
        Some(refusal) => format!("{url} without a subprotocol: {refusal}"),
    }];
    if let Some(extension) = &seen.extension {
        lines.push(format!("  accepts an extension if connect.deflate of a plan offers it: {extension}"));
    }
    lines.extend(seen.greetings.iter().map(|greeting| format!("  says by itself: {greeting}")));
    lines.extend(seen.closing.map(|closing| match closing {
        Closing::Answered(1005) => "  answers a Close frame with one without a code".to_owned(),
        Closing::Answered(code) => format!("  answers a Close frame with code {code}"),
        Closing::Ended => "  ends the stream at a Close frame without an answer".to_owned(),
        Closing::Silent => "  doesn't answer a Close frame within a second".to_owned(),
    }));
    for ((name, spoken), subscribes) in names.iter().zip(&seen.spoken).zip(&seen.subscribes) {
        match spoken {
            Spoken::Answers if *subscribes => lines.push(format!("  answers {name}, and its connections subscribe")),
            Spoken::Answers => lines.push(format!("  answers {name}")),
            Spoken::Opens if names.len() == 1 => lines.push(format!("  opens {name}, but doesn't answer its message")),
            Spoken::No(reason) if names.len() == 1 => lines.push(format!("  doesn't speak {name}: {reason}")),
            _ => {}
        }
    }
    lines
}

/// The candidate to measure with: the first that is answered, or the one that was named if its connections open.
fn choose(seen: &Look, names: &[&str], is_named: bool) -> anyhow::Result<usize> {
    let at = |wanted: Spoken| seen.spoken.iter().position(|spoken| *spoken == wanted);
    if let Some(answered) = at(Spoken::Answers) {
        return Ok(answered);
    }
    if let (true, Some(opens)) = (is_named, at(Spoken::Opens)) {
        return Ok(opens);
    }
    if is_named {
        bail!("no connection opens as {} says; see the reason above", names[0]);
    }
    // Connections open without any protocol: they can be opened and held.
    let echo = names.iter().position(|name| *name == "echo");
    match echo.filter(|_| seen.refusal.is_none()) {
        Some(echo) => Ok(echo),
        None => bail!("it speaks none of {}; name one with --preset, or describe yours in a file", names.join(", ")),
    }
}

/// The plan of a first look: at most some thirty seconds of load, with caps that any laptop carries.
fn plan_text(
    (url, file): (&Url, &Path),
    preset: &str,
    section: &WireWebsocket,
    spoken: &Spoken,
    subscribes: bool,
) -> String {
    let answers = *spoken == Spoken::Answers;
    FirstPlan {
        mark: MARK,
        name: "try",
        why: "a first look at a service",
        file: &file.display().to_string(),
        url: url.as_str(),
        command: &[],
        preset,
        ladders: &ladders(section, answers, subscribes),
        note: if answers { "" } else { UNANSWERED },
    }
    .text()
}

fn ladders(section: &WireWebsocket, answers: bool, subscribes: bool) -> Vec<FirstLadder> {
    let ladder = |workload, tiers: &[u32], load| FirstLadder {
        workload,
        variant: None,
        tiers: tiers.to_vec(),
        load,
        p99_ms: None,
    };
    let mut ladders = vec![
        ladder(Workload::ConnectionStorm, &[100], FirstLoad::Closed),
        ladder(Workload::Idle, &[100], FirstLoad::Closed),
    ];
    if answers {
        let in_parts = section.reply.as_ref().is_some_and(|reply| reply.end.is_some());
        let workload = if in_parts { Workload::Stream } else { Workload::RequestReply };
        let closed = ladder(workload, &[1, 10, 100], FirstLoad::Closed);
        let open = ladder(workload, &[50], FirstLoad::PerSecond(500));
        ladders.push(FirstLadder { variant: Some("closed"), ..closed });
        ladders.push(FirstLadder { variant: Some("open"), p99_ms: Some(100.0), ..open });
    }
    if subscribes {
        ladders.push(ladder(Workload::Fanout, &[50], FirstLoad::PerSecond(100)));
    }
    ladders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(spoken: Vec<Spoken>) -> Look {
        Look {
            refusal: None,
            extension: None,
            greetings: vec![],
            closing: None,
            subscribes: vec![false; spoken.len()],
            spoken,
        }
    }

    #[test]
    fn the_first_preset_that_is_answered_is_chosen() {
        let names = ["socket.io", "echo"];
        assert_eq!(choose(&seen(vec![Spoken::Opens, Spoken::Answers]), &names, false).unwrap(), 1);
        assert_eq!(choose(&seen(vec![Spoken::Opens, Spoken::Opens]), &names, false).unwrap(), 1, "it can be held open");
        let error = choose(&seen(vec![Spoken::No("x".into())]), &["socket.io"], true).unwrap_err().to_string();
        assert!(error.contains("no connection opens as socket.io says"), "{error}");
        let refused = Look { refusal: Some("http_404".into()), ..seen(vec![Spoken::No("x".into()); 2]) };
        assert!(choose(&refused, &names, false).unwrap_err().to_string().contains("it speaks none of socket.io, echo"));
    }

    #[test]
    fn every_preset_is_tried() {
        let mut tried = PREFERRED.to_vec();
        tried.sort_unstable();
        assert_eq!(tried, websocket::preset_names());
    }

    #[test]
    fn the_plan_of_a_first_look_has_no_mistakes() {
        let url = Url::parse("ws://127.0.0.1:3000/socket.io/?EIO=4&transport=websocket").unwrap();
        for name in websocket::preset_names() {
            let section = websocket::preset(name, Path::new(".")).unwrap();
            for spoken in [Spoken::Answers, Spoken::Opens] {
                let path = tempfile::NamedTempFile::new().unwrap();
                let text = plan_text((&url, path.path()), name, &section, &spoken, section.fanout.is_some());
                fs::write(&path, &text).unwrap();
                let wire = plan::read::read(path.path()).unwrap();
                let mut registry = crate::plan::check::fixture::registry();
                websocket::add(wire.websocket.as_ref().unwrap(), &mut registry);
                let limits = crate::plan::check::fixture::machine_limits();
                let checked = plan::Plan::check(wire, path.path(), &registry, &limits);
                assert!(checked.is_ok(), "{name}: {}", checked.unwrap_err());
                let seconds = checked.map(|plan| plan.seconds()).unwrap_or_default();
                assert!(seconds <= 35.0, "{name}: {seconds} s");
            }
        }
    }
}
