//! Decides when load starts on a service that publishes: as soon as it does. Pure.
//!
//! A publisher starts when no more subscribers join. A window before that would contain no messages.

use std::{fmt, time::Duration};

use bench_format::service::PublisherStats;

/// Longest time to wait until the service publishes, counted from when all subscribers are connected.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// The decision after one reading of `/stats/publisher`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The service publishes: load may start.
    Now,
    /// The service doesn't publish yet: read again later.
    Later,
    /// The service won't publish; contains the reason.
    Never(String),
}

impl Start {
    /// Decides after one reading, `waited` after all subscribers were connected.
    pub fn after(waited: Duration, reading: Result<Option<PublisherStats>, impl fmt::Display>) -> Self {
        let description = match reading {
            Ok(Some(publisher)) if publisher.publishing => return Self::Now,
            Ok(Some(_)) => "it has subscribers, but reports that it doesn't publish".to_owned(),
            Ok(None) => return Self::Never("it reports no publisher at /stats/publisher".into()),
            // A service at its limit responds late, so an error is not final.
            Err(error) => error.to_string(),
        };
        if waited < PUBLISH_TIMEOUT {
            Self::Later
        } else {
            Self::Never(format!("{description}, for {} s", PUBLISH_TIMEOUT.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(publishing: bool) -> Result<Option<PublisherStats>, String> {
        Ok(Some(PublisherStats { publishing, ..PublisherStats::default() }))
    }

    #[test]
    fn load_starts_once_the_service_publishes() {
        assert_eq!(Start::after(Duration::ZERO, reply(false)), Start::Later);
        assert_eq!(Start::after(Duration::from_secs(29), reply(true)), Start::Now);
        assert_eq!(Start::after(PUBLISH_TIMEOUT, reply(true)), Start::Now, "late, but it does");
    }

    #[test]
    fn a_service_that_never_publishes_is_distinguished_from_one_that_never_answers() {
        let Start::Never(description) = Start::after(PUBLISH_TIMEOUT, reply(false)) else { panic!() };
        assert_eq!(description, "it has subscribers, but reports that it doesn't publish, for 30 s");
        let unresponsive = || Err("timed out".to_owned());
        assert_eq!(Start::after(Duration::from_secs(29), unresponsive()), Start::Later);
        assert_eq!(Start::after(PUBLISH_TIMEOUT, unresponsive()), Start::Never("timed out, for 30 s".into()));
    }

    #[test]
    fn a_service_without_publisher_is_not_waited_for() {
        let reading = Ok::<_, String>(None);
        let expected = Start::Never("it reports no publisher at /stats/publisher".into());
        assert_eq!(Start::after(Duration::ZERO, reading), expected);
    }
}
