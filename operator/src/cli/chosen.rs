//! Which plan a word on the command line means, and for which services.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;

use crate::{
    registry::{Registry, Service},
    spelling::closest,
};

/// Which plan to climb, and which services in place of its own.
#[derive(Debug)]
pub(super) struct Chosen {
    /// What names the plan on a command line.
    pub(super) plan_argument: String,
    /// Its file.
    pub(super) path: PathBuf,
    /// The services in place of its own; empty means its own.
    pub(super) services: Vec<String>,
}

impl Chosen {
    /// A plan by its path or name, or the plan of a service.
    pub(super) fn of(
        name: &str,
        services: &[String],
        registry: &Registry,
        of_service: impl Fn(&Service) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let services = services.to_vec();
        let path = PathBuf::from(name);
        if name.contains('/') || name.ends_with(".yaml") || path.is_file() {
            return Ok(Self { plan_argument: name.into(), path, services });
        }
        let in_plans = |name: &str| registry.root.join("plans").join(format!("{name}.yaml"));
        match (registry.services.get(name), in_plans(name).is_file()) {
            (Some(_), true) => bail!("\"{name}\" is both a plan and a service; rename one of them"),
            (Some(service), false) => {
                let Some(plan) = of_service(service) else {
                    bail!("service {name}: protocol {} has no default plan; name a plan", service.protocol);
                };
                if !services.is_empty() {
                    bail!("\"{name}\" is a service already; leave out --service, or name a plan");
                }
                Ok(Self { path: in_plans(&plan), plan_argument: plan, services: vec![name.into()] })
            }
            (None, true) => Ok(Self { plan_argument: name.into(), path: in_plans(name), services }),
            (None, false) => bail!("\"{name}\" is neither a plan in plans/ nor a service; {}", way_out(name, registry)),
        }
    }
}

/// What may have been meant by a name that nothing has.
fn way_out(name: &str, registry: &Registry) -> String {
    let plans = plans(&registry.root);
    let services: Vec<&str> = registry.services.keys().map(String::as_str).collect();
    match closest(name, plans.iter().map(String::as_str).chain(services.iter().copied())) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("plans: {}; services: {}", plans.join(", "), services.join(", ")),
    }
}

/// The names of the plans of a checkout.
fn plans(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("plans")).into_iter().flatten().flatten();
    let name = |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".yaml")?.to_owned());
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    names
}
