//! Checks the search of a ladder. Pure.

use bench_format::plan::{Figure, Load, Objective, SearchOver, WireLadder, WirePlan, WireRounds, WireSearch};

use super::Check;

/// Fewest trials that a search's rounds may be set to: below it the interval is mostly the prior.
const LEAST_TRIALS: u32 = 6;
/// Most trials that a search's rounds may be set to. More than this costs hours and narrows little.
const MOST_TRIALS: u32 = 200;

impl Check<'_> {
    pub(super) fn search(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        let Some(search) = &ladder.search else { return };
        let at = format!("{place}.search");
        let message = "a search keeps its workers from load to load; leave it out, and give workers";
        self.unless(plan.connections_per_worker.is_none(), "connections_per_worker", message);
        self.limits(&at, search, plan.workers);
        self.over(&at, search, ladder, plan.workers);
        self.durations(&at, search);
        self.rounds(&at, search);
        let WireSearch { width, exceed_ratio, .. } = search;
        let message = format!("{width} is not a width; give a share of the load from 0.001 to 0.5");
        self.unless((0.001..=0.5).contains(width), format!("{at}.width"), message);
        let message = format!("{exceed_ratio} of the time may be bad; give 0 or more and less than 1");
        self.unless((0.0..1.0).contains(exceed_ratio), format!("{at}.exceed_ratio"), message);
        let message = "empty, so that every load passes; give the ladder what a trial must reach";
        self.unless(!ladder.objectives.is_empty(), format!("{place}.objectives"), message);
        for (index, objective) in ladder.objectives.iter().enumerate() {
            self.can_fail(&format!("{place}.objectives[{index}].at_most"), objective);
        }
    }

    fn limits(&mut self, at: &str, search: &WireSearch, workers: u32) {
        let WireSearch { from, to, .. } = *search;
        self.unless(from > 0, format!("{at}.from"), "0 is not a load; give at least 1");
        self.unless(from < to, format!("{at}.to"), format!("{to} is not above from ({from}); give a larger load"));
        if (1..workers).contains(&from) {
            let message = format!("{from} can't be shared by {workers} workers; give each at least 1");
            self.wrong(format!("{at}.from"), message);
        }
    }

    fn over(&mut self, at: &str, search: &WireSearch, ladder: &WireLadder, workers: u32) {
        let counted = !ladder.load.is_open();
        let message = "a closed loop offers no load that could be searched; give the ladder an open load, or sessions";
        self.unless(!counted, format!("{at}.over"), message);
        let place = format!("{at}.connections");
        match (search.over, search.connections) {
            (SearchOver::Connections, Some(_)) => {
                self.wrong(place, "connections are what is searched; leave it out, or give `over: rate_per_second`");
            }
            (SearchOver::Connections, None) => {}
            (SearchOver::RatePerSecond, None) => {
                self.wrong(place, "missing; give the number of connections that carry the rate")
            }
            (SearchOver::RatePerSecond, Some(connections)) => {
                let message = format!("{connections} can't be shared by {workers} workers; give each at least 1");
                self.unless(connections >= workers.max(1), place, message);
                let open = matches!(ladder.load, Load::Open { .. });
                let message = "only an open load has a rate; give `over: connections`";
                self.unless(open, format!("{at}.over"), message);
            }
        }
    }

    fn durations(&mut self, at: &str, search: &WireSearch) {
        let WireSearch { initial_trial_seconds, final_trial_seconds, duration_sum_seconds, .. } = *search;
        let initial = initial_trial_seconds.unwrap_or(final_trial_seconds);
        self.seconds(format!("{at}.initial_trial_seconds"), initial, f64::MIN_POSITIVE);
        self.seconds(format!("{at}.final_trial_seconds"), final_trial_seconds, f64::MIN_POSITIVE);
        self.seconds(format!("{at}.duration_sum_seconds"), duration_sum_seconds, f64::MIN_POSITIVE);
        let message = format!("{initial} s, and {final_trial_seconds} s of a final trial; begin with shorter ones");
        self.unless(initial <= final_trial_seconds, format!("{at}.initial_trial_seconds"), message);
        let message = format!("{duration_sum_seconds} s don't hold one trial of {final_trial_seconds} s; give more");
        self.unless(final_trial_seconds <= duration_sum_seconds, format!("{at}.duration_sum_seconds"), message);
    }

    fn rounds(&mut self, at: &str, search: &WireSearch) {
        let WireRounds { window_seconds, precision, at_least, at_most, .. } = search.rounds;
        let message = "searches measure rounds of trials on fresh processes instead; give \
                       `rounds: { window_seconds: … }` in its place, in a new run";
        self.unless(search.confirm.is_none(), format!("{at}.confirm"), message);
        self.seconds(format!("{at}.rounds.window_seconds"), window_seconds, f64::MIN_POSITIVE);
        let message = format!("± {precision} is not a precision; give a share of the load from 0.005 to 0.1");
        self.unless((0.005..=0.1).contains(&precision), format!("{at}.rounds.precision"), message);
        let message = format!("{at_least} trials leave the interval to the prior; give {LEAST_TRIALS} or more");
        self.unless(at_least >= LEAST_TRIALS, format!("{at}.rounds.at_least"), message);
        let message = format!("{at_most} trials, and at least {at_least}; give {at_least} to {MOST_TRIALS}");
        self.unless((at_least..=MOST_TRIALS).contains(&at_most), format!("{at}.rounds.at_most"), message);
        let final_seconds = search.final_trial_seconds;
        let message =
            format!("{window_seconds} s, and {final_seconds} s of a short trial; give rounds the longer ones");
        self.unless(window_seconds >= final_seconds, format!("{at}.rounds.window_seconds"), message);
    }

    /// Rejects a share of 1 or more as an upper bound: it always holds.
    fn can_fail(&mut self, place: &str, objective: &Objective) {
        if let (Figure::FailedShare | Figure::ErrorShare, Some(most)) = (&objective.figure, objective.at_most) {
            self.unless(most < 1.0, place, format!("{most} always holds; give a share below 1"));
        }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::plan::WireConfirm;

    use super::*;
    use crate::plan::check::fixture::{found, one};

    /// The mistakes of a good search after a change.
    fn wrong(change: impl FnOnce(&mut WireLadder)) -> Vec<String> {
        found(|plan| {
            let ladder = &mut plan.ladders[0];
            let figure = Figure::PercentileMs { histogram: "response".into(), percentile: 99.0 };
            ladder.objectives = vec![Objective { figure, at_most: Some(10.0), at_least: None }];
            ladder.load = Load::Open { rate_per_second: 10.0, arrivals: Default::default() };
            ladder.tiers = vec![];
            ladder.search = Some(WireSearch {
                over: SearchOver::Connections,
                connections: None,
                from: 10,
                to: 100,
                start: Default::default(),
                initial_trial_seconds: None,
                final_trial_seconds: 2.0,
                duration_sum_seconds: 6.0,
                width: 0.02,
                exceed_ratio: 0.5,
                rounds: WireRounds::default(),
                confirm: None,
            });
            change(ladder);
        })
    }

    fn search(change: impl FnOnce(&mut WireSearch)) -> String {
        let found = wrong(|ladder| change(ladder.search.as_mut().unwrap()));
        let [message] = &found[..] else { panic!("{found:?}") };
        message.clone()
    }

    #[test]
    fn a_search_needs_no_tiers() {
        assert_eq!(wrong(|_| ()), Vec::<String>::new());
        assert!(
            one(|plan| plan.ladders[0].tiers = vec![]).contains("give at least one number of connections, or a search")
        );
    }

    #[test]
    fn limits_must_leave_something_to_search() {
        assert!(
            search(|search| search.to = 10)
                .ends_with("ladders[0].search.to: 10 is not above from (10); give a larger load")
        );
        assert!(search(|search| search.from = 0).contains("search.from: 0 is not a load"));
    }

    #[test]
    fn a_search_needs_a_load_of_the_same_kind() {
        let rate = |search: &mut WireSearch| search.over = SearchOver::RatePerSecond;
        assert!(
            search(rate).contains("search.connections: missing; give the number of connections that carry the rate")
        );
        assert!(search(|search| search.connections = Some(5)).contains("connections are what is searched"));
        let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
        assert!(wrong(|ladder| ladder.load = closed)[0].contains("a closed loop offers no load"));
    }

    #[test]
    fn durations_must_be_in_rising_order() {
        assert!(search(|search| search.initial_trial_seconds = Some(3.0)).contains("begin with shorter ones"));
        assert!(search(|search| search.duration_sum_seconds = 1.0).contains("1 s don't hold one trial of 2 s"));
        assert!(search(|search| search.rounds.window_seconds = 1.0).contains("give rounds the longer ones"));
        assert!(search(|search| search.width = 0.0).contains("0 is not a width"));
        assert!(search(|search| search.exceed_ratio = 1.0).contains("1 of the time may be bad"));
    }

    #[test]
    fn rounds_need_enough_trials_and_a_precision() {
        assert!(search(|search| search.rounds.at_least = 3).contains("rounds.at_least: 3 trials leave the interval"));
        assert!(search(|search| search.rounds.at_most = 11).contains("11 trials, and at least 12; give 12 to 200"));
        assert!(search(|search| search.rounds.precision = 0.0).contains("± 0 is not a precision"));
    }

    #[test]
    fn a_plan_of_schema_2_is_refused_and_the_error_names_the_replacement_of_confirm() {
        let message = search(|search| search.confirm = Some(WireConfirm::default()));
        assert!(message.contains("search.confirm: searches measure rounds"), "{message}");
    }

    #[test]
    fn a_search_without_objectives_is_refused() {
        assert!(wrong(|ladder| ladder.objectives.clear())[0].contains("ladders[0].objectives: empty"));
        let always = Objective { figure: Figure::FailedShare, at_most: Some(1.0), at_least: None };
        assert!(wrong(|ladder| ladder.objectives = vec![always])[0].contains("1 always holds"));
    }
}
