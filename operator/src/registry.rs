//! `services/services.toml`: how each service is found and started, and which program loads its protocol.
//!
//! Paths in it are relative to the root of the checkout, the parent of the folder that holds it.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bench_format::plan::Load;
pub use bench_format::trial_file::BookKeeping;
use serde::Deserialize;

pub use build::{Build, Image};
pub use error::Error;

mod build;
mod error;

/// The registry, checked.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Where commands run: the root of the checkout.
    pub root: PathBuf,
    /// By name.
    pub protocols: BTreeMap<String, Protocol>,
    /// What stands behind services, by name.
    pub inference: BTreeMap<String, Inference>,
    /// By name.
    pub services: BTreeMap<String, Service>,
}

/// What loads services of a protocol.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// The worker program.
    pub worker: String,
    /// Workloads that it knows.
    pub workloads: Vec<String>,
    /// Message formats that it knows.
    #[serde(default)]
    pub formats: Vec<String>,
    /// Ways of offering load that it knows.
    #[serde(default = "open_and_closed")]
    pub loads: Vec<LoadModel>,
    /// The inference simulator that stands behind its services.
    #[serde(default)]
    pub inference: Option<String>,
    /// Variables of its services whose values workers are told: what answers depend on, and so what they verify.
    #[serde(default)]
    pub told: Vec<String>,
    /// The path at which its services speak WebSocket, for addresses on the command line.
    #[serde(default)]
    pub path: Option<String>,
    /// The program that tests services of it for conformance.
    #[serde(default)]
    pub conformance: Option<String>,
    /// The plan that a service of it climbs when none is named.
    #[serde(default)]
    pub plan: Option<String>,
}

/// How load is offered, in the words of a plan's `load.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadModel {
    /// A schedule says when each message is due.
    Open,
    /// The next message waits for the answer to the last.
    Closed,
    /// Sessions that send at the protocol's own pace.
    Sessions,
}

impl LoadModel {
    /// That of a load.
    pub fn of(load: &Load) -> Self {
        match load {
            Load::Open { .. } => Self::Open,
            Load::Closed { .. } => Self::Closed,
            Load::Sessions { .. } => Self::Sessions,
        }
    }

    /// As a plan spells it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Sessions => "sessions",
        }
    }
}

fn open_and_closed() -> Vec<LoadModel> {
    vec![LoadModel::Open, LoadModel::Closed]
}

/// An inference simulator: what a speech-to-text gateway asks for transcripts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// In a line.
    pub description: String,
    /// The program and its arguments; `{bin}` stands for the folder of the `ladder` binary.
    pub command: Vec<String>,
    /// Prints the version; no version, no measurement.
    #[serde(default)]
    pub version: Vec<String>,
    /// Its environment, on top of ladder's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// One service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// In a line.
    pub description: String,
    /// Its protocol.
    pub protocol: String,
    /// The program and its arguments; `{bin}` stands for the folder of the `ladder` binary.
    pub command: Vec<String>,
    /// Prints the version; no version, no measurement.
    #[serde(default)]
    pub version: Vec<String>,
    /// Its environment, on top of ladder's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What its books can answer.
    #[serde(default)]
    pub books: BookKeeping,
    /// Whether its protocol is checked around each trial.
    #[serde(default)]
    pub protocol_check: ProtocolCheck,
    /// The entry whose program this one starts, too: it takes build, image and exceptions of that one where it has none.
    #[serde(default)]
    pub like: Option<String>,
    /// At least so long it is loaded before each window: some runtimes need longer than others until they are at full speed.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// How it is built and tested; tools read it.
    #[serde(default)]
    pub build: Option<Build>,
    /// How its image is made; tools read it.
    #[serde(default)]
    pub image: Option<Image>,
    /// What it does instead, by the case of its protocol's conformance test that it is known to fail.
    #[serde(default)]
    pub exceptions: BTreeMap<String, String>,
}

impl Service {
    /// At least so long it is loaded before each window.
    pub fn warmup(&self) -> Duration {
        self.warmup_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
    }
}

/// Whether a worker checks a service's protocol around each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolCheck {
    /// Before the load and after it, where the workload has a check.
    #[default]
    AroundTheLoad,
    /// Never: the service only swallows what it is sent, and whoever reads its figures knows it.
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRegistry {
    protocols: BTreeMap<String, Protocol>,
    #[serde(default)]
    inference: BTreeMap<String, Inference>,
    services: BTreeMap<String, Service>,
}

