//! The machine at rest, before the first trial: what others use of the CPUs that the trials will have.

use std::{thread::sleep, time::Duration};

use bench_format::result::MachineUse;
use driver::machine::{OwnGroup, Snapshot};

use crate::roles::Roles;

/// Length of the rest.
const REST: Duration = Duration::from_secs(2);
/// Share of a role's CPUs from which others are worth a line.
const WORTH_A_LINE: f64 = 0.01;

/// Rests for two seconds and returns what others used; `None` if the machine has no exact counter of its CPUs.
pub fn at_rest(roles: &Roles) -> Option<MachineUse> {
    let before = snapshot(roles)?;
    sleep(REST);
    Some(before.until(&snapshot(roles)?))
}

/// A line for the head of a run, if others used more than a hundredth of some of its CPUs.
pub fn line(rest: &MachineUse) -> Option<String> {
    let (share, _) = rest.busy().filter(|(share, _)| *share > WORTH_A_LINE)?;
    let of = |cpu_ns: u64| cpu_ns as f64 / 1e7 / rest.seconds;
    let named = rest.busiest.iter().map(|one| format!("{} {:.1} % of a CPU", one.description(), of(one.cpu_ns)));
    let named = named.collect::<Vec<_>>().join(", ");
    let processes = if named.is_empty() { "programs that came and went".into() } else { named };
    Some(format!("busy machine: before the first trial others used {:.1} % of its CPUs: {processes}", share * 100.0))
}

fn snapshot(roles: &Roles) -> Option<Snapshot> {
    let cpus = [&roles.service, &roles.inference, &roles.ladder].into_iter().chain(&roles.workers);
    let groups = cpus.map(|cpus| OwnGroup { cpus: cpus.iter().copied().collect(), pids: [].into() });
    let own = OwnGroup { cpus: roles.ladder.iter().copied().collect(), pids: [std::process::id()].into() };
    Snapshot::take(groups.chain([own]))
}

#[cfg(test)]
mod tests {
    use bench_format::result::{CpuGroup, ForeignProcess};

    use super::*;

    #[test]
    fn a_busy_machine_is_a_line_with_its_processes_and_a_quiet_one_is_none() {
        let group = |busy_ns| CpuGroup { cpus: vec![0], busy_ns, ..CpuGroup::default() };
        let process = |pid, name: &str, cpu_ns| ForeignProcess { pid: Some(pid), name: name.into(), cpu_ns };
        let busiest = vec![process(71, "rustc", 300_000_000), process(72, "python", 20_000_000)];
        let mut rest = MachineUse { seconds: 2.0, groups: vec![group(320_000_000)], busiest, ..MachineUse::default() };
        assert_eq!(
            line(&rest).unwrap(),
            "busy machine: before the first trial others used 16.0 % of its CPUs: rustc (process 71) 15.0 % of a CPU, \
             python (process 72) 1.0 % of a CPU"
        );
        rest.groups = vec![group(20_000_000)];
        assert_eq!(line(&rest), None);
    }
}
