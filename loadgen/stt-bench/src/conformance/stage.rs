//! Against which gateway process a case runs, and what it needs there.

/// Group of cases that share a gateway process. If the tool starts the gateway, each stage except the last has its own
/// process and environment, and the stages run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Default settings of the product: what a client alone can observe.
    Wire,
    /// Short intervals, and a scripted inference.
    Scripted,
    /// Cases compare counters before and after, and therefore run one by one.
    Accounts,
    /// A client does not read what the gateway sends.
    Slow,
    /// The gateway is stopped with SIGSTOP and continued.
    Stall,
    /// The gateway is ended with SIGTERM.
    Drain,
    /// Runs after all other stages and looks at all processes; it has no process of its own.
    Last,
}

impl Stage {
    /// Stages that have a process of their own.
    pub const PROCESSES: [Stage; 6] =
        [Stage::Wire, Stage::Scripted, Stage::Accounts, Stage::Slow, Stage::Stall, Stage::Drain];

    /// Whether the cases of this stage may run side by side.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Stage::Wire | Stage::Scripted)
    }
}

/// Condition without which a case is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The gateway sends its inference requests to our scripted inference.
    Script,
    /// The address of the gateway's metrics port is known.
    Metrics,
    /// This program started the gateway's process, and may signal it.
    Process,
    /// The gateway has `CPU_PASSES` 4, for which the golden vectors hold.
    FourPasses,
}
