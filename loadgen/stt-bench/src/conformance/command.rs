//! The command line of `stt-conformance`: parses the arguments, runs the cases on each gateway and writes the results.
//! The exit code is 0, 1 or 2 (see [`Arguments`]).

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::Parser;

use super::{
    case::Status,
    cases::CASES,
    gateway::{Launch, Settings},
    inference::Inference,
    level::{Exceptions, Level},
    output::{Report, junit, table},
    run::{Origin, run},
    scope::{Scope, names_of},
};

/// Exit code: at least one case ran, and none failed.
const PASSED: u8 = 0;
/// Exit code: at least one case failed.
const FAILED: u8 = 1;
/// Exit code: bad usage, no case ran, a gateway could not be checked, or the results could not be written.
const UNUSABLE: u8 = 2;

/// Checks speech-to-text gateways against their contract, case by case.
///
/// Either it starts a gateway itself (--start NAME -- COMMAND ARGUMENTS…) and runs every case, or it checks gateways
/// that run already (--service NAME=ws://HOST:PORT/ws/stt) with the cases that can be run on them. Exit code 0: no case
/// failed; 1: at least one case failed; 2: bad usage, or a gateway could not be checked, or no case was run.
#[derive(Clone, Debug, Parser)]
#[command(name = "stt-conformance", version)]
pub struct Arguments {
    /// Start this gateway with the command after `--`, once per stage, each process with its own environment
    #[arg(long, value_name = "NAME", requires = "command")]
    start: Option<String>,
    /// Check a gateway that is running already (repeatable)
    #[arg(long, value_name = "NAME=ws://HOST:PORT/ws/stt", value_parser = named)]
    service: Vec<(String, String)>,
    /// The metrics port of a gateway given with --service (repeatable)
    #[arg(long, value_name = "NAME=http://HOST:PORT", value_parser = named)]
    metrics: Vec<(String, String)>,
    /// Address on which the scripted inference listens; running gateways must have it as INFERENCE_URL
    #[arg(long, value_name = "HOST:PORT")]
    inference_listen: Option<SocketAddr>,
    /// FLUSH_INTERVAL_MS of the running gateways
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    flush_interval_ms: u64,
    /// INFERENCE_TIMEOUT_MS of the running gateways
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    inference_timeout_ms: u64,
    /// CPU_PASSES of the running gateways
    #[arg(long, value_name = "N", default_value_t = 4)]
    cpu_passes: u32,
    /// MODEL_DELAY_MS of the running gateways
    #[arg(long, value_name = "MS", default_value_t = 75)]
    model_delay_ms: u64,
    /// MAX_BUFFERED_FRAMES of the running gateways
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    max_buffered_frames: u32,
    /// How much of the contract is checked: core is what a measurement needs and what an application decides through
    /// its library; strict is the whole contract
    #[arg(long, value_enum, default_value_t)]
    level: Level,
    /// Declare that the gateway fails this case of level strict, and what it does instead (repeatable)
    #[arg(long, value_name = "CASE=INSTEAD", value_parser = named)]
    except: Vec<(String, String)>,
    /// Run only this case (repeatable)
    #[arg(long, value_name = "CASE")]
    only: Vec<String>,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write all results to this file, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// List the cases with their levels and what each case proves
    #[arg(long)]
    list: bool,
    /// The command that starts the gateway, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("\"{text}\" has no = with something on both sides")),
    }
}

/// `host:port` of an address. Fails if the address has another scheme, no port, or a path other than `/ws/stt`.
fn host_and_port(address: &str, scheme: &str) -> anyhow::Result<String> {
    let authority_and_path =
        address.strip_prefix(scheme).and_then(|authority_and_path| authority_and_path.strip_prefix("://"));
    let authority_and_path =
        authority_and_path.with_context(|| format!("\"{address}\" does not begin with {scheme}://"))?;
    let (host, path) = authority_and_path.split_once('/').map_or((authority_and_path, ""), |(host, path)| (host, path));
    ensure!(path.is_empty() || path == "ws/stt", "\"{address}\": sessions are at /ws/stt, not at /{path}");
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    ensure!(has_port, "\"{address}\" has no port; write {scheme}://HOST:PORT");
    Ok(host.to_owned())
}

