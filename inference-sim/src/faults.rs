//! Faults, for tests of the gateways in front of the simulator. There are none by default. Which request gets which
//! fault is a pure function of the seed and the request's number.

use std::{str::FromStr, time::Duration};

use clap::Args;

use crate::{
    random::{Stream, uniform},
    values::{milliseconds, share},
};

/// The faults to inject, each with its share of all requests. A request has at most one fault.
#[derive(Clone, Debug, Default, Args)]
pub struct FaultPlan {
    /// Respond with an error status instead: `503:0.01,429:0.001` (status:share of all requests)
    #[arg(long, env = "FAULT_STATUS", value_delimiter = ',', value_name = "STATUS:SHARE")]
    pub fault_status: Vec<StatusShare>,
    /// Respond later than the model says, by so many milliseconds: `0.01:5000` (share:milliseconds), or `0.01:never`
    #[arg(long, env = "FAULT_STALL", value_name = "SHARE:MS|never")]
    pub fault_stall: Option<StallShare>,
    /// Send the head in time but the body byte by byte over this time: `0.01:3000` (share:milliseconds)
    #[arg(long, env = "FAULT_SLOW_BODY", value_name = "SHARE:MS")]
    pub fault_slow_body: Option<SlowShare>,
    /// Reset instead of a response: the connection (HTTP/1.1) or the stream (HTTP/2)
    #[arg(long, env = "FAULT_RESET", default_value = "0", value_parser = share, value_name = "SHARE")]
    pub fault_reset: f64,
    /// Respond with status 200 and JSON that is cut off
    #[arg(long, env = "FAULT_MALFORMED", default_value = "0", value_parser = share, value_name = "SHARE")]
    pub fault_malformed: f64,
    /// Respond with status 200 and a seventh key, `fault`
    #[arg(long, env = "FAULT_UNKNOWN_FIELD", default_value = "0", value_parser = share, value_name = "SHARE")]
    pub fault_unknown_field: f64,
}

/// The fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The response has this status.
    Status(u16),
    /// The response comes later by this time, or never.
    Stall(Option<Duration>),
    /// Sending the body of the response takes this long.
    SlowBody(Duration),
    /// A reset comes instead of the response.
    Reset,
    /// The JSON of the response is cut off.
    Malformed,
    /// The JSON of the response has a key that the protocol doesn't define.
    UnknownField,
}

impl Fault {
    /// The fault's name in metrics.
    pub fn as_str(self) -> &'static str {
        KINDS[self.index()]
    }

    /// The fault's position in [`KINDS`].
    pub(crate) fn index(self) -> usize {
        match self {
            Fault::Status(_) => 0,
            Fault::Stall(_) => 1,
            Fault::SlowBody(_) => 2,
            Fault::Reset => 3,
            Fault::Malformed => 4,
            Fault::UnknownField => 5,
        }
    }
}

/// The names of all faults in metrics.
pub(crate) const KINDS: [&str; 6] = ["status", "stall", "slow_body", "reset", "malformed", "unknown_field"];

/// A validated plan, which determines the fault of each request.
#[derive(Clone, Debug)]
pub struct Faults {
    seed: u64,
    /// Each fault with the upper bound of its part of [0, 1).
    upper_bounds: Vec<(f64, Fault)>,
}

impl Faults {
    /// Validates the plan; the shares must not add up to more than 1.
    pub fn new(plan: &FaultPlan, seed: u64) -> anyhow::Result<Self> {
        let statuses = plan.fault_status.iter().map(|entry| (entry.share, Fault::Status(entry.status)));
        let stall = plan.fault_stall.iter().map(|entry| (entry.share, Fault::Stall(entry.delay)));
        let slow = plan.fault_slow_body.iter().map(|entry| (entry.share, Fault::SlowBody(entry.duration)));
        let plain = [
            (plan.fault_reset, Fault::Reset),
            (plan.fault_malformed, Fault::Malformed),
            (plan.fault_unknown_field, Fault::UnknownField),
        ];
        let mut total = 0.0;
        let mut upper_bounds = Vec::new();
        for (share, fault) in statuses.chain(stall).chain(slow).chain(plain) {
            total += share;
            upper_bounds.push((total, fault));
        }
        // Shares such as 0.7, 0.2 and 0.1 add up to 1 only approximately.
        anyhow::ensure!(total <= 1.0 + 1e-9, "the shares of all faults add up to {total}, which is more than 1");
        upper_bounds.retain(|&(end, _)| end > 0.0);
        Ok(Self { seed, upper_bounds })
    }

