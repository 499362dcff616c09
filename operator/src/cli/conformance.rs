//! `ladder conformance`: runs the conformance program of each service's protocol against the service.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bench_format::Name;
use clap::Args;

use crate::{
    contract::{self, Level, SELF_TEST},
    registry::{Registry, Service},
    spelling::closest,
};

/// Exit code when a service could not be checked. The conformance programs use the same code.
const UNUSABLE: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct Conformance {
    /// Services to check. Without any: every service whose protocol has a conformance test, except those of the
    /// harness's own tests.
    #[arg(value_name = "SERVICE")]
    services: Vec<String>,
    /// The registry of services; commands run in the parent of its folder.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
    /// How much of the contract is checked. `core`: what a measurement needs and what an application decides through
    /// its library. `strict`: all of it, except for the exceptions that the registry declares.
    #[arg(long, value_enum, default_value_t)]
    level: Level,
    /// Folder for `<service>.json` and `<service>.xml` (JUnit) of each service.
    #[arg(long, value_name = "FOLDER", conflicts_with = "json_folder")]
    results: Option<PathBuf>,
    /// Folder for `<service>.json` of each service.
    #[arg(long, value_name = "FOLDER")]
    json_folder: Option<PathBuf>,
}

impl Conformance {
    /// The folder for the results and the formats to write there; `None` when no results are kept.
    fn output_formats(&self) -> Option<(&Path, &'static [&'static str])> {
        let both = self.results.as_deref().map(|folder| (folder, ["json", "junit"].as_slice()));
        both.or(self.json_folder.as_deref().map(|folder| (folder, ["json"].as_slice())))
    }
}

/// Checks the services one after the other and returns the worst of their exit codes.
pub(super) fn run(arguments: &Conformance) -> anyhow::Result<u8> {
    let registry = Registry::load(&arguments.registry)?;
    let chosen = choose(&registry, &arguments.services)?;
    if let Some((folder, _)) = arguments.output_formats() {
        fs::create_dir_all(folder).with_context(|| format!("failed to make the folder {}", folder.display()))?;
    }
    let mut worst = 0;
    for (name, service, program) in chosen {
        let path = contract::find(program)?;
        let results = results(arguments.output_formats(), name)?;
        let mut command = contract::command(&path, &registry, (name, service), arguments.level, &results);
        let ended = command.status().with_context(|| format!("failed to run {}", path.display()))?;
        // A program that was killed by a signal has checked nothing.
        worst = worst.max(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(UNUSABLE));
    }
    Ok(worst)
}

/// The program's options that make it write its results into the folder.
fn results(output_formats: Option<(&Path, &[&str])>, name: &str) -> anyhow::Result<Vec<String>> {
    let Some((folder, formats)) = output_formats else { return Ok(Vec::new()) };
    // An absolute path, since the program runs in the checkout's root.
    let folder = fs::canonicalize(folder).with_context(|| format!("failed to find {}", folder.display()))?;
    let file = |form: &str| {
        let extension = if form == "junit" { "xml" } else { form };
        folder.join(format!("{name}.{extension}")).display().to_string()
    };
    Ok(formats.iter().flat_map(|form| [format!("--{form}"), file(form)]).collect())
}

/// The requested services, each with the program that checks it.
fn choose<'a>(registry: &'a Registry, names: &[String]) -> anyhow::Result<Vec<(&'a str, &'a Service, &'a str)>> {
    let program = |service: &Service| registry.protocol_of(service).conformance.as_deref();
    if names.is_empty() {
        let all = registry.services.iter().filter(|(name, _)| !name.starts_with(SELF_TEST));
        let all: Vec<_> = all.filter_map(|(name, service)| Some((name.as_str(), service, program(service)?))).collect();
        if all.is_empty() {
            bail!("no service of the registry has a protocol with a conformance test (protocols.*.conformance)");
        }
        return Ok(all);
    }
    let mut chosen = Vec::new();
    for name in names {
        let Some((name, service)) = registry.services.get_key_value(name.as_str()) else {
            let known: Vec<&str> = registry.services.keys().map(Name::as_str).collect();
            let hint =
                closest(name, known.iter().copied()).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            bail!("no service \"{name}\" in the registry{hint}; known: {}", known.join(", "));
        };
        let Some(program) = program(service) else {
            bail!("{name}: its protocol {} has no conformance test (protocols.*.conformance)", service.protocol);
        };
        chosen.push((name.as_str(), service, program));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn registry() -> Registry {
        let text = r#"
            [protocols.stt]
            worker = "stt-loadgen"
            workloads = ["sessions"]
            conformance = "stt-conformance"
            [protocols.wse]
            worker = "wse-bench"
            workloads = ["throughput"]
            [services.one]
            description = ""
            protocol = "stt"
            command = ["one"]
            [services.self-test-gateway]
            description = ""
            protocol = "stt"
            command = ["two"]
            [services.other]
            description = ""
            protocol = "wse"
            command = ["three"]
        "#;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Registry::load(file.path()).unwrap()
    }

    fn chosen(names: &[&str]) -> Result<Vec<String>, String> {
        let registry = registry();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = choose(&registry, &names).map_err(|error| format!("{error:#}"))?;
        Ok(chosen.into_iter().map(|(name, _, program)| format!("{name} by {program}")).collect())
    }

    #[test]
    fn without_names_all_services_with_a_test_are_chosen_except_self_tests() {
        assert_eq!(chosen(&[]).unwrap(), ["one by stt-conformance"]);
        assert_eq!(chosen(&["self-test-gateway"]).unwrap(), ["self-test-gateway by stt-conformance"]);
    }

    #[test]
    fn the_program_gets_the_level_and_the_exceptions_of_the_registry() {
        let mut registry = registry();
        let exceptions = &mut registry.services.get_mut("one").unwrap().exceptions;
        exceptions.insert("unmasked".into(), "it ends = no Close".into());
        let folder = tempfile::tempdir().unwrap();
        let results = results(Some((folder.path(), &["json"])), "one").unwrap();
        let one = ("one", &registry.services["one"]);
        let command = contract::command(Path::new("program"), &registry, one, Level::Core, &results);
        let arguments: Vec<&str> = command.get_args().filter_map(|word| word.to_str()).collect();
        let file = fs::canonicalize(folder.path()).unwrap().join("one.json").display().to_string();
        let expected = ["--level", "core", "--except", "unmasked=it ends = no Close", "--json", &file];
        assert_eq!(arguments, [&expected[..], &["--start", "one", "--", "one"]].concat());
    }

    #[test]
    fn an_unknown_service_and_one_without_a_test_are_named() {
        assert!(chosen(&["oen"]).unwrap_err().contains("known: one, other"));
        assert!(chosen(&["other"]).unwrap_err().contains("its protocol wse has no conformance test"));
    }
}