impl Arguments {
    /// The gateways that the arguments name, each with its name. Fails on contradictory or missing arguments.
    fn origins(&self) -> anyhow::Result<Vec<(String, Origin)>> {
        let mut origins = Vec::new();
        if let Some(name) = &self.start {
            let [program, arguments @ ..] = self.command.as_slice() else { bail!("no command after --") };
            let launch = Launch { program: program.clone(), arguments: arguments.into(), environment: Vec::new() };
            origins.push((name.clone(), Origin::Started(launch)));
        }
        ensure!(self.start.is_some() || self.command.is_empty(), "a command after -- needs --start NAME");
        for (name, _) in &self.metrics {
            let known = self.service.iter().any(|(service, _)| service == name);
            ensure!(known, "--metrics {name}=…: no --service is called {name}");
        }
        for (name, address) in &self.service {
            let metrics = self.metrics.iter().find(|(of, _)| of == name).map(|(_, address)| address);
            let metrics = metrics.map(|address| anyhow::Ok(format!("http://{}", host_and_port(address, "http")?)));
            origins.push((
                name.clone(),
                Origin::Running {
                    address: host_and_port(address, "ws")?,
                    metrics: metrics.transpose()?,
                    settings: self.settings(),
                    scripted: self.inference_listen.is_some(),
                },
            ));
        }
        ensure!(
            !origins.is_empty(),
            "no gateway: give --start NAME -- COMMAND or --service NAME=ws://HOST:PORT/ws/stt"
        );
        Ok(origins)
    }

    fn settings(&self) -> Settings {
        Settings {
            interval: Duration::from_millis(self.flush_interval_ms),
            timeout: Duration::from_millis(self.inference_timeout_ms),
            passes: self.cpu_passes,
            model_delay_ms: self.model_delay_ms,
            buffered_frames: self.max_buffered_frames,
        }
    }

    /// The level, the cases and the exceptions to check. Fails if `--only` names an unknown case or one above the
    /// level, or if `--except` names a case that is not of level strict or names one twice.
    fn scope(&self) -> anyhow::Result<Scope> {
        for name in &self.only {
            let case = CASES.iter().find(|case| case.name == name);
            let case = case.with_context(|| format!("--only {name}: no such case; --list shows all of them"))?;
            let (level, lowest) = (self.level.word(), case.level.word());
            ensure!(case.level <= self.level, "--only {name}: no case of --level {level}; it needs --level {lowest}");
        }
        let may = names_of(Level::Strict);
        let mut exceptions = Exceptions::new();
        for (name, instead) in &self.except {
            let known = may.join(", ");
            ensure!(
                may.contains(&name.as_str()),
                "--except {name}={instead}: {name} is no case that may have an exception; these may: {known}"
            );
            let before = exceptions.insert(name.clone(), instead.clone());
            ensure!(before.is_none(), "--except {name}={instead}: {name} has an exception already");
        }
        Ok(Scope { level: self.level, only: self.only.clone(), exceptions })
    }
}

/// The text of `--list`: a line per case with its name, level and what it proves.
fn list() -> String {
    let width = CASES.iter().map(|case| case.name.len()).max().unwrap_or(0);
    CASES.iter().map(|case| format!("{:width$}  {:6}  {}\n", case.name, case.level.word(), case.proves)).collect()
}

/// Parses the command line, runs it and returns the process's exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        print!("{}", list());
        return ExitCode::from(PASSED);
    }
    match check(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("stt-conformance: {error:#}");
            ExitCode::from(UNUSABLE)
        }
    }
}

