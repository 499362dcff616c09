//! Services that a plan or a bundle brings along: those that only its `websocket` section describes, and the sides of a
//! comparison.

use std::path::Path;

use anyhow::{Context, bail};
use bench_format::{
    Name,
    plan::WirePlan,
    websocket::{WebsocketService, WireWebsocket},
};

use super::{chosen_plan::ChosenPlan, sides};
use crate::{plan, registry::Registry, secrets, store, websocket};

/// The registry, with the sides of the run if it is a comparison, and with the services that its plan describes.
pub(super) fn with_sides_and_described(
    mut registry: Registry,
    plan: &str,
    (results, hosts): (&Path, &[String]),
    id: &Name,
) -> anyhow::Result<Registry> {
    // What is wrong with the file is said where it is opened.
    let Ok(file) = store::read_run(&results.join(id.as_str())) else { return Ok(registry) };
    if let Some(comparison) = &file.comparison {
        sides::add(comparison, results, &mut registry).with_context(|| id.to_string())?;
    }
    if let Some(section) = &file.plan.websocket {
        let starts = section.services.values().any(|service| {
            !service.command.is_empty() || !service.version_command.is_empty() && service.version.is_none()
        });
        if starts || section.connect.rows_command.is_some() {
            check_commands(section, plan, &registry).with_context(|| id.to_string())?;
        }
        add_described(&file.plan, hosts, &mut registry)?;
    }
    Ok(registry)
}

/// Checks that the commands of a bundle are those of a plan that the command line names: a bundle may come from another
/// person, and what it says isn't run.
fn check_commands(section: &WireWebsocket, plan: &str, registry: &Registry) -> anyhow::Result<()> {
    let path = ChosenPlan::of(plan, &[], registry, |_| None)?.path;
    // The bundle has no secrets.
    let of_plan = secrets::masked_plan(&plan::read::read(&path)?).websocket.unwrap_or_default();
    let programs = |section: &WireWebsocket| -> Vec<_> {
        let program = |(name, service): (&String, &WebsocketService)| {
            let WebsocketService { command, folder, env, version_command, .. } = service.clone();
            (name.clone(), command, folder, env, version_command)
        };
        section.services.iter().map(program).collect()
    };
    if programs(section) != programs(&of_plan) || section.connect.rows_command != of_plan.connect.rows_command {
        bail!(
            "its plan starts programs, which are not those of {}; name the plan that the run began with: ladder run PLAN \
             --resume RUN_ID",
            path.display()
        );
    }
    Ok(())
}

/// Adds the services that only the plan describes to the registry, once it is clear that they may be loaded: `hosts` are
/// the public ones that the command line allows.
pub(super) fn add_described(wire: &WirePlan, hosts: &[String], registry: &mut Registry) -> anyhow::Result<()> {
    if let Some(section) = &wire.websocket {
        websocket::check_hosts(section, hosts)?;
        websocket::add(section, registry);
    }
    Ok(())
}