    /// The fault of request `number`, if it has one.
    pub fn for_request(&self, number: u64) -> Option<Fault> {
        if self.upper_bounds.is_empty() {
            return None;
        }
        let drawn = uniform(self.seed, number, Stream::Fault);
        self.upper_bounds.iter().find(|&&(end, _)| drawn < end).map(|&(_, fault)| fault)
    }
}

/// An error status with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatusShare {
    status: u16,
    share: f64,
}

impl FromStr for StatusShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (status, share_text) = text.split_once(':').ok_or("expected STATUS:SHARE, such as 503:0.01")?;
        let status = status.parse().ok().filter(|status| (400..600).contains(status));
        Ok(Self { status: status.ok_or("the status must be between 400 and 599")?, share: share(share_text)? })
    }
}

/// A stall with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallShare {
    share: f64,
    delay: Option<Duration>,
}

impl FromStr for StallShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (share_text, delay) =
            text.split_once(':').ok_or("expected SHARE:MILLISECONDS or SHARE:never, such as 0.01:5000")?;
        let delay = match delay {
            "never" => None,
            delay => Some(milliseconds(delay)?),
        };
        Ok(Self { share: share(share_text)?, delay })
    }
}

/// A slow body with its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowShare {
    share: f64,
    duration: Duration,
}

impl FromStr for SlowShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (share_text, duration) = text.split_once(':').ok_or("expected SHARE:MILLISECONDS, such as 0.01:3000")?;
        Ok(Self { share: share(share_text)?, duration: milliseconds(duration)? })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        plan: FaultPlan,
    }

    fn faults(flags: &[&str]) -> Faults {
        let plan = Flags::parse_from(["test"].iter().chain(flags)).plan;
        Faults::new(&plan, 1).expect("the test's shares are valid")
    }

    #[test]
    fn nothing_fails_without_a_configured_fault() {
        assert!((0..10_000).all(|number| faults(&[]).for_request(number).is_none()));
    }

    #[test]
    fn each_fault_has_its_share() {
        let faults = faults(&["--fault-status=503:0.2,429:0.05", "--fault-reset=0.1", "--fault-stall=0.05:never"]);
        let count = |fault| (0..100_000).filter(|&number| faults.for_request(number) == Some(fault)).count();
        for (fault, expected) in [
            (Fault::Status(503), 20_000),
            (Fault::Status(429), 5_000),
            (Fault::Reset, 10_000),
            (Fault::Stall(None), 5_000),
        ] {
            let observed = count(fault);
            assert!(observed.abs_diff(expected) < 600, "{fault:?}: {observed} instead of {expected}");
        }
    }

    #[test]
    fn a_share_of_one_means_all() {
        assert!(
            (0..10_000).all(|number| faults(&["--fault-malformed=1"]).for_request(number) == Some(Fault::Malformed))
        );
    }

    #[test]
    fn shares_that_add_up_to_more_than_one_are_refused() {
        let plan = Flags::parse_from(["test", "--fault-reset=0.6", "--fault-malformed=0.6"]).plan;
        assert!(Faults::new(&plan, 1).is_err());
    }

    #[test]
    fn a_fault_with_invalid_syntax_is_refused() {
        for flag in ["--fault-status=503", "--fault-status=200:0.1", "--fault-stall=0.1:soon", "--fault-slow-body=2:5"]
        {
            assert!(Flags::try_parse_from(["test", flag]).is_err(), "{flag}");
        }
    }
}
