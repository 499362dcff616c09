//! When load starts where the service publishes: once it does. Pure.
//!
//! A publisher starts when no more subscribers come, and a window before that would be one of nothing.

use std::{fmt, time::Duration};

use bench_format::service::PublisherStats;

/// Longest wait for a service to publish once all its subscribers are there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a look at `/stats/publisher` says of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The service publishes: load may start.
    Now,
    /// It may yet: look again a little later.
    Later,
    /// It won't, and why.
    Never(String),
}

impl Start {
    /// Judges a look, after so long a wait since all subscribers were there.
    pub fn after(waited: Duration, seen: Result<Option<PublisherStats>, impl fmt::Display>) -> Self {
        let words = match seen {
            Ok(Some(publisher)) if publisher.publishing => return Self::Now,
            Ok(Some(_)) => "it has subscribers, and says that it doesn't".to_owned(),
            Ok(None) => return Self::Never("it tells of no publisher at /stats/publisher".into()),
            // One at its limit answers late.
            Err(error) => error.to_string(),
        };
        if waited < PATIENCE { Self::Later } else { Self::Never(format!("{words}, for {} s", PATIENCE.as_secs())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(publishing: bool) -> Result<Option<PublisherStats>, String> {
        Ok(Some(PublisherStats { publishing, ..PublisherStats::default() }))
    }

    #[test]
    fn load_starts_once_the_service_publishes() {
        assert_eq!(Start::after(Duration::ZERO, says(false)), Start::Later);
        assert_eq!(Start::after(Duration::from_secs(29), says(true)), Start::Now);
        assert_eq!(Start::after(PATIENCE, says(true)), Start::Now, "late, but it does");
    }

    #[test]
    fn a_service_that_never_publishes_is_told_from_one_that_never_answers() {
        let Start::Never(words) = Start::after(PATIENCE, says(false)) else { panic!() };
        assert_eq!(words, "it has subscribers, and says that it doesn't, for 30 s");
        let deaf = || Err("timed out".to_owned());
        assert_eq!(Start::after(Duration::from_secs(29), deaf()), Start::Later);
        assert_eq!(Start::after(PATIENCE, deaf()), Start::Never("timed out, for 30 s".into()));
    }

    #[test]
    fn who_has_no_publisher_is_not_waited_for() {
        let seen = Ok::<_, String>(None);
        let expected = Start::Never("it tells of no publisher at /stats/publisher".into());
        assert_eq!(Start::after(Duration::ZERO, seen), expected);
    }
}
