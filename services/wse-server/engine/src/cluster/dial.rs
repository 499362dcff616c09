//! Keeps a link with the instance at an address: dials when there is none, less and less often while dialling fails.

use std::{sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, sleep, timeout},
};
use wse_utilities::breaker::{Breaker, BreakerState};

use super::{
    config::{ClusterTiming, is_local},
    counters::RefuseReason,
    join::{self, Refused},
    mesh::Mesh,
    peer::Link,
};
use crate::{
    links::backoff::{Pauses, jittered},
    lock::lock,
};

/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Why an address on another machine is not dialled.
const NEEDS_CREDENTIAL: &str = "a link there needs cluster_secret or TLS";

/// Decides when the next attempt is due.
struct DialBackoff {
    pauses: Pauses,
    breaker: Breaker,
    /// The start of the breaker's clock.
    started: Instant,
}

impl DialBackoff {
    fn new(timing: &ClusterTiming) -> Self {
        let pauses = Pauses::new(timing.first_pause, timing.longest_pause);
        Self { pauses, breaker: Breaker::new(timing.breaker()), started: Instant::now() }
    }

    fn succeeded(&mut self) {
        self.pauses.reset();
        self.breaker.success(self.started.elapsed());
    }

    /// Notes a failure. Returns how long to wait before the next attempt.
    fn failed(&mut self) -> Duration {
        let now = self.started.elapsed();
        self.breaker.failure(now);
        self.pauses.after_failure().max(self.breaker.refuses_for(now))
    }

    /// Whether so many attempts failed that none is made for a while.
    fn is_breaker_open(&self) -> bool {
        self.breaker.state(self.started.elapsed()) == BreakerState::Open
    }

    async fn wait_until_allowed(&mut self) {
        while !self.breaker.allow(self.started.elapsed()) {
            sleep(self.breaker.refuses_for(self.started.elapsed())).await;
        }
    }
}

/// Keeps a link with the instance at `address`. Ends when this instance stops, when the address is its own, or when an
/// address that was learnt from another instance repeatedly fails.
pub(super) async fn maintain_link(mesh: Arc<Mesh>, address: String) {
    let stop = mesh.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = redial_until_stopped(mesh, address) => {}
    }
}

async fn redial_until_stopped(mesh: Arc<Mesh>, address: String) {
    let mut backoff = DialBackoff::new(&mesh.config.timing);
    let first = mesh.config.timing.first_pause;
    loop {
        while let Some(link) = mesh.link_at(&address) {
            link.ended.cancelled().await;
            // A peer that restarts needs a moment, and both sides shouldn't dial at the same time.
            sleep(jittered(first)).await;
        }
        backoff.wait_until_allowed().await;
        let began = Instant::now();
        let refused = match dial(&mesh, &address).await {
            Ok(link) => {
                link.ended.cancelled().await;
                if began.elapsed() >= first {
                    backoff.succeeded();
                    continue;
                }
                Refused::new(RefuseReason::Lost, "the link was closed at once")
            }
            Err(refused) => refused,
        };
        mesh.counters.refuse(refused.reason);
        match refused.reason {
            RefuseReason::Itself => {
                lock(&mesh.addresses).add_own(&address);
                return tracing::info!(address, "this is the instance's own address: not dialled");
            }
            RefuseReason::Duplicate if mesh.link_at(&address).is_some() => continue,
            _ => tracing::warn!(address, detail = refused.detail, "failed to link"),
        }
        let pause = backoff.failed();
        if backoff.is_breaker_open() && lock(&mesh.addresses).give_up(&address) {
            return tracing::info!(address, "no instance answers at an address announced by a peer: removed");
        }
        sleep(jittered(pause)).await;
    }
}

/// Tries the addresses of a name until one becomes a link.
///
/// # Errors
/// The reason of the last attempt. An address that leads to this instance itself, or to one that has a link already,
/// ends the attempts with that reason.
async fn dial(mesh: &Arc<Mesh>, address: &str) -> Result<Link, Refused> {
    let limit = mesh.config.timing.handshake;
    let late = |step: &'static str| move |_| Refused::new(RefuseReason::Timeout, format!("{step} took too long"));
    let unknown =
        |error: std::io::Error| Refused::new(RefuseReason::Lost, format!("failed to look up the name: {error}"));
    let resolved = timeout(limit, lookup_host(address)).await.map_err(late("looking up the name"))?.map_err(unknown)?;
    let mut last = Refused::new(RefuseReason::Lost, "the name has no address");
    for resolved in resolved.take(MAX_ADDRESSES) {
        if !mesh.config.has_credential() && !is_local(resolved.ip()) {
            last = Refused::new(RefuseReason::Open, format!("{resolved} is not on this machine: {NEEDS_CREDENTIAL}"));
            continue;
        }
        let attempt = async {
            let failed = |error: std::io::Error| Refused::new(RefuseReason::Lost, format!("{resolved}: {error}"));
            let stream = TcpStream::connect(resolved).await.map_err(failed)?;
            join::dialled(mesh, address, stream).await
        };
        last = match timeout(limit, attempt).await.map_err(late("the handshake")).and_then(|linked| linked) {
            Ok(link) => return Ok(link),
            Err(refused) if matches!(refused.reason, RefuseReason::Itself | RefuseReason::Duplicate) => {
                return Err(refused);
            }
            Err(refused) => refused,
        };
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_an_open_breaker_makes_a_longer_one() {
        let timing = ClusterTiming { breaker_reset: Duration::from_secs(600), ..ClusterTiming::default() };
        let mut backoff = DialBackoff::new(&timing);
        let pauses: Vec<u64> = (0..10).map(|_| backoff.failed().as_millis() as u64).collect();
        assert_eq!(pauses[..4], [1000, 1500, 2250, 3375]);
        assert_eq!((pauses[8], pauses[9], backoff.is_breaker_open()), (25_628, 600_000, true));
        backoff = DialBackoff::new(&ClusterTiming { breaker_reset: Duration::ZERO, ..timing });
        let longest = (0..30).map(|_| backoff.failed()).max().unwrap();
        assert_eq!(longest, Duration::from_secs(60));
        backoff.succeeded();
        assert_eq!(backoff.failed(), Duration::from_secs(1));
    }
}
