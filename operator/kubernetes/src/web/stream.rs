//! `/api/live`: the state and the trial that runs, once a second, as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use axum::response::sse::{Event, Sse};
use futures::Stream;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Interval, MissedTickBehavior, interval},
};

use super::Web;
use crate::{
    live::{SearchStatus, State},
    trial_view::TrialView,
};

/// Interval between two events.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Most readers at a time: each holds a connection of the web port, which probes need, too.
pub const MOST_READERS: usize = 64;

/// An event of `/api/live`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// What the operator does.
    pub state: State,
    /// The state as a message for users.
    pub description: String,
    /// Id of the requested run; empty when there is none.
    pub run_id: String,
    /// Number of the run's trials; those of a search so far.
    pub trials: usize,
    /// Of these, those that have ended.
    pub ended: usize,
    /// What the search of the current trial does and has found so far; absent where no search goes on.
    #[serde(default)]
    pub search: Option<String>,
    /// The trial that runs; absent between trials.
    pub trial: Option<TrialView>,
}

impl Second {
    /// What is known now.
    fn of(web: &Web) -> Self {
        let status = web.live.status();
        let is_current = |search: &&SearchStatus| {
            let load = status.tier.as_deref().and_then(|tier| tier.strip_prefix(&search.search));
            load.is_some_and(|load| load.starts_with('/'))
        };
        let search = status.searches.iter().find(is_current).map(|search| search.description.clone());
        Self {
            state: status.state,
            description: status.description,
            run_id: status.run_id,
            trials: status.trials.len(),
            ended: status.trials.iter().filter(|trial| trial.standing.is_some()).count(),
            search,
            trial: web.trials.get().and_then(|trials| trials.view(Instant::now())),
        }
    }
}

/// An event each second until the reader goes; `place` is held as long.
pub fn seconds(web: Web, place: OwnedSemaphorePermit) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let reader = Reader { web, ticks, _place: place };
    Sse::new(futures::stream::unfold(reader, async |mut reader| {
        reader.ticks.tick().await;
        let second = Second::of(&reader.web);
        // Numbers that JSON doesn't have are written as null; nothing else can fail.
        let event = Event::default().json_data(&second).unwrap_or_default();
        Some((Ok(event), reader))
    }))
}

struct Reader {
    web: Web,
    ticks: Interval,
    /// Its place among the readers, until it goes.
    _place: OwnedSemaphorePermit,
}
