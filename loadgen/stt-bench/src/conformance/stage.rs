//! In front of what a case runs: which gateway process, and what it can't do without.

/// Cases that share a gateway process. Where the tool starts the gateway, each stage is a process with an environment of
/// its own, and all of them run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The intervals of the product: what a client alone can see.
    Wire,
    /// Short intervals, a scripted inference.
    Scripted,
    /// Counters are read before and after, so that cases run one by one.
    Accounts,
    /// One client does not read.
    Slow,
    /// The process is stopped and continued.
    Stall,
    /// The process is told to end.
    Drain,
    /// After all others, on all processes.
    Last,
}

impl Stage {
    /// Those that have a process of their own.
    pub const PROCESSES: [Stage; 6] =
        [Stage::Wire, Stage::Scripted, Stage::Accounts, Stage::Slow, Stage::Stall, Stage::Drain];

    /// Whether its cases may run side by side.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Stage::Wire | Stage::Scripted)
    }
}

/// What a case can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The gateway asks our scripted inference.
    Script,
    /// The gateway's metrics port.
    Metrics,
    /// We started the process, and may signal it.
    Process,
    /// The golden vectors hold for four passes only.
    FourPasses,
}
