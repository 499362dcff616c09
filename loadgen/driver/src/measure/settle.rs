//! Waits until a service has counted what it got, before its books are read.

use std::time::Duration;

use bench_format::service::ServiceStats;
use judge::delta::ServiceDelta;
use tokio::time::{Instant, sleep};

use super::{SETTLE_POLL, Trial};
use crate::{coordinator::Upload, stage::Stage};

/// A service whose counters haven't changed for this long has settled, even if they don't add up.
const UNCHANGED_TIME: Duration = Duration::from_secs(1);

impl<S: Stage> Trial<'_, S> {
    /// Waits until the service has counted every message that was sent, none is on its way to the application, and no
    /// publication is on its way between the service's instances. It waits at most for the drain, or until the counters
    /// stop changing.
    pub(super) async fn settle(&self, uploads: &[Upload], before: Option<&ServiceStats>) {
        let sent: u64 = uploads.iter().map(sent_by).sum();
        let (numbered, unnumbered) = (uploads.iter().map(numbered_by).sum(), uploads.iter().map(unnumbered_by).sum());
        let deadline = Instant::now() + self.plan.drain;
        let mut unchanged = (Instant::now(), None);
        while Instant::now() < deadline {
            let Ok(mut stats) = self.client.stats().await else { return };
            let delta = ServiceDelta::between(before.unwrap_or(&ServiceStats::default()), &stats);
            let counters = self.plan.counters.as_ref();
            let shown = |counters| delta.shows(counters, numbered, unnumbered);
            if counters.map_or_else(|| delta.settled(sent), shown) && self.client.links_are_idle().await.unwrap_or(true)
            {
                return;
            }
            stats.uptime_seconds = 0.0;
            match unchanged {
                (since, Some(last)) if last == stats => {
                    if since.elapsed() > UNCHANGED_TIME {
                        return;
                    }
                    unchanged = (since, Some(last));
                }
                _ => unchanged = (Instant::now(), Some(stats)),
            }
            sleep(SETTLE_POLL).await;
        }
    }
}

fn sent_by(upload: &Upload) -> u64 {
    upload.result.messages.sent + unnumbered_by(upload)
}

fn unnumbered_by(upload: &Upload) -> u64 {
    upload.result.books.iter().map(|book| book.unnumbered).sum()
}

/// Messages of the load that a worker sent. Those of a connection that publishes are in its book only.
fn numbered_by(upload: &Upload) -> u64 {
    upload.result.messages.sent.max(upload.result.books.iter().map(|book| book.sent).sum())
}
