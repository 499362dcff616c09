//! A service of the user's own, which the plan describes and which runs already: where it is in or outside the cluster (the
//! chart's value `target`), and the plan as it is climbed there.
//!
//! The plan is the one that `ladder run` takes on one machine. What belongs to that machine is replaced by what the target
//! says, or is a mistake with the value that helps.

use std::{collections::BTreeMap, path::Path};

use bench_format::{
    plan::{ServiceProcess, WirePlan},
    websocket::{Connect, WebsocketService, WireWebsocket},
};
use operator::websocket::{ForeignHost, check_hosts, with_authority};
use serde::Deserialize;

/// Where a service is that the release did not start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedTarget {
    /// The whole URL of a service outside the cluster; it replaces the plan's. Either this or `authority` is given.
    #[serde(default)]
    pub url: Option<String>,
    /// Host and port, `host:port`, that replace those of the plan's URL.
    #[serde(default)]
    pub authority: Option<String>,
    /// The service's pods, as far as the operator may see them.
    #[serde(default)]
    pub pods: Option<DescribedPods>,
    /// Whether load goes to the addresses of the pods instead, in turn.
    #[serde(default)]
    pub direct: bool,
    /// The Deployment that is scaled for each process; absent if the service runs by itself.
    #[serde(default)]
    pub scale: Option<ScaledDeployment>,
    /// Version of the service, instead of the plan's.
    #[serde(default)]
    pub version: Option<String>,
    /// Address of the page of counters, instead of the plan's.
    #[serde(default)]
    pub counters_url: Option<String>,
    /// The host at a public address that its owner allows to load.
    #[serde(default)]
    pub may_load: Option<String>,
    /// The folder in which operator and workers find the files that the plan names; absent without such files.
    #[serde(default)]
    pub files: Option<String>,
}

/// Which pods are those of a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedPods {
    /// Namespace of the pods.
    pub namespace: String,
    /// Labels that all of them have, and no other pod.
    pub labels: BTreeMap<String, String>,
    /// The port at which they accept connections; absent where load goes to another address.
    #[serde(default)]
    pub port: Option<u16>,
}

impl DescribedPods {
    /// The labels as a label selector.
    pub fn selector(&self) -> String {
        self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }
}

/// A Deployment in the release's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaledDeployment {
    /// Name of the Deployment.
    pub deployment: String,
    /// Number of pods while a trial runs.
    pub replicas: i32,
}

/// A mistake in a plan: its place, and a message.
type PlanMistake = (String, String);

