//! Checks the `websocket` section of a plan: its services, how they are spoken to, and what its ladders need of that.

use bench_format::{
    plan::{WireLadder, WirePlan},
    websocket::{WebsocketService, WireWebsocket},
};

use process_usage::group::Group;
use regex::Regex;
use ws_bench::workloads::Workload;

use super::Check;
use crate::websocket::{self, METRICS_PORT, PORT};

/// Most URLs of a service: each worker resolves all of them.
const MOST_URLS: usize = 256;

impl Check<'_> {
    pub(super) fn websocket(&mut self, plan: &WirePlan) {
        let Some(section) = &plan.websocket else { return };
        let section = match websocket::filled(section, |name| std::env::var(name).ok()) {
            Ok(filled) => filled,
            Err(missing) => return self.wrong(format!("websocket.{}", missing.place), missing.to_string()),
        };
        let spoken = ws_bench::check(&section);
        for (name, service) in &section.services {
            let place = format!("services.{name}.url");
            self.described(name, service, spoken.iter().any(|(known, _)| *known == place));
            self.more_urls(name, service, &spoken);
        }
        for (place, message) in spoken {
            self.wrong(format!("websocket.{place}"), message);
        }
        for (index, ladder) in plan.ladders.iter().enumerate() {
            let climbs = |name: &String| ladder.services.is_empty() || ladder.services.contains(name);
            if plan.services.iter().filter(|name| climbs(name)).any(|name| section.services.contains_key(name)) {
                self.needs(&format!("ladders[{index}]"), ladder, &section);
            }
        }
    }

    fn described(&mut self, name: &str, service: &WebsocketService, is_wrong_url: bool) {
        let place = format!("websocket.services.{name}");
        self.folder_name(&place, name);
        let known = self.registry.services.get(name);
        let is_own = known.is_none_or(|known| known.described.is_some());
        self.unless(is_own, &place, "the registry has a service of this name; give it another");
        if let (Err(message), false) = (websocket::address(service, 1), is_wrong_url) {
            self.wrong(format!("{place}.url"), message);
        }
        let has_port = service.url.contains(PORT);
        let started = !service.command.is_empty();
        self.unless(
            started || !has_port,
            format!("{place}.url"),
            "{port} is for a service with a `command`; give the port",
        );
        let uses_port = service.command.iter().chain(service.env.values()).any(|text| text.contains(PORT));
        self.unless(
            !has_port || uses_port || !started,
            format!("{place}.command"),
            "neither it nor `env` tells the program which port it is to use; put {port} there",
        );
        let version = service.version.as_ref().is_some_and(|version| !version.trim().is_empty());
        self.unless(
            version || !service.version_command.is_empty(),
            format!("{place}.version"),
            "a service without a version is not measured; give `version` or `version_command`",
        );
        self.counters(&place, service);
        self.usage(&place, service);
        if let Some(seconds) = service.warmup_seconds {
            self.seconds(format!("{place}.warmup_seconds"), seconds, 0.0);
        }
    }

    /// Checks the URLs that connections take in turn with the first; `spoken` are the mistakes that are known.
    fn more_urls(&mut self, name: &str, service: &WebsocketService, spoken: &[(String, String)]) {
        let place = format!("services.{name}.more_urls");
        self.unless(
            service.more_urls.len() < MOST_URLS,
            format!("websocket.{place}"),
            format!("with `url` these are more than {MOST_URLS} URLs; leave some out"),
        );
        for (index, url) in service.more_urls.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let is_known = spoken.iter().any(|(known, _)| *known == place);
            if let (Err(message), false) = (websocket::parse(&url.replace(PORT, "1")), is_known) {
                self.wrong(format!("websocket.{place}"), message);
            }
            self.unless(
                !service.command.is_empty() || !url.contains(PORT),
                format!("websocket.{place}"),
                "{port} is for a service with a `command`; give the port",
            );
        }
    }

    /// Checks where a service's own counters are, and what they are mapped to.
    fn counters(&mut self, service_place: &str, service: &WebsocketService) {
        let Some(counters) = &service.counters else { return };
        let place = format!("{service_place}.counters");
        if let Err((field, message)) = websocket::mapped_counters(service, [1; 2]) {
            self.wrong(format!("{place}.{field}"), message);
        }
        let started = !service.command.is_empty();
        let has_port = counters.url.contains(PORT) || counters.url.contains(METRICS_PORT);
        self.unless(
            started || !has_port,
            format!("{place}.url"),
            "{port} and {metrics_port} are for a service with a `command`; give the port",
        );
        let uses_port = service.command.iter().chain(service.env.values()).any(|text| text.contains(METRICS_PORT));
        self.unless(
            uses_port || !started || !counters.url.contains(METRICS_PORT),
            format!("{place}.url"),
            "neither `command` nor `env` tells the program about {metrics_port}; put it there",
        );
        let counted = counters.reported().counted;
        self.unless(
            !counted.is_empty(),
            &place,
            "it maps no counter; give at least one of received, delivered, connections_accepted, connections_open",
        );
        self.unless(
            counters.dropped.is_none() || counters.delivered.is_some(),
            format!("{place}.dropped"),
            "drops explain messages that were not delivered; give `delivered`, too",
        );
    }

    /// Checks what is named as the service's CPU time and memory. What a service that ladder starts has is found then.
    fn usage(&mut self, service_place: &str, service: &WebsocketService) {
        let Some(usage) = &service.usage else { return };
        let place = format!("{service_place}.usage");
        match usage.given()[..] {
            [] => self.wrong(&place, "it names nothing; give one of pid, pid_file, command, cgroup, container"),
            [_] => {}
            [one, other, ..] => self.wrong(&place, format!("{one} and {other} are both given; give one of them")),
        }
        let is_started = !service.command.is_empty();
        self.unless(
            usage.pid.is_none() || !is_started,
            format!("{place}.pid"),
            "the process id of a service that ladder starts isn't known beforehand; give pid_file or command",
        );
        if let Some(Err(error)) = usage.command.as_ref().map(|pattern| Regex::new(pattern)) {
            self.wrong(format!("{place}.command"), format!("it is not a regular expression: {error}"));
        }
        if let Some(name) = usage.container.as_ref().filter(|name| !is_container_name(name)) {
            self.wrong(format!("{place}.container"), format!("{name:?} is not the name or id of a container"));
        }
        let file = usage.pid_file.as_ref().map(|file| websocket::folder(&self.registry.root, service).join(file));
        if let Some(file) = file.filter(|file| !is_started && !file.is_file()) {
            let message = format!("no file {}; is the service started?", file.display());
            self.wrong(format!("{place}.pid_file"), message);
        }
        if let Some(path) = usage.cgroup.as_ref().filter(|path| !is_started && Group::at(path).is_none()) {
            let message = format!("no cgroup {path}; give a path as in /proc/PID/cgroup, or that of its folder");
            self.wrong(format!("{place}.cgroup"), message);
        }
    }

    /// Checks what a ladder's workload needs of the section.
    fn needs(&mut self, place: &str, ladder: &WireLadder, section: &WireWebsocket) {
        // An unknown workload is reported with the ladder.
        let Ok(workload) = Workload::find(&ladder.workload) else { return };
        for (field, message) in workload.missing(section) {
            self.wrong(format!("{place}.workload"), format!("{message} (websocket.{field})"));
        }
        if let Some(advice) = workload.other_load(&ladder.load) {
            self.wrong(format!("{place}.load.model"), advice);
        }
        let publishes = workload == Workload::Fanout;
        self.unless(
            !publishes || ladder.load.is_open(),
            format!("{place}.load.model"),
            "a fan-out publishes at a rate; give an open load",
        );
    }
}

