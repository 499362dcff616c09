//! `services/services.toml`: how each service is started, and which worker program loads its protocol.
//!
//! Paths in the file are relative to the root of the checkout, which is the parent of the folder that holds the file.

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

pub use bench_format::trial_file::BookKeeping;
use bench_format::{
    Name,
    plan::Load,
    websocket::{Counters, ReportedCounters, WebsocketService},
};
use serde::Deserialize;

pub use build::{Build, Image};
pub use error::Error;

mod build;
mod error;

/// The registry file's content, validated.
#[derive(Clone, Debug)]
pub struct Registry {
    /// The root of the checkout, in which commands run.
    pub root: PathBuf,
    /// The protocols, by name.
    pub protocols: BTreeMap<String, Protocol>,
    /// The inference services behind gateways, by name.
    pub inference: BTreeMap<String, Inference>,
    /// The services, by name.
    pub services: BTreeMap<Name, Service>,
}

/// A protocol: the program and the settings with which its services are loaded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Name of the worker program.
    pub worker: String,
    /// Workloads that the worker supports.
    pub workloads: Vec<String>,
    /// Message formats that the worker supports.
    #[serde(default)]
    pub formats: Vec<String>,
    /// Load models that the worker supports.
    #[serde(default = "open_and_closed")]
    pub loads: Vec<LoadModel>,
    /// Name of the inference service behind services of this protocol.
    #[serde(default)]
    pub inference: Option<String>,
    /// Environment variables of the service whose values are passed to workers: those that determine the expected
    /// replies.
    #[serde(default, alias = "told")]
    pub worker_env: Vec<String>,
    /// Path of the WebSocket endpoint, used to complete addresses on the command line.
    #[serde(default)]
    pub path: Option<String>,
    /// Name of the program that tests services of this protocol for conformance.
    #[serde(default)]
    pub conformance: Option<String>,
    /// Name of the plan that a service of this protocol climbs when none is given.
    #[serde(default)]
    pub plan: Option<String>,
}

/// The load models; the values of a plan's `load.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadModel {
    /// Messages are sent at the times of a schedule.
    Open,
    /// The next message waits for the reply to the last.
    Closed,
    /// Sessions that send at the protocol's own pace.
    Sessions,
    /// As open, while connections come and go.
    Churn,
    /// All connections are cut and connect again.
    Reconnect,
}

impl LoadModel {
    /// The model of a load.
    pub fn of(load: &Load) -> Self {
        match load {
            Load::Open { .. } => Self::Open,
            Load::Closed { .. } => Self::Closed,
            Load::Sessions { .. } => Self::Sessions,
            Load::Churn { .. } => Self::Churn,
            Load::Reconnect { .. } => Self::Reconnect,
        }
    }

    /// The name that a plan uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Sessions => "sessions",
            Self::Churn => "churn",
            Self::Reconnect => "reconnect",
        }
    }
}

fn open_and_closed() -> Vec<LoadModel> {
    vec![LoadModel::Open, LoadModel::Closed]
}

/// An inference simulator, which a speech-to-text gateway asks for transcripts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inference {
    /// Description of the simulator, in one line.
    pub description: String,
    /// The program and its arguments; `{bin}` stands for the folder of the `ladder` binary.
    pub command: Vec<String>,
    /// The command that prints the version. A program without a version is not measured.
    #[serde(default)]
    pub version: Vec<String>,
    /// Environment variables, added to ladder's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A service of the registry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Description of the service, in one line.
    pub description: String,
    /// Name of the service's protocol.
    pub protocol: String,
    /// The program and its arguments; `{bin}` stands for the folder of the `ladder` binary.
    pub command: Vec<String>,
    /// The command that prints the version. A service without a version is not measured.
    #[serde(default)]
    pub version: Vec<String>,
    /// Environment variables, added to ladder's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Which counters the service keeps.
    #[serde(default)]
    pub books: BookKeeping,
    /// Whether a worker checks the protocol around each trial.
    #[serde(default)]
    pub protocol_check: ProtocolCheck,
    /// Name of the entry that starts the same program. This entry takes `build`, `image` and `exceptions` from it where
    /// it has none.
    #[serde(default)]
    pub like: Option<String>,
    /// Least load time before each window, in seconds. Some runtimes need longer than others to reach full speed.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// How the service is built and tested; read by tools.
    #[serde(default)]
    pub build: Option<Build>,
    /// How the service's image is built; read by tools.
    #[serde(default)]
    pub image: Option<Image>,
    /// Conformance cases that the service is known to fail, each with what the service does instead.
    #[serde(default)]
    pub exceptions: BTreeMap<String, String>,
    /// The root of the checkout in which the commands run, where it isn't the registry's: a side of a comparison.
    #[serde(skip)]
    pub root: Option<PathBuf>,
    /// The description in the plan; present only for a service that no registry has.
    #[serde(skip)]
    pub described: Option<WebsocketService>,
}

