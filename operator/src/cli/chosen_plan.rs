//! Resolves the plan argument of the command line: a plan's path, a plan's name or a service's name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;
use bench_format::Name;

use crate::{
    registry::{Registry, Service},
    spelling::closest,
};

/// The plan to climb, and the services that replace its own.
#[derive(Debug)]
pub(super) struct ChosenPlan {
    /// The argument that names the plan on a command line.
    pub(super) plan_argument: String,
    /// Path of the plan file.
    pub(super) path: PathBuf,
    /// Services that replace the plan's own; empty keeps the plan's services.
    pub(super) services: Vec<String>,
}

impl ChosenPlan {
    /// Resolves `name`, which is a plan's path, a plan's name or a service's name. For a service, `of_service` returns
    /// the name of its default plan.
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
        let plan_path = |name: &str| registry.root.join("plans").join(format!("{name}.yaml"));
        match (registry.services.get(name), plan_path(name).is_file()) {
            (Some(_), true) => bail!("\"{name}\" is both a plan and a service; rename one of them"),
            (Some(service), false) => {
                let Some(plan) = of_service(service) else {
                    bail!("service {name}: protocol {} has no default plan; name a plan", service.protocol);
                };
                if !services.is_empty() {
                    bail!("\"{name}\" is a service already; leave out --service, or name a plan");
                }
                Ok(Self { path: plan_path(&plan), plan_argument: plan, services: vec![name.into()] })
            }
            (None, true) => Ok(Self { plan_argument: name.into(), path: plan_path(name), services }),
            (None, false) => {
                bail!("\"{name}\" is neither a plan in plans/ nor a service; {}", hint_for(name, registry))
            }
        }
    }
}

/// A hint for an unknown name: the closest known name, or the list of all plans and services.
fn hint_for(name: &str, registry: &Registry) -> String {
    let plans = plans(&registry.root);
    let services: Vec<&str> = registry.services.keys().map(Name::as_str).collect();
    match closest(name, plans.iter().map(String::as_str).chain(services.iter().copied())) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("plans: {}; services: {}", plans.join(", "), services.join(", ")),
    }
}

/// Names of the plans in the checkout's `plans/` folder, sorted.
fn plans(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("plans")).into_iter().flatten().flatten();
    let name = |file: fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".yaml")?.to_owned());
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    names
}
