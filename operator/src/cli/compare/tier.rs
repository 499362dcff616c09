//! Chooses the one tier at which two sides are measured. Pure.

use std::path::Path;

use anyhow::bail;
use bench_format::plan::WirePlan;

use crate::{plan::TrialFilter, spelling::closest};

/// A tier of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChosenTier {
    /// Index of its ladder.
    pub(super) ladder: usize,
    /// Number of connections or sessions, as the plan has it.
    pub(super) load: u32,
}

/// The only tier that `only` selects, or the only one of the plan.
pub(super) fn choose(wire: &WirePlan, path: &Path, only: Option<&str>) -> anyhow::Result<ChosenTier> {
    let of_ladder = |(index, ladder): (usize, &bench_format::plan::WireLadder)| {
        let name = format!("{}/{}", ladder.workload, ladder.variant);
        let tier = |load: &u32| (format!("{name}/{load}"), ChosenTier { ladder: index, load: *load });
        ladder.tiers.iter().map(tier).collect::<Vec<_>>()
    };
    let all: Vec<(String, ChosenTier)> = wire.ladders.iter().enumerate().flat_map(of_ladder).collect();
    let filter = TrialFilter(only.map(str::to_owned).into_iter().collect());
    let chosen: Vec<&(String, ChosenTier)> = all.iter().filter(|(name, _)| filter.selects_path(name)).collect();
    let names = |tiers: &[&(String, ChosenTier)]| tiers.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ");
    let (path, every) = (path.display(), all.iter().collect::<Vec<_>>());
    match (&chosen[..], only) {
        ([(_, tier)], _) => Ok(*tier),
        (_, _) if all.is_empty() => bail!("{path}: no ladder has tiers; name a plan for ladder run"),
        ([], Some(only)) => match closest(only, all.iter().map(|(name, _)| &**name)) {
            Some(meant) => bail!("--only {only}: {path} has no such tier; did you mean {meant}?"),
            None => bail!("--only {only}: {path} has no such tier; it has {}", names(&every)),
        },
        (several, Some(only)) => {
            bail!(
                "--only {only}: {} tiers of {path}, and a comparison measures one; name one of {}",
                several.len(),
                names(several)
            )
        }
        (several, None) => {
            bail!(
                "{path} has {} tiers, and a comparison measures one; name one with --only: {}",
                several.len(),
                names(several)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::minimal;

    fn chosen(only: Option<&str>, tiers: &[u32]) -> Result<ChosenTier, String> {
        let mut wire = minimal();
        wire.ladders[0].tiers = tiers.to_vec();
        let other =
            bench_format::plan::WireLadder { variant: "open".into(), tiers: vec![7], ..wire.ladders[0].clone() };
        wire.ladders.push(other);
        choose(&wire, Path::new("p.yaml"), only).map_err(|error| error.to_string())
    }

    #[test]
    fn one_tier_is_chosen_by_its_ladder_or_its_full_name() {
        assert_eq!(chosen(Some("throughput/open"), &[10, 20]), Ok(ChosenTier { ladder: 1, load: 7 }));
        assert_eq!(chosen(Some("throughput/standard/20"), &[10, 20]), Ok(ChosenTier { ladder: 0, load: 20 }));
        assert_eq!(chosen(None, &[]), Ok(ChosenTier { ladder: 1, load: 7 }), "the only tier needs no name");
    }

    #[test]
    fn several_tiers_or_none_are_named_with_the_way_out() {
        let several = chosen(None, &[10, 20]).unwrap_err();
        assert!(
            several.starts_with("p.yaml has 3 tiers") && several.contains("--only: throughput/standard/10, "),
            "{several}"
        );
        let several = chosen(Some("throughput/standard"), &[10, 20]).unwrap_err();
        assert!(several.ends_with("name one of throughput/standard/10, throughput/standard/20"), "{several}");
        let mistyped = chosen(Some("throughput/opne/7"), &[10]).unwrap_err();
        assert_eq!(mistyped, "--only throughput/opne/7: p.yaml has no such tier; did you mean throughput/open/7?");
        let unknown = chosen(Some("throughput/standard/99"), &[10]).unwrap_err();
        assert!(unknown.starts_with("--only throughput/standard/99: p.yaml has no such tier"), "{unknown}");
    }
}