impl Service {
    /// The folder in which the commands run; `registry` is the root of the registry's checkout.
    pub fn root<'a>(&'a self, registry: &'a Path) -> &'a Path {
        self.root.as_deref().unwrap_or(registry)
    }

    /// Which counters the service has by its plan; `None` if the plan maps none.
    pub fn reported_counters(&self) -> Option<ReportedCounters> {
        self.described.as_ref()?.counters.as_ref().map(Counters::reported)
    }

    /// Least load time before each window; zero when the entry sets none.
    pub fn warmup(&self) -> Duration {
        self.warmup_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
    }
}

/// Whether a worker checks a service's protocol around each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtocolCheck {
    /// Check before and after the load, where the workload has a check.
    #[default]
    AroundTheLoad,
    /// Never check: the service only reads what it is sent, and its figures have to be interpreted accordingly.
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRegistry {
    protocols: BTreeMap<String, Protocol>,
    #[serde(default)]
    inference: BTreeMap<String, Inference>,
    services: BTreeMap<Name, Service>,
}

impl Registry {
    /// Reads and checks a registry file.
    ///
    /// # Errors
    /// When the file can't be read or parsed, or a value in it is unknown or unusable.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::load_with(path, &own_folder())
    }

    /// Reads and checks a registry file; `bin` is the folder of its programs.
    ///
    /// # Errors
    /// As for [`Registry::load`].
    pub fn load_with(path: &Path, bin: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.into(), source };
        let text = fs::read_to_string(path).map_err(read)?;
        let absolute = fs::canonicalize(path).map_err(read)?;
        let root = absolute.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf();
        Self::parse(&text, path, root, bin)
    }

    fn parse(text: &str, path: &Path, root: PathBuf, bin: &Path) -> Result<Self, Error> {
        let wire: WireRegistry =
            toml::from_str(text).map_err(|error| Error::Parse { path: path.into(), message: error.to_string() })?;
        let WireRegistry { protocols, mut inference, mut services } = wire;
        for (name, protocol) in &protocols {
            if let Some(inference_name) =
                protocol.inference.as_ref().filter(|inference_name| !inference.contains_key(*inference_name))
            {
                return Err(Error::UnknownInference {
                    path: path.into(),
                    protocol: name.clone(),
                    inference: inference_name.clone(),
                    known: names(&inference),
                });
            }
        }
        for (name, service) in &mut services {
            if !protocols.contains_key(&service.protocol) {
                return Err(Error::UnknownProtocol {
                    path: path.into(),
                    service: name.to_string(),
                    protocol: service.protocol.clone(),
                    known: names(&protocols),
                });
            }
            complete(&mut service.command, &mut service.version, bin)
                .ok_or_else(|| Error::NoCommand { path: path.into(), place: format!("services.{name}") })?;
            build::check(service).map_err(|(field, message)| Error::Value {
                path: path.into(),
                service: name.to_string(),
                field,
                message,
            })?;
        }
        let like = |(service, message): (Name, _)| Error::Like { path: path.into(), service: service.into(), message };
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
    /// When the service is not from this registry. For its own services, loading has checked that the protocol exists.
    pub fn protocol_of(&self, service: &Service) -> &Protocol {
        self.protocols.get(&service.protocol).expect("checked when the registry was loaded")
    }

    /// The inference service behind a service of this registry, with its name; `None` where the service needs none.
    pub fn inference_of(&self, service: &Service) -> Option<(&str, &Inference)> {
        let name = self.protocol_of(service).inference.as_deref()?;
        Some((name, self.inference.get(name)?))
    }
}

fn names<K: Borrow<str>, T>(known: &BTreeMap<K, T>) -> String {
    known.keys().map(K::borrow).collect::<Vec<_>>().join(", ")
}

/// Replaces `{bin}` by the folder of the binaries; `None` when the command is empty.
fn complete(command: &mut [String], version: &mut [String], bin: &Path) -> Option<()> {
    for word in command.iter_mut().chain(version) {
        *word = word.replace("{bin}", &bin.to_string_lossy());
    }
    (!command.is_empty()).then_some(())
}

/// The folder of the running binary. Tests run in its `deps` subfolder, so this is stripped.
pub fn own_folder() -> PathBuf {
    let folder = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default();
    if folder.ends_with("deps") { folder.parent().map(Path::to_path_buf).unwrap_or_default() } else { folder }
}

/// The path of a program: beside this binary, otherwise on `PATH`; `None` when it is in neither.
pub fn worker_program(name: &str) -> Option<PathBuf> {
    let sibling = own_folder().join(name);
    if sibling.is_file() {
        return Some(sibling);
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