/// Whether podman and docker could have given a container this name; it is an argument of theirs.
fn is_container_name(name: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::{
        check::{fixture, mistakes},
        read::parse,
    };

    const PLAN: &str = "schema: 1
name: chat
why: a test
seed: 1
services: [chat]
window_seconds: 1
websocket:
  services: { chat: { url: \"ws://127.0.0.1:{port}/\", command: [node, chat.js, \"{port}\"], version: \"1\" } }
  messages: [{ text: \"n {{sequence}}\" }]
  reply: { by: same }
ladders:
- workload: request-reply
  tiers: [10]
  load: { model: open, rate_per_second: 100 }
";

    /// The mistakes of the plan with a text replaced.
    fn found(from: &str, to: &str) -> Vec<String> {
        assert!(PLAN.contains(from), "{from}");
        let plan = parse(&PLAN.replacen(from, to, 1), Path::new("p.yaml")).unwrap();
        let mut registry = fixture::registry();
        websocket::add(plan.websocket.as_ref().unwrap(), &mut registry);
        let found = mistakes(&plan, Path::new("p.yaml"), &registry, &fixture::machine_limits());
        found.iter().map(|mistake| format!("{}: {}", mistake.place, mistake.message)).collect()
    }

    #[test]
    fn a_service_of_twelve_lines_has_no_mistakes() {
        assert_eq!(found("chat", "chat"), Vec::<String>::new());
    }

    #[test]
    fn mistakes_in_counters_are_named_with_the_way_out() {
        let one = |counters: &str| {
            let found = found("version: \"1\"", &format!("version: \"1\", counters: {{ {counters} }}"));
            assert_eq!(found.len(), 1, "{counters}: {found:?}");
            found[0].strip_prefix("websocket.services.chat.counters").expect("the place").to_owned()
        };
        let page = "url: \"http://127.0.0.1:{port}/metrics\"";
        assert_eq!(
            found("version: \"1\"", &format!("version: \"1\", counters: {{ {page}, received: a_total }}")),
            [""; 0]
        );
        assert!(one(page).starts_with(": it maps no counter; give at least one of received"));
        assert!(one(&format!("{page}, received: \"a{{\"")).contains("give a name of samples, with labels"));
        assert!(
            one(&format!("{page}, received: a_total, delivered: /b")).starts_with(".delivered: some counters are JSON")
        );
        assert!(one(&format!("{page}, received: a_total, dropped: b")).starts_with(".dropped: drops explain messages"));
        assert!(one("url: \"https://a/m\", received: a").starts_with(".url: counters are read by http, not by https"));
        assert!(one("url: \"http://a:{metrics_port}/\", received: a").starts_with(".url: neither `command` nor `env`"));
    }

    #[test]
    fn mistakes_in_what_is_read_as_the_usage_are_named_with_the_way_out() {
        const STARTED: &str = "version: \"1\"";
        const URL: &str = "url: \"ws://127.0.0.1:{port}/\", command: [node, chat.js, \"{port}\"]";
        let one = |from: &str, to: &str, usage: &str| {
            let found = found(from, &format!("{to}, usage: {{ {usage} }}"));
            assert_eq!(found.len(), 1, "{usage}: {found:?}");
            found[0].strip_prefix("websocket.services.chat.usage").expect("the place").to_owned()
        };
        let started = |usage: &str| one(STARTED, STARTED, usage);
        let running = |usage: &str| one(URL, "url: \"ws://127.0.0.1:1/\"", usage);
        assert!(started("").starts_with(": it names nothing; give one of pid, pid_file, command"));
        assert!(started("pid_file: a, container: b").starts_with(": pid_file and container are both given"));
        assert!(started("pid: 12").starts_with(".pid: the process id of a service that ladder starts"));
        assert!(started("command: \"a(\"").starts_with(".command: it is not a regular expression: "));
        assert!(started("container: --all").starts_with(".container: \"--all\" is not the name"));
        assert!(running("pid_file: none.pid").starts_with(".pid_file: no file "));
        assert!(running("cgroup: /none.slice").starts_with(".cgroup: no cgroup /none.slice; give a path as in"));
    }

    #[test]
    fn mistakes_in_a_described_service_are_named_with_their_place() {
        let one = |from: &str, to: &str| {
            let found = found(from, to);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].clone()
        };
        assert!(one("ws://127", "http://127").contains("websocket.services.chat.url: "));
        assert!(one(", version: \"1\"", "").starts_with("websocket.services.chat.version: a service without"));
        assert!(one("chat.js, \"{port}\"", "chat.js").starts_with("websocket.services.chat.command: neither it nor"));
        assert!(one("command: [node, chat.js, \"{port}\"], ", "").contains("url: {port} is for a service with a"));
        let more = |url: &str| one("version: \"1\"", &format!("version: \"1\", more_urls: [\"{url}\"]"));
        assert!(
            more("wss://127.0.0.1:{port}/").starts_with("websocket.services.chat.more_urls[0]: ws and wss are mixed")
        );
        assert!(more("ws://a/").starts_with("websocket.services.chat.more_urls[0]: \"ws://a/\" has no port"));
        assert!(more("ws://me@a:1/").contains("more_urls[0]: user, password and fragment are no part of it"));
        assert!(one("request-reply", "stream").starts_with("ladders[0].workload: stream has replies in parts"));
        assert!(one("  reply: { by: same }\n", "").starts_with("ladders[0].workload: request-reply waits for replies"));
        assert!(one("request-reply", "fanin").contains("no workload of protocol websocket \"fanin\""));
    }

    #[test]
    fn a_load_whose_connections_come_and_go_needs_its_workload_and_a_pace() {
        const LADDER: &str = "request-reply\n  tiers: [10]\n  load: { model: open, rate_per_second: 100 }";
        let with =
            |workload: &str, load: &str| found(LADDER, &format!("{workload}\n  tiers: [10]\n  load: {{ {load} }}"));
        let churn = |pace: &str| with("churn", &format!("model: churn, rate_per_second: 100{pace}"));
        assert_eq!(churn(", life_seconds: 2"), Vec::<String>::new());
        assert_eq!(churn(", connections_per_second: 5"), Vec::<String>::new());
        assert!(churn("")[0].starts_with("ladders[0].load: give either connections_per_second or life_seconds"));
        assert!(churn(", life_seconds: 2, connections_per_second: 5")[0].starts_with("ladders[0].load: give either"));
        assert!(churn(", life_seconds: 0")[0].starts_with("ladders[0].load.life_seconds: 0 is not a length of time"));
        assert_eq!(with("reconnect", "model: reconnect, cut: close, spread_seconds: 0.5"), Vec::<String>::new());
        let late = with("reconnect", "model: reconnect, spread_seconds: 1");
        assert!(
            late[0].starts_with("ladders[0].load.spread_seconds: 1 s don't leave room in a window of 1 s"),
            "{late:?}"
        );
        let kept = with("request-reply", "model: reconnect");
        assert!(kept[0].starts_with("ladders[0].load.model: request-reply keeps its connections"), "{kept:?}");
        let steady = with("churn", "model: open, rate_per_second: 100");
        assert!(steady[0].starts_with("ladders[0].load.model: churn lets connections come and go"), "{steady:?}");
        let back = "request-reply\n  objectives: [{ figure: { reconnected_ms: { percent: 99 } }, at_most: 1 }]";
        assert!(found("request-reply", back)[0].contains("only connections that are cut come back"));
    }

    #[test]
    fn a_name_of_the_registry_is_taken() {
        let found = found("chat: {", "ours: {");
        assert!(found.iter().any(|mistake| mistake.contains("the registry has a service of this name")), "{found:?}");
    }
}