impl DescribedTarget {
    /// What is wrong with the target itself: its place, and a message.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if self.url.is_some() == self.authority.is_some() {
            found.push(("described_target", "give either url or authority; the chart writes one of them".into()));
        }
        if self.direct && self.pods.as_ref().is_none_or(|pods| pods.port.is_none()) {
            found.push((
                "described_target.direct",
                "no pods with a port; set target.pods.labels and target.pods.port".into(),
            ));
        }
        if self.scale.is_some() && self.pods.is_none() {
            found.push(("described_target.scale", "no pods; set target.pods.labels".into()));
        }
        found
    }

    /// Checks that a section, with its variables filled in, loads no public host that its owner doesn't allow to load.
    ///
    /// # Errors
    /// The service, its host, and the value that allows it.
    pub fn check_hosts(&self, section: &WireWebsocket) -> Result<(), String> {
        let allowed: Vec<String> = self.may_load.iter().cloned().collect();
        check_hosts(section, &allowed).map_err(|ForeignHost { service, host, ip }| {
            format!(
                "{service}: {host} has the public address {ip}, and load on a host that isn't yours is an attack; if it is \
                 yours, set target.iMayLoadThisHost to {host}"
            )
        })
    }

    /// The plan as it is climbed against this target, and a message for each change that its figures show.
    ///
    /// # Errors
    /// What belongs to one machine and has no place in a cluster.
    pub(super) fn applied(&self, mut wire: WirePlan) -> Result<(WirePlan, Vec<String>), Vec<PlanMistake>> {
        let mut found: Vec<PlanMistake> = of_ladders(&wire);
        let mut notes = Vec::new();
        let names = wire.services.join(", ");
        let [name] = wire.services.as_slice() else {
            return Err(vec![(
                "services".into(),
                format!("the chart's target is one service, and the plan climbs {names}"),
            )]);
        };
        let Some(section) = wire.websocket.as_mut().filter(|section| section.services.contains_key(name)) else {
            let message = format!("the chart's target is set, and the plan doesn't describe {name}; take target away");
            return Err(vec![("websocket".into(), message)]);
        };
        section.services.retain(|other, _| other == name);
        for (name, service) in &mut section.services {
            self.apply_to_service(&format!("websocket.services.{name}"), service, (&mut found, &mut notes));
        }
        self.apply_to_connect(&mut section.connect, &mut found);
        if wire.service_process == ServiceProcess::Repeat && self.scale.is_none() {
            wire.service_process = ServiceProcess::Tier;
            notes.push("all repeats use the process that already runs, instead of a fresh one for each".into());
        }
        if found.is_empty() { Ok((wire, notes)) } else { Err(found) }
    }

    fn apply_to_service(
        &self,
        place: &str,
        service: &mut WebsocketService,
        (found, notes): (&mut Vec<PlanMistake>, &mut Vec<String>),
    ) {
        if let Some(url) = &self.url {
            service.url.clone_from(url);
        }
        if let Some(authority) = &self.authority {
            service.url = with_authority(&service.url, authority);
        }
        if !service.more_urls.is_empty() {
            let message =
                "the chart's target is one address; leave them out, and set target.direct: true to load each pod";
            found.push((format!("{place}.more_urls"), message.into()));
        }
        if let Some(version) = &self.version {
            service.version = Some(version.clone());
        }
        if service.version.is_none() {
            let message = "a service without a version is not measured, and no command of yours runs in a cluster; set \
                           target.version";
            found.push((format!("{place}.version"), message.into()));
        }
        // It runs already.
        (service.command, service.version_command, service.folder) = (Vec::new(), Vec::new(), None);
        service.env.clear();
        if service.usage.take().is_some() {
            notes.push(format!("{place}.usage is left out: it names processes of one machine; see target.pods.labels"));
        }
        match (&mut service.counters, &self.counters_url) {
            (Some(counters), Some(url)) => counters.url.clone_from(url),
            (Some(_), None) => {
                let message =
                    "it is a page of your machine; set target.countersUrl to its address as the operator sees it";
                found.push((format!("{place}.counters.url"), message.into()));
            }
            (None, _) => {}
        }
    }

    fn apply_to_connect(&self, connect: &mut Connect, found: &mut Vec<PlanMistake>) {
        let Connect { tls, rows, rows_command, source_addresses, .. } = connect;
        if rows_command.is_some() {
            let message = "commands run on one machine only; put what it prints into a Secret, name that in target.files, and \
                           its key in `rows`";
            found.push(("websocket.connect.rows_command".into(), message.into()));
        }
        if !source_addresses.is_empty() {
            let message = "a worker's pod has one address; leave them out and use more workers";
            found.push(("websocket.connect.source_addresses".into(), message.into()));
        }
        let mut files = vec![("rows", rows)];
        if let Some(tls) = tls {
            files.extend([
                ("tls.ca", &mut tls.ca),
                ("tls.certificate", &mut tls.certificate),
                ("tls.key", &mut tls.key),
            ]);
        }
        for (field, file) in files {
            let Some(path) = file else { continue };
            match self.file(path) {
                Ok(inside) => *path = inside,
                Err(message) => found.push((format!("websocket.connect.{field}"), message)),
            }
        }
    }

    /// The path in the cluster of a file that the plan names.
    ///
    /// # Errors
    /// How to get the file into the cluster.
    pub(super) fn file(&self, path: &str) -> Result<String, String> {
        let Some(folder) = &self.files else {
            return Err(format!(
                "{path} is a file of your machine; put it into a Secret or a ConfigMap, and name that in target.files"
            ));
        };
        let name = Path::new(path).file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| format!("{path} is not the path of a file"))?;
        Ok(format!("{folder}/{name}"))
    }
}

