//! `services/services.toml`: how each service is found and started, and which program loads its protocol.
//!
//! Paths in it are relative to the root of the checkout, the parent of the folder that holds it.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// Why a registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("failed to read the registry {path}; give another with --registry")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no registry.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        message: String,
    },
    /// A service names a protocol that isn't there.
    #[error("{path}: services.{service}.protocol: no protocol \"{protocol}\"; known: {known}")]
    UnknownProtocol {
        /// The file.
        path: PathBuf,
        /// The service.
        service: String,
        /// What it asks for.
        protocol: String,
        /// What there is.
        known: String,
    },
    /// A service has no command.
    #[error("{path}: services.{service}.command: empty; it is the program and its arguments")]
    NoCommand {
        /// The file.
        path: PathBuf,
        /// The service.
        service: String,
    },
}

/// The registry, checked.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Where commands run: the root of the checkout.
    pub root: PathBuf,
    /// By name.
    pub protocols: BTreeMap<String, Protocol>,
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
}

/// What a service's books can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BookKeeping {
    /// Every connection.
    #[default]
    Connections,
    /// Only sums over all connections, and of those only what its counters show.
    Totals,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRegistry {
    protocols: BTreeMap<String, Protocol>,
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
        let mut services = wire.services;
        for (name, service) in &mut services {
            if !wire.protocols.contains_key(&service.protocol) {
                return Err(Error::UnknownProtocol {
                    path: path.into(),
                    service: name.clone(),
                    protocol: service.protocol.clone(),
                    known: wire.protocols.keys().cloned().collect::<Vec<_>>().join(", "),
                });
            }
            if service.command.is_empty() {
                return Err(Error::NoCommand { path: path.into(), service: name.clone() });
            }
            for word in service.command.iter_mut().chain(&mut service.version) {
                *word = word.replace("{bin}", &bin.to_string_lossy());
            }
        }
        Ok(Self { root, protocols: wire.protocols, services })
    }

    /// The protocol of a service of this registry.
    ///
    /// # Panics
    /// When the service isn't of this registry: loading checked that its protocol is there.
    pub fn protocol_of(&self, service: &Service) -> &Protocol {
        self.protocols.get(&service.protocol).expect("checked when the registry was loaded")
    }
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
mod tests {
    use super::*;

    const PROTOCOL: &str = "[protocols.wse]\nworker = \"wse-bench\"\nworkloads = [\"throughput\"]\n";

    fn parse(services: &str) -> Result<Registry, Error> {
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