impl Registry {
    /// Reads and checks a registry file.
    ///
    /// # Errors
    /// When the file can't be read or something in it can't be used.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.into(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let absolute = fs::canonicalize(path).map_err(read)?;
        let root = absolute.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf();
        Self::parse(&text, path, root, &own_folder())
    }

    fn parse(text: &str, path: &Path, root: PathBuf, bin: &Path) -> Result<Self, Error> {
        let wire: WireRegistry =
            toml::from_str(text).map_err(|error| Error::Parse { path: path.into(), message: error.to_string() })?;
        let WireRegistry { protocols, mut inference, mut services } = wire;
        for (name, protocol) in &protocols {
            if let Some(wanted) = protocol.inference.as_ref().filter(|wanted| !inference.contains_key(*wanted)) {
                return Err(Error::UnknownInference {
                    path: path.into(),
                    protocol: name.clone(),
                    inference: wanted.clone(),
                    known: names(&inference),
                });
            }
        }
        for (name, service) in &mut services {
            if !protocols.contains_key(&service.protocol) {
                return Err(Error::UnknownProtocol {
                    path: path.into(),
                    service: name.clone(),
                    protocol: service.protocol.clone(),
                    known: names(&protocols),
                });
            }
            complete(&mut service.command, &mut service.version, bin)
                .ok_or_else(|| Error::NoCommand { path: path.into(), place: format!("services.{name}") })?;
            build::check(service).map_err(|(field, message)| Error::Value {
                path: path.into(),
                service: name.clone(),
                field,
                message,
            })?;
        }
        let like = |(service, message)| Error::Like { path: path.into(), service, message };
        build::complete(&mut services).map_err(like)?;
        for (name, inference) in &mut inference {
            complete(&mut inference.command, &mut inference.version, bin)
                .ok_or_else(|| Error::NoCommand { path: path.into(), place: format!("inference.{name}") })?;
        }
        Ok(Self { root, protocols, inference, services })
    }

    /// The protocol of a service of this registry.
    ///
    /// # Panics
    /// When the service isn't of this registry: loading checked that its protocol is there.
    pub fn protocol_of(&self, service: &Service) -> &Protocol {
        self.protocols.get(&service.protocol).expect("checked when the registry was loaded")
    }

    /// What stands behind a service of this registry, with its name; absent where nothing does.
    pub fn inference_of(&self, service: &Service) -> Option<(&str, &Inference)> {
        let name = self.protocol_of(service).inference.as_deref()?;
        Some((name, self.inference.get(name)?))
    }
}

fn names<T>(known: &BTreeMap<String, T>) -> String {
    known.keys().cloned().collect::<Vec<_>>().join(", ")
}

/// Puts the folder of the binaries into commands; nothing when there is no command.
fn complete(command: &mut [String], version: &mut [String], bin: &Path) -> Option<()> {
    for word in command.iter_mut().chain(version) {
        *word = word.replace("{bin}", &bin.to_string_lossy());
    }
    (!command.is_empty()).then_some(())
}

/// The folder of the running binary; tests run from `deps` inside it.
pub fn own_folder() -> PathBuf {
    let folder = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default();
    if folder.ends_with("deps") { folder.parent().map(Path::to_path_buf).unwrap_or_default() } else { folder }
}

/// Where a worker program is: beside this binary, else what `PATH` says.
pub fn worker_program(name: &str) -> Option<PathBuf> {
    let beside = own_folder().join(name);
    if beside.is_file() {
        return Some(beside);
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const PROTOCOL: &str = "[protocols.wse]\nworker = \"wse-bench\"\nworkloads = [\"throughput\"]\n";

    pub(in crate::registry) fn parse(services: &str) -> Result<Registry, Error> {
        let text = format!("{PROTOCOL}{services}");
        Registry::parse(&text, Path::new("services.toml"), "/root".into(), Path::new("/target/debug"))
    }

    #[test]
    fn bin_stands_for_the_folder_of_the_ladder_binary() {
        let registry =
            parse("[services.a]\ndescription = \"\"\nprotocol = \"wse\"\ncommand = [\"{bin}/a\", \"--x\"]").unwrap();
        assert_eq!(registry.services["a"].command, ["/target/debug/a", "--x"]);
    }

    #[test]
    fn a_service_with_an_unknown_protocol_is_named() {
        let error = parse("[services.a]\ndescription = \"\"\nprotocol = \"stt\"\ncommand = [\"a\"]").unwrap_err();
        assert_eq!(error.to_string(), "services.toml: services.a.protocol: no protocol \"stt\"; known: wse");
    }

    #[test]
    fn a_protocol_with_unknown_inference_is_named() {
        let error =
            parse("[protocols.stt]\nworker = \"w\"\nworkloads = []\ninference = \"x\"\n[services]").unwrap_err();
        assert_eq!(error.to_string(), "services.toml: protocols.stt.inference: no inference \"x\"; known: ");
    }

    #[test]
    fn an_empty_command_is_named_with_its_table() {
        let error = parse("[inference.x]\ndescription = \"\"\ncommand = []\n[services]").unwrap_err();
        assert!(error.to_string().starts_with("services.toml: inference.x.command: empty"), "{error}");
    }

    #[test]
    fn a_mistyped_field_is_refused_with_its_line() {
        let error = parse("[services.a]\ndescription = \"\"\nprotocl = \"wse\"\ncommand = [\"a\"]").unwrap_err();
        assert!(error.to_string().contains("protocl"), "{error}");
    }

    #[test]
    fn the_registry_of_this_checkout_loads() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../services/services.toml");
        let registry = Registry::load(&path).unwrap();
        assert!(registry.services.contains_key("wse-server") && registry.root.join("services").is_dir());
    }
}
