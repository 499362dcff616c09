//! The order in which the searches of a run take turns. Pure.
//!
//! The short trials of one service come after another's, because they share a process. Then the services take turns, so
//! that the trials of each are minutes apart and a drift of the machine shows as spread. The list turns with each round
//! (A B, B A), so that no service always follows the same one.

use std::collections::HashSet;

use bench_format::{
    run::{SearchStep, TrialEntry},
    trial::TrialId,
};

/// What a search does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It makes short trials.
    Bounds,
    /// It makes trials on fresh processes and has had this many turns.
    Turns(u32),
    /// It has its result and drops out of the turns.
    Finished,
}

/// Number of searches that have made a trial on a fresh process.
pub fn searches_in_turn(trials: &[TrialEntry]) -> u32 {
    let full = |entry: &&TrialEntry| entry.search.is_some_and(|purpose| purpose.step != SearchStep::Bounds);
    let of = |entry: &TrialEntry| {
        let TrialId { service, workload, variant, .. } = entry.trial.clone();
        (service, workload, variant)
    };
    trials.iter().filter(full).map(of).collect::<HashSet<_>>().len() as u32
}

/// The index of the search whose trial is next; `None` when all are finished.
pub fn next(searches: &[Progress]) -> Option<usize> {
    if let Some(index) = searches.iter().position(|progress| *progress == Progress::Bounds) {
        return Some(index);
    }
    let turns = |progress: &Progress| match progress {
        Progress::Turns(turns) => Some(*turns),
        _ => None,
    };
    let round = searches.iter().filter_map(turns).min()?;
    let is_next = |progress: &Progress| turns(progress) == Some(round);
    if round % 2 == 0 { searches.iter().position(is_next) } else { searches.iter().rposition(is_next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of turns of searches that need these numbers of turns.
    fn order(needed: &[u32]) -> Vec<usize> {
        let (mut had, mut order) = (vec![0; needed.len()], vec![]);
        let progress = |had: &[u32]| -> Vec<Progress> {
            let of =
                |(had, needed): (&u32, &u32)| if had < needed { Progress::Turns(*had) } else { Progress::Finished };
            had.iter().zip(needed).map(of).collect()
        };
        while let Some(index) = next(&progress(&had)) {
            had[index] += 1;
            order.push(index);
        }
        order
    }

    #[test]
    fn every_search_has_one_turn_a_round_and_the_list_turns() {
        assert_eq!(order(&[3, 3, 3]), [0, 1, 2, 2, 1, 0, 0, 1, 2]);
    }

    #[test]
    fn a_search_that_is_finished_drops_out() {
        assert_eq!(order(&[3, 1, 2]), [0, 1, 2, 2, 0, 0]);
        assert_eq!(next(&[]), None);
    }

    #[test]
    fn short_trials_come_first_service_by_service() {
        assert_eq!(next(&[Progress::Turns(0), Progress::Bounds, Progress::Bounds]), Some(1));
        assert_eq!(next(&[Progress::Finished, Progress::Turns(1), Progress::Turns(0)]), Some(2));
    }
}
