//! The Lease that allows only one operator to climb. Its holder is the pod's name: a container that was restarted
//! continues at once, and another pod waits until the Lease expires.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use driver::http::chain;

use crate::api::FIELD_MANAGER;

/// How long a Lease is held without a renewal.
const DURATION: Duration = Duration::from_secs(15);
/// Interval between two renewals.
const RENEW: Duration = Duration::from_secs(5);
/// Time without a renewal after which the operator stops. It is well below `DURATION`, after which another operator may
/// begin.
const LOSS_TIMEOUT: Duration = Duration::from_secs(11);
/// Interval between two attempts to acquire the Lease.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Access to the Lease of a release, under this operator's identity.
#[derive(Clone)]
pub struct Holder {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holder").field("name", &self.name).field("me", &self.identity).finish_non_exhaustive()
    }
}

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attempt {
    Held,
    /// Another operator holds the Lease; its identity.
    HeldBy(String),
}

impl Holder {
    /// Access to the Lease `name`, with the holder identity `identity`.
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self { leases: Api::namespaced(client.clone(), namespace), name: name.into(), identity: identity.into() }
    }

    /// Waits until this operator holds the Lease. Calls `waiting` with the reason after each failed attempt.
    pub async fn acquire(&self, waiting: impl Fn(String)) {
        loop {
            match self.attempt().await {
                Ok(Attempt::Held) => return,
                Ok(Attempt::HeldBy(other)) => {
                    waiting(format!("Lease {} is held by {other}: only one operator climbs", self.name));
                }
                Err(error) => waiting(error),
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the Lease until renewals fail for too long or another operator takes it; then sends the reason to `lost`.
    pub async fn renew(self, lost: watch::Sender<Option<String>>) {
        let mut renewed_at = Instant::now();
        loop {
            sleep(RENEW).await;
            let description = match self.attempt().await {
                Ok(Attempt::Held) => {
                    renewed_at = Instant::now();
                    continue;
                }
                Ok(Attempt::HeldBy(other)) => format!("Lease {} was taken by {other}", self.name),
                Err(error) if renewed_at.elapsed() < LOSS_TIMEOUT => {
                    eprintln!("ladder: {error}");
                    continue;
                }
                Err(error) => error,
            };
            lost.send_replace(Some(description));
            return;
        }
    }

    /// Releases the Lease, so that the next operator doesn't have to wait until it expires.
    pub async fn release(&self) {
        let Ok(Some(mut lease)) = self.get().await else { return };
        let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        else {
            return;
        };
        spec.holder_identity = None;
        let _ = timeout(RESPONSE_TIMEOUT, self.leases.replace(&self.name, &ours(), &lease)).await;
    }

    async fn attempt(&self) -> Result<Attempt, String> {
        let now = Timestamp::now();
        let Some(mut lease) = self.get().await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(held(&self.identity, now, 0)) };
            return match timeout(RESPONSE_TIMEOUT, self.leases.create(&ours(), &lease)).await {
                Ok(Ok(_)) => Ok(Attempt::Held),
                Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => {
                    Ok(Attempt::HeldBy("another operator".into()))
                }
                Ok(Err(error)) => Err(self.description("create", &chain(&error))),
                Err(_) => Err(self.description("create", "no response")),
            };
        };
        let spec = lease.spec.take().unwrap_or_default();
        lease.spec = match next(spec, &self.identity, now) {
            Ok(spec) => Some(spec),
            Err(other) => return Ok(Attempt::HeldBy(other)),
        };
        // The request contains the resource version that was read: of two concurrent attempts, one is refused with a
        // conflict.
        match timeout(RESPONSE_TIMEOUT, self.leases.replace(&self.name, &ours(), &lease)).await {
            Ok(Ok(_)) => Ok(Attempt::Held),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => Ok(Attempt::HeldBy("another operator".into())),
            Ok(Err(error)) => Err(self.description("renew", &chain(&error))),
            Err(_) => Err(self.description("renew", "no response")),
        }
    }

    async fn get(&self) -> Result<Option<Lease>, String> {
        match timeout(RESPONSE_TIMEOUT, self.leases.get_opt(&self.name)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(error)) => Err(self.description("read", &chain(&error))),
            Err(_) => Err(self.description("read", "no response")),
        }
    }

    fn description(&self, verb: &str, reason: &str) -> String {
        format!("failed to {verb} Lease {}: {reason}", self.name)
    }
}

fn ours() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() }
}

fn held(identity: &str, now: Timestamp, transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.into()),
        lease_duration_seconds: Some(DURATION.as_secs() as i32),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// The Lease with this operator as its holder; the error is the identity of the current holder.
fn next(mut spec: LeaseSpec, identity: &str, now: Timestamp) -> Result<LeaseSpec, String> {
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
    match holder {
        Some(holder) if holder == identity => {
            spec.renew_time = Some(MicroTime(now));
            Ok(spec)
        }
        Some(holder) if !expired(&spec, now) => Err(holder),
        _ => Ok(held(identity, now, spec.lease_transitions.unwrap_or(0) + 1)),
    }
}

fn expired(spec: &LeaseSpec, now: Timestamp) -> bool {
    let seconds = spec.lease_duration_seconds.unwrap_or(DURATION.as_secs() as i32);
    spec.renew_time.as_ref().is_none_or(|renewed| now.duration_since(renewed.0).as_secs() > seconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn a_lease_has_one_holder_at_a_time() {
        let lease = held("a", at(0), 0);
        assert_eq!(next(lease.clone(), "b", at(10)).unwrap_err(), "a");
        assert_eq!(next(lease, "b", at(16)).unwrap().holder_identity.as_deref(), Some("b"));
    }

    #[test]
    fn a_restarted_container_of_the_same_pod_keeps_the_lease() {
        let renewed = next(held("a", at(0), 3), "a", at(1)).unwrap();
        assert_eq!((renewed.lease_transitions, renewed.renew_time), (Some(3), Some(MicroTime(at(1)))));
    }

    #[test]
    fn a_released_lease_is_free() {
        let free = LeaseSpec { holder_identity: None, ..held("a", at(0), 0) };
        assert_eq!(next(free, "b", at(1)).unwrap().lease_transitions, Some(1));
    }

    #[test]
    fn the_holder_stops_before_another_operator_may_begin() {
        assert!(LOSS_TIMEOUT + RESPONSE_TIMEOUT <= DURATION && RENEW * 2 < LOSS_TIMEOUT);
    }
}
