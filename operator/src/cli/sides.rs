//! The sides of a comparison: which service a word of the command line means, and where it runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bench_format::{
    Name,
    comparison::{ComparedSide, Comparison, SideSource},
};

use crate::{
    evidence,
    registry::{Registry, Service, own_folder},
    spelling::closest,
};

mod commit;

/// A side that can be measured.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// What the bundle records of it.
    pub(super) compared: ComparedSide,
    /// How it is started.
    pub(super) service: Service,
}

/// The sides that two words mean, built and with their names in the run: a service's own name, or with `-a` and `-b` where
/// a side is of another checkout or both are the same.
pub(super) fn resolve(a: &Path, b: &Path, registry: &Registry) -> anyhow::Result<(Side, Side)> {
    let one = |letter, path: &Path| {
        let word = path.to_string_lossy();
        side(&word, registry).with_context(|| format!("{letter}: {word}"))
    };
    let (mut a, mut b) = (one("A", a)?, one("B", b)?);
    let plain = |side: &Side| side.compared.source == SideSource::Registry;
    if !plain(&a) || !plain(&b) || a.compared.service == b.compared.service {
        for (side, letter) in [(&mut a, "a"), (&mut b, "b")] {
            side.compared.service = Name::new(format!("{}-{letter}", side.compared.registered))?;
        }
    }
    Ok((a, b))
}

/// Adds the sides of a stored comparison to the registry, for a run that is resumed. The file may come from another
/// person, so nothing is built for it, and no checkout inside `results` is used.
pub(super) fn add(comparison: &Comparison, results: &Path, registry: &mut Registry) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for compared in [&comparison.a, &comparison.b] {
        let word = word(compared);
        let side = stored(compared, results, registry).with_context(|| word.clone())?;
        if !matches!(compared.source, SideSource::Registry) && side.compared.commit != compared.commit {
            let (then, now) = (&compared.commit, &side.compared.commit);
            bail!(
                "{word}: it was measured at commit {then}, and is at {now} now; check {then} out, or start a new comparison"
            );
        }
        found.push((compared.service.clone(), side.service));
    }
    registry.services.extend(found);
    Ok(())
}

fn stored(compared: &ComparedSide, results: &Path, registry: &Registry) -> anyhow::Result<Side> {
    let name = &compared.registered;
    match &compared.source {
        SideSource::Registry => side(name, registry),
        SideSource::Checkout { path } => {
            let (path, results) = (std::fs::canonicalize(path).unwrap_or(path.into()), std::fs::canonicalize(results)?);
            if path.starts_with(&results) {
                bail!(
                    "{} is inside the folder of bundles, which has no code to run; start a new comparison",
                    path.display()
                );
            }
            of_checkout(&path, name, registry)
        }
        SideSource::Commit { .. } => {
            // A name such as HEAD may mean another commit by now.
            let commit = commit::of(&registry.root, &compared.commit)?;
            let root = commit::built(&registry.root, &commit, name)?;
            ready(name, in_checkout(&root, name)?, compared.source.clone(), commit, registry)
        }
    }
}

/// The word of the command line that means a side.
pub(super) fn word(side: &ComparedSide) -> String {
    match &side.source {
        SideSource::Registry => side.registered.to_string(),
        SideSource::Checkout { path } => format!("{}@{path}", side.registered),
        SideSource::Commit { revision } => format!("{}@{revision}", side.registered),
    }
}

fn side(word: &str, registry: &Registry) -> anyhow::Result<Side> {
    if Path::new(word).join("run.json").is_file() {
        bail!("it is a finished bundle; leave out --plan to compare bundles, or name a service");
    }
    let Some((service, of)) = word.split_once('@') else {
        let service = known(word, registry, &registry.root.join("services/services.toml"))?;
        return ready(word, service, SideSource::Registry, evidence::commit(&registry.root), registry);
    };
    if service.is_empty() || of.is_empty() {
        bail!("write SERVICE@FOLDER or SERVICE@COMMIT");
    }
    let folder = PathBuf::from(of);
    let is_commit = || commit::of(&registry.root, of).is_ok();
    match (of.contains('/') || of == "." || of == "..", folder.is_dir()) {
        (true, true) => of_checkout(&folder, service, registry),
        (true, false) if !is_commit() => bail!("there is no folder {of}, and no commit has this name"),
        (false, true) if !is_commit() => of_checkout(&folder, service, registry),
        (false, true) => {
            bail!("{of} is both a folder and a commit; write {service}@./{of} for the folder, or the commit's digits")
        }
        (_, false) => of_commit(of, service, registry),
    }
}