#[tokio::main]
async fn check(arguments: &Arguments) -> anyhow::Result<u8> {
    let scope = arguments.scope()?;
    let origins = arguments.origins()?;
    let listen = arguments.inference_listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    let inference = Inference::start(listen).await;
    let inference: Arc<Inference> =
        inference.with_context(|| format!("failed to listen on {listen} (--inference-listen)"))?;
    let (mut services, mut missing) = (Vec::new(), 0);
    for (name, origin) in &origins {
        match run(name, origin, &inference, &scope).await {
            Ok(result) => {
                print!("{}", table(&result));
                services.push(result);
            }
            Err(reason) => {
                eprintln!("stt-conformance: {name} can't be checked: {reason}");
                missing += 1;
            }
        }
    }
    let report = Report::new(services);
    // The results of the other gateways are written even if one gateway could not be checked.
    if let Some(path) = &arguments.json {
        write(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    if let Some(path) = &arguments.junit {
        write(path, &junit(&report))?;
    }
    let ran = [Status::Passed, Status::Failed, Status::Excepted].map(|status| report.count(status));
    let nothing_ran = ran == [0; 3];
    Ok(match (missing > 0 || nothing_ran, report.count(Status::Failed)) {
        (true, _) => UNUSABLE,
        (false, 0) => PASSED,
        (false, _) => FAILED,
    })
}

fn write(path: &PathBuf, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Arguments {
        Arguments::parse_from(std::iter::once(&"stt-conformance").chain(arguments))
    }

    fn refusal(arguments: &[&str]) -> String {
        let arguments = parse(arguments);
        format!(
            "{:#}",
            arguments.origins().map(|_| arguments.scope()).map_or_else(|error| error, |scope| scope.unwrap_err())
        )
    }

    #[test]
    fn a_gateway_is_started_or_found() {
        let started = parse(&["--start", "a", "--", "gateway", "--port", "0"]).origins().unwrap();
        let launch =
            Launch { program: "gateway".into(), arguments: vec!["--port".into(), "0".into()], environment: vec![] };
        assert_eq!(started, [("a".into(), Origin::Started(launch))]);
        let arguments =
            ["--service", "b=ws://127.0.0.1:3000/ws/stt", "--metrics", "b=http://127.0.0.1:3001", "--cpu-passes", "2"];
        let running = parse(&arguments).origins().unwrap();
        let settings = Settings { passes: 2, ..Settings::DEFAULT };
        let metrics = Some("http://127.0.0.1:3001".into());
        let origin = Origin::Running { address: "127.0.0.1:3000".into(), metrics, settings, scripted: false };
        assert_eq!(running, [("b".into(), origin)]);
    }

    #[test]
    fn bad_usage_is_an_error_that_names_value_and_remedy() {
        assert!(refusal(&[]).contains("--start NAME -- COMMAND"));
        assert!(refusal(&["--service", "a=http://x:1"]).contains("http://x:1"));
        assert!(refusal(&["--service", "a=ws://x"]).contains("has no port"));
        assert!(refusal(&["--service", "a=ws://x:1/other"]).contains("/ws/stt"));
        assert!(
            refusal(&["--service", "a=ws://x:1", "--metrics", "b=http://x:2"]).contains("no --service is called b")
        );
        assert!(refusal(&["--service", "a=ws://x:1", "--only", "nonsense"]).contains("nonsense"));
        let beyond = refusal(&["--service", "a=ws://x:1", "--level", "core", "--only", "unmasked"]);
        assert!(beyond.contains("it needs --level strict"), "{beyond}");
        assert!(Arguments::try_parse_from(["stt-conformance", "--start", "a"]).is_err());
        assert!(Arguments::try_parse_from(["stt-conformance", "--service", "a"]).is_err());
    }

    #[test]
    fn exceptions_are_of_cases_that_may_have_one() {
        let scope = |arguments: &[&str]| parse(arguments).scope();
        let exceptions = scope(&["--except", "unmasked=ends = no Close", "--level", "core"]).unwrap().exceptions;
        assert_eq!(exceptions, Exceptions::from([("unmasked".into(), "ends = no Close".into())]));
        let refused = |arguments: &[&str]| scope(arguments).unwrap_err().to_string();
        let core = refused(&["--except", "batches=loses some"]);
        assert!(core.contains("--except batches=loses some") && core.contains("these may: oversized, "), "{core}");
        assert!(refused(&["--except", "nonsense=x"]).contains("nonsense is no case"));
        assert!(refused(&["--except", "unmasked=x", "--except", "unmasked=y"]).contains("an exception already"));
        assert!(Arguments::try_parse_from(["stt-conformance", "--except", "unmasked"]).is_err());
        assert!(Arguments::try_parse_from(["stt-conformance", "--level", "lax"]).is_err());
    }

    #[test]
    fn the_list_has_each_cases_level() {
        let list = list();
        assert!(list.contains("unmasked                strict  a frame"), "{list}");
        assert!(list.contains("batches                 core    the inference"), "{list}");
    }
}
