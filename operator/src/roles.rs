//! Which CPUs each role runs on. Pure.
//!
//! The service under test comes first and shares its CPUs with nobody while there are enough; workers take what is
//! left; `ladder` itself, which sleeps during a window, sits beside the last worker. What has to be shared is said.

use std::collections::{BTreeMap, BTreeSet};

use bench_format::plan::CpuShapes;

/// The CPUs of each role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The service under test.
    pub service: Vec<usize>,
    /// Each worker.
    pub workers: Vec<Vec<usize>>,
    /// `ladder` and its coordinator.
    pub ladder: Vec<usize>,
}

impl Roles {
    /// Shares the CPUs on which this process may run out; `allowed` isn't empty and `workers` isn't 0.
    pub fn assign(allowed: &[usize], shapes: &CpuShapes, workers: u32) -> Self {
        let whole = |cpus: f64| (cpus.ceil() as usize).clamp(1, allowed.len());
        let (service, rest) = allowed.split_at(whole(shapes.service.cpus));
        // Nothing left: the load shares the service's last CPU, and the trial says so.
        let rest = if rest.is_empty() { &allowed[allowed.len() - 1..] } else { rest };
        let each = whole(shapes.worker.cpus).min(rest.len());
        let worker = |index: usize| {
            let cpus: BTreeSet<usize> = (0..each).map(|k| rest[(index * each + k) % rest.len()]).collect();
            cpus.into_iter().collect()
        };
        Self {
            service: service.to_vec(),
            workers: (0..workers as usize).map(worker).collect(),
            ladder: vec![rest[rest.len() - 1]],
        }
    }

    /// CPUs that all workers have together; less than their sum where they share.
    pub fn worker_cpus(&self) -> usize {
        self.workers.iter().flatten().collect::<BTreeSet<_>>().len()
    }

    /// Why the service doesn't have its CPUs to itself; absent when it has.
    pub fn service_shares(&self) -> Option<String> {
        let shared = self.shared(&self.service, self.workers.iter().flatten());
        (!shared.is_empty()).then(|| format!("service and workers share CPU {}", list(&shared)))
    }

    /// For the evidence: `service: 0`, `worker: 1`, `ladder: 1 shared(worker)`.
    pub fn in_words(&self) -> BTreeMap<String, String> {
        let all: BTreeSet<usize> = self.workers.iter().flatten().copied().collect();
        let mut service = list(&self.service);
        let mut worker = list(&all.iter().copied().collect::<Vec<_>>());
        if self.service_shares().is_some() {
            service += " shared(worker)";
            worker += " shared(service)";
        }
        if self.workers.iter().map(Vec::len).sum::<usize>() > all.len() {
            worker += " shared(worker)";
        }
        let mut ladder = list(&self.ladder);
        if !self.shared(&self.ladder, &all).is_empty() {
            ladder += " shared(worker)";
        }
        [("service", service), ("worker", worker), ("ladder", ladder)].map(|(k, v)| (k.to_owned(), v)).into()
    }

    fn shared<'a>(&self, role: &[usize], others: impl IntoIterator<Item = &'a usize>) -> Vec<usize> {
        let others: BTreeSet<&usize> = others.into_iter().collect();
        role.iter().filter(|cpu| others.contains(cpu)).copied().collect()
    }
}

/// `0-2,5`, as the kernel lists CPUs.
fn list(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part =
        |&(first, last): &(usize, usize)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use bench_format::plan::CpuShape;

    use super::*;

    fn shapes(service: f64, worker: f64) -> CpuShapes {
        CpuShapes { service: CpuShape { cpus: service }, worker: CpuShape { cpus: worker } }
    }

    #[test]
    fn on_two_cpus_the_service_has_one_and_the_load_the_other() {
        let roles = Roles::assign(&[0, 1], &shapes(1.0, 1.0), 1);
        assert_eq!(roles, Roles { service: vec![0], workers: vec![vec![1]], ladder: vec![1] });
        assert_eq!(roles.service_shares(), None);
        assert_eq!(roles.in_words()["ladder"], "1 shared(worker)");
    }

    #[test]
    fn with_more_cpus_each_worker_has_its_own() {
        let roles = Roles::assign(&[0, 1, 2, 3, 4, 5], &shapes(2.0, 1.0), 2);
        assert_eq!(roles, Roles { service: vec![0, 1], workers: vec![vec![2], vec![3]], ladder: vec![5] });
        assert_eq!((roles.worker_cpus(), roles.in_words()["ladder"].as_str()), (2, "5"));
    }

    #[test]
    fn workers_that_share_a_cpu_say_so() {
        let roles = Roles::assign(&[0, 1], &shapes(1.0, 1.0), 3);
        assert_eq!((roles.worker_cpus(), roles.in_words()["worker"].as_str()), (1, "1 shared(worker)"));
    }

    #[test]
    fn a_single_cpu_is_shared_and_named() {
        let roles = Roles::assign(&[4], &shapes(1.0, 1.0), 1);
        assert_eq!(roles.service_shares().unwrap(), "service and workers share CPU 4");
        assert_eq!(roles.in_words()["service"], "4 shared(worker)");
    }

    #[test]
    fn a_service_on_all_cpus_shares_the_last() {
        let roles = Roles::assign(&[0, 1], &shapes(2.0, 0.5), 1);
        assert_eq!(roles.service_shares().unwrap(), "service and workers share CPU 1");
    }

    #[test]
    fn a_fraction_takes_a_whole_cpu_to_run_on() {
        let roles = Roles::assign(&[0, 1, 2], &shapes(0.5, 0.05), 1);
        assert_eq!((roles.service, roles.workers), (vec![0], vec![vec![1]]));
    }

    #[test]
    fn neighbouring_cpus_are_listed_as_a_range() {
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