fn of_checkout(folder: &Path, name: &str, registry: &Registry) -> anyhow::Result<Side> {
    let root = std::fs::canonicalize(folder).with_context(|| format!("failed to find {}", folder.display()))?;
    let source = SideSource::Checkout { path: root.display().to_string() };
    let service = in_checkout(&root, name)?;
    ready(name, service, source, evidence::commit(&root), registry)
}

fn of_commit(revision: &str, name: &str, registry: &Registry) -> anyhow::Result<Side> {
    let commit = commit::of(&registry.root, revision)?;
    let root = commit::check_out(&registry.root, &commit)?;
    // The registry of that commit knows best what it has.
    in_checkout(&root, name)?;
    commit::build(&root, name)?;
    let source = SideSource::Commit { revision: revision.into() };
    ready(name, in_checkout(&root, name)?, source, commit, registry)
}

/// A service of another checkout. Its programs are those that are built there, in the profile of this ladder.
fn in_checkout(root: &Path, name: &str) -> anyhow::Result<Service> {
    let path = root.join("services/services.toml");
    if !path.is_file() {
        bail!("{} has no services/services.toml, so it is no checkout of ws-ladder; name its root", root.display());
    }
    let other = Registry::load_with(&path, &programs_of(root, &own_folder()))?;
    let mut service = known(name, &other, &path)?;
    service.root = Some(other.root);
    Ok(service)
}

/// The folder of a checkout's programs: `target/release`, or that of another profile if ladder itself is of that one.
fn programs_of(root: &Path, own: &Path) -> PathBuf {
    let of_target = own.parent().is_some_and(|parent| parent.ends_with("target"));
    let profile = own.file_name().filter(|_| of_target).unwrap_or("release".as_ref());
    root.join("target").join(profile)
}

fn known(name: &str, registry: &Registry, path: &Path) -> anyhow::Result<Service> {
    let Some(service) = registry.services.get(name) else {
        let names: Vec<&str> = registry.services.keys().map(Name::as_str).collect();
        let hint = match closest(name, names.iter().copied()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("known: {}", names.join(", ")),
        };
        bail!("{} has no service \"{name}\"; {hint}", path.display());
    };
    Ok(service.clone())
}

/// Checks that the service can be measured from this checkout, and that it is built.
fn ready(
    name: &str,
    service: Service,
    source: SideSource,
    commit: String,
    registry: &Registry,
) -> anyhow::Result<Side> {
    if !registry.protocols.contains_key(&service.protocol) {
        let known: Vec<&str> = registry.protocols.keys().map(String::as_str).collect();
        bail!(
            "its protocol \"{}\" is unknown in {}, whose generator loads both sides; known: {}",
            service.protocol,
            registry.root.display(),
            known.join(", ")
        );
    }
    let root = service.root(&registry.root);
    evidence::version(root, name, &service.version)
        .with_context(|| format!("it can't be started; build it: cd {} && ./justw build {name}", root.display()))?;
    let registered = Name::new(name)?;
    Ok(Side { compared: ComparedSide { service: registered.clone(), registered, source, commit }, service })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_of_ladders_own_profile_where_it_runs_from_a_target_folder() {
        let of = |own| programs_of(Path::new("/other"), Path::new(own));
        assert_eq!(of("/home/target/debug"), Path::new("/other/target/debug"));
        assert_eq!(of("/home/target/release"), Path::new("/other/target/release"));
        assert_eq!(of("/usr/local/bin"), Path::new("/other/target/release"));
    }
}