/// Settings of ladders that only apply to a service that ladder starts.
fn of_ladders(wire: &WirePlan) -> Vec<PlanMistake> {
    let settings = wire.ladders.iter().enumerate().flat_map(|(index, ladder)| {
        let of = [("service_env", &ladder.service_env), ("inference_env", &ladder.inference_env)];
        of.into_iter().filter(|(_, env)| !env.is_empty()).map(move |(field, _)| {
            let message =
                "it can't be applied to a service that already runs; leave it out, and set it where the service starts";
            (format!("ladders[{index}].{field}"), message.to_owned())
        })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "schema: 3\nname: chat\nwhy: a test\nseed: 1\nservices: [chat]\nservice_process: repeat\n\
        window_seconds: 1\nwebsocket:\n  services:\n    chat: { url: \"ws://127.0.0.1:{port}/room?v=4\", \
        command: [node, chat.js, \"{port}\"], version: \"4.2\" }\n    other: { url: \"ws://127.0.0.1:1/\", version: \"1\" }\n\
        \x20 messages: [{ text: a }]\n  reply: { by: same }\n\
        ladders:\n- workload: request-reply\n  tiers: [10]\n  load: { model: closed }\n";

    fn target() -> DescribedTarget {
        DescribedTarget { authority: Some("chat.shop.svc:80".into()), ..DescribedTarget::default() }
    }

    fn plan(from: &str, to: &str) -> WirePlan {
        assert!(PLAN.contains(from), "{from}");
        operator::plan::read::parse(&PLAN.replacen(from, to, 1), Path::new("plan.yaml")).unwrap()
    }

    fn mistakes(target: &DescribedTarget, from: &str, to: &str) -> Vec<String> {
        let found = target.applied(plan(from, to)).unwrap_err();
        found.into_iter().map(|(place, message)| format!("{place}: {message}")).collect()
    }

    fn service(target: &DescribedTarget) -> WebsocketService {
        target.applied(plan("chat", "chat")).unwrap().0.websocket.unwrap().services["chat"].clone()
    }

    #[test]
    fn a_plan_of_one_machine_is_climbed_against_the_target_and_a_second_time_nothing_changes() {
        let (applied, notes) = target().applied(plan("chat", "chat")).unwrap();
        let section = applied.websocket.as_ref().unwrap();
        let service = &section.services["chat"];
        assert_eq!(service.url, "ws://chat.shop.svc:80/room?v=4");
        assert!(service.command.is_empty() && section.services.len() == 1);
        assert_eq!(applied.service_process, ServiceProcess::Tier);
        assert!(notes[0].starts_with("all repeats use the process that already runs"), "{notes:?}");
        let (again, notes) = target().applied(applied.clone()).unwrap();
        let value = |plan: WirePlan| serde_json::to_value(plan).unwrap();
        assert_eq!((value(again), notes), (value(applied), vec![]), "a run that is resumed has the same plan");
    }

    #[test]
    fn a_url_outside_the_cluster_replaces_the_plans_whole() {
        let target =
            DescribedTarget { url: Some("wss://chat.example.com:443/v5".into()), ..DescribedTarget::default() };
        assert_eq!(service(&target).url, "wss://chat.example.com:443/v5");
    }

    #[test]
    fn a_deployment_that_is_scaled_has_a_fresh_process_for_each_repeat() {
        let scale = ScaledDeployment { deployment: "chat".into(), replicas: 1 };
        let target = DescribedTarget { scale: Some(scale), ..target() };
        assert_eq!(target.applied(plan("chat", "chat")).unwrap().0.service_process, ServiceProcess::Repeat);
    }

    #[test]
    fn files_are_found_by_their_names_in_the_volume_of_the_user() {
        let connect =
            "messages: [{ text: \"{{row.user}}\" }]\n  connect: { rows: tokens/users.csv, tls: { ca: ./ca.pem } }";
        let found = mistakes(&target(), "messages: [{ text: a }]", connect);
        assert!(
            found[0].starts_with("websocket.connect.rows: tokens/users.csv is a file of your machine"),
            "{found:?}"
        );
        assert!(found[1].ends_with("name that in target.files"), "{found:?}");
        let with_files = DescribedTarget { files: Some("/files".into()), ..target() };
        let applied = with_files.applied(plan("messages: [{ text: a }]", connect)).unwrap().0;
        let connect = applied.websocket.unwrap().connect;
        assert_eq!(
            (connect.rows.as_deref(), connect.tls.unwrap().ca.as_deref()),
            (Some("/files/users.csv"), Some("/files/ca.pem"))
        );
    }

    #[test]
    fn what_belongs_to_one_machine_is_refused_with_the_value_that_helps() {
        let one = |from: &str, to: &str| mistakes(&target(), from, to).remove(0);
        let connect =
            |text: &str| one("messages: [{ text: a }]", &format!("messages: [{{ text: a }}]\n  connect: {{ {text} }}"));
        assert!(connect("rows_command: { command: [./make] }").contains("put what it prints into a Secret"));
        assert!(connect("source_addresses: [10.0.0.1]").contains("use more workers"));
        assert!(one("version: \"4.2\"", "version_command: [node, -v]").contains("set target.version"));
        let counters = "version: \"4.2\", counters: { url: \"http://127.0.0.1:{port}/m\", received: a_total }";
        assert!(one("version: \"4.2\"", counters).contains("set target.countersUrl"));
        assert!(
            one("version: \"4.2\"", "version: \"1\", more_urls: [\"ws://127.0.0.1:2/\"]")
                .contains("target.direct: true")
        );
        assert!(one("tiers: [10]", "tiers: [10]\n  service_env: { A: b }").starts_with("ladders[0].service_env: "));
        assert!(one("services: [chat]", "services: [chat, other]").contains("the plan climbs chat, other"));
        assert!(one("services: [chat]", "services: [wse-server]").contains("doesn't describe wse-server"));
    }

    #[test]
    fn counters_and_version_of_the_target_replace_those_of_the_plan() {
        let target = DescribedTarget {
            version: Some("5".into()),
            counters_url: Some("http://chat.shop.svc:9100/metrics".into()),
            ..target()
        };
        let counters = "version: \"4.2\", counters: { url: \"http://127.0.0.1:{port}/m\", received: a_total }, \
                        usage: { container: chat }";
        let (applied, notes) = target.applied(plan("version: \"4.2\"", counters)).unwrap();
        let service = &applied.websocket.unwrap().services["chat"];
        assert_eq!(service.version.as_deref(), Some("5"));
        assert_eq!(service.counters.as_ref().unwrap().url, "http://chat.shop.svc:9100/metrics");
        assert!(service.usage.is_none() && notes[0].contains("websocket.services.chat.usage is left out"), "{notes:?}");
    }

    #[test]
    fn a_public_host_needs_its_name_in_the_values() {
        let url = Some("ws://192.0.2.1:80/".into());
        let target = DescribedTarget { url, ..DescribedTarget::default() };
        let section = target.applied(plan("chat", "chat")).unwrap().0.websocket.unwrap();
        let message = target.check_hosts(&section).unwrap_err();
        assert!(message.starts_with("chat: 192.0.2.1 has the public address 192.0.2.1"), "{message}");
        assert!(message.ends_with("set target.iMayLoadThisHost to 192.0.2.1"), "{message}");
        let allowed = DescribedTarget { may_load: Some("192.0.2.1".into()), ..target };
        assert_eq!(allowed.check_hosts(&section), Ok(()));
    }

    #[test]
    fn a_target_that_lacks_a_part_is_named_with_the_value() {
        assert_eq!(target().mistakes(), []);
        let direct = DescribedTarget { direct: true, ..target() };
        assert!(direct.mistakes()[0].1.contains("target.pods.port"));
        let scale = Some(ScaledDeployment { deployment: "chat".into(), replicas: 1 });
        assert!(DescribedTarget { scale, ..target() }.mistakes()[0].1.contains("target.pods.labels"));
        assert_eq!(DescribedTarget::default().mistakes()[0].0, "described_target");
    }
}
