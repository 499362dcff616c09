//! Assigns CPUs to the roles of a trial. Pure.
//!
//! The service under test comes first and gets its own CPUs while there are enough. The inference service gets its own
//! if that leaves some for the workers; otherwise it shares the service's. Workers take the rest; if there is none, they
//! share the service's. `ladder`, which sleeps during a window, shares the last worker's CPU. Shared CPUs are reported.

use std::collections::{BTreeMap, BTreeSet};

use bench_format::plan::{CpuShape, CpuShapes};

/// The CPUs of each role, by their kernel numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// CPUs of the service under test.
    pub service: Vec<usize>,
    /// CPUs of the inference service; empty where there is none.
    pub inference: Vec<usize>,
    /// CPUs of each worker, by its index.
    pub workers: Vec<Vec<usize>>,
    /// CPU of `ladder` and its coordinator.
    pub ladder: Vec<usize>,
}

impl Roles {
    /// Assigns the CPUs on which this process may run. `allowed` must not be empty and `workers` must not be 0.
    /// `inference` is the CPU share of the inference service, if there is one.
    pub fn assign(allowed: &[usize], shapes: &CpuShapes, inference: Option<CpuShape>, workers: u32) -> Self {
        let whole_cpus = |cpus: f64| (cpus.ceil() as usize).clamp(1, allowed.len());
        let (service, mut rest) = allowed.split_at(whole_cpus(shapes.service.cpus));
        let mut inference_cpus = Vec::new();
        if let Some(shape) = inference {
            inference_cpus = service.to_vec();
            if whole_cpus(shape.cpus) < rest.len() {
                let (own, left) = rest.split_at(whole_cpus(shape.cpus));
                (inference_cpus, rest) = (own.to_vec(), left);
            }
        }
        // No CPU is left: the load shares the service's last CPU, or all of them if the plan allows it, and the trial
        // reports it. On all of them the scheduler balances both sides.
        let last = if shapes.may_share { allowed } else { &allowed[allowed.len() - 1..] };
        let rest = if rest.is_empty() { last } else { rest };
        let each = whole_cpus(shapes.worker.cpus).min(rest.len());
        let worker = |index: usize| {
            let cpus: BTreeSet<usize> = (0..each).map(|k| rest[(index * each + k) % rest.len()]).collect();
            cpus.into_iter().collect()
        };
        Self {
            service: service.to_vec(),
            inference: inference_cpus,
            workers: (0..workers as usize).map(worker).collect(),
            ladder: vec![rest[rest.len() - 1]],
        }
    }

    /// Number of CPUs that all workers have together; less than the sum of their shares where they overlap.
    pub fn worker_cpus(&self) -> usize {
        self.workers.iter().flatten().collect::<BTreeSet<_>>().len()
    }

    /// Why the service doesn't have its CPUs to itself; `None` when it has. Sharing with inference is not a reason,
    /// because the use of inference is read and `inference_shares` gives the total of both.
    pub fn service_shares(&self) -> Option<String> {
        let shared = shared(&self.service, self.workers.iter().flatten());
        (!shared.is_empty()).then(|| format!("service and workers share CPU {}", list(&shared)))
    }

    /// Number of CPUs of service and inference together, if they share some.
    pub fn inference_shares(&self) -> Option<usize> {
        let together: BTreeSet<_> = self.service.iter().chain(&self.inference).collect();
        (!shared(&self.service, &self.inference).is_empty()).then_some(together.len())
    }

    /// The CPUs of each role as text for `run.json`: `service: 0 shared(inference)`, `worker: 1`, `ladder: 1
    /// shared(worker)`.
    pub fn description(&self) -> BTreeMap<String, String> {
        let workers: BTreeSet<usize> = self.workers.iter().flatten().copied().collect();
        let workers: Vec<usize> = workers.into_iter().collect();
        let with = |cpus: &[usize], others: &[(&str, &[usize])]| {
            let sharing = others.iter().filter(|(_, other_cpus)| !shared(cpus, *other_cpus).is_empty());
            let names: Vec<&str> = sharing.map(|(name, _)| *name).collect();
            if names.is_empty() { list(cpus) } else { format!("{} shared({})", list(cpus), names.join(", ")) }
        };
        let (service, inference) = (("service", &self.service[..]), ("inference", &self.inference[..]));
        let worker = ("worker", &workers[..]);
        let each_other = self.workers.iter().map(Vec::len).sum::<usize>() > workers.len();
        let beside_workers = [service, inference].into_iter().chain(each_other.then_some(worker));
        let mut description = BTreeMap::from([
            ("service".to_owned(), with(&self.service, &[inference, worker])),
            ("worker".to_owned(), with(&workers, &beside_workers.collect::<Vec<_>>())),
            ("ladder".to_owned(), with(&self.ladder, &[worker])),
        ]);
        if !self.inference.is_empty() {
            description.insert("inference".into(), with(&self.inference, &[service, worker]));
        }
        description
    }
}

/// The CPUs of a role that others use too.
fn shared<'a>(role: &[usize], others: impl IntoIterator<Item = &'a usize>) -> Vec<usize> {
    let others: BTreeSet<&usize> = others.into_iter().collect();
    role.iter().filter(|cpu| others.contains(cpu)).copied().collect()
}

/// A CPU list in the kernel's format: `0-2,5`.
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
        CpuShapes { service: CpuShape { cpus: service }, worker: CpuShape { cpus: worker }, ..CpuShapes::default() }
    }

    fn without_inference(allowed: &[usize], shapes: &CpuShapes, workers: u32) -> Roles {
        Roles::assign(allowed, shapes, None, workers)
    }

    fn with_inference(allowed: &[usize], shapes: &CpuShapes) -> Roles {
        Roles::assign(allowed, shapes, Some(shapes.inference), 1)
    }

    #[test]
    fn on_two_cpus_inference_shares_the_services_cpu_and_that_is_reported() {
        let roles = with_inference(&[0, 1], &shapes(0.1, 1.0));
        assert_eq!((&roles.service, &roles.inference, &roles.workers), (&vec![0], &vec![0], &vec![vec![1]]));
        assert_eq!((roles.service_shares(), roles.inference_shares()), (None, Some(1)));
        let description = roles.description();
        assert_eq!([&description["service"], &description["inference"]], ["0 shared(inference)", "0 shared(service)"]);
    }

    #[test]
    fn with_more_cpus_inference_has_its_own() {
        let roles = with_inference(&[0, 1, 2], &shapes(1.0, 1.0));
        assert_eq!((&roles.service, &roles.inference, &roles.workers), (&vec![0], &vec![1], &vec![vec![2]]));
        assert_eq!((roles.inference_shares(), roles.description()["inference"].as_str()), (None, "1"));
    }

    #[test]
    fn on_one_cpu_everything_is_shared_and_named() {
        let description = with_inference(&[3], &shapes(1.0, 1.0)).description();
        assert_eq!(description["service"], "3 shared(inference, worker)");
        assert_eq!(
            (description["worker"].as_str(), description["inference"].as_str()),
            ("3 shared(service, inference)", "3 shared(service, worker)")
        );
    }

    #[test]
    fn on_two_cpus_the_service_has_one_and_the_load_the_other() {
        let roles = without_inference(&[0, 1], &shapes(1.0, 1.0), 1);
        assert_eq!(roles, Roles { service: vec![0], inference: vec![], workers: vec![vec![1]], ladder: vec![1] });
        assert_eq!(roles.service_shares(), None);
        assert_eq!(roles.description()["ladder"], "1 shared(worker)");
    }

    #[test]
    fn with_more_cpus_each_worker_has_its_own() {
        let roles = without_inference(&[0, 1, 2, 3, 4, 5], &shapes(2.0, 1.0), 2);
        assert_eq!(
            roles,
            Roles { service: vec![0, 1], inference: vec![], workers: vec![vec![2], vec![3]], ladder: vec![5] }
        );
        assert_eq!((roles.worker_cpus(), roles.description()["ladder"].as_str()), (2, "5"));
    }

    #[test]
    fn workers_that_share_a_cpu_are_reported() {
        let roles = without_inference(&[0, 1], &shapes(1.0, 1.0), 3);
        assert_eq!((roles.worker_cpus(), roles.description()["worker"].as_str()), (1, "1 shared(worker)"));
    }

    #[test]
    fn a_single_cpu_is_shared_and_named() {
        let roles = without_inference(&[4], &shapes(1.0, 1.0), 1);
        assert_eq!(roles.service_shares().unwrap(), "service and workers share CPU 4");
        assert_eq!(roles.description()["service"], "4 shared(worker)");
    }

    #[test]
    fn a_service_on_all_cpus_shares_the_last() {
        let roles = without_inference(&[0, 1], &shapes(2.0, 0.5), 1);
        assert_eq!(roles.service_shares().unwrap(), "service and workers share CPU 1");
    }

    #[test]
    fn workers_that_may_share_run_on_all_cpus_of_the_service() {
        let shapes = CpuShapes { may_share: true, ..shapes(2.0, 2.0) };
        let roles = without_inference(&[0, 1], &shapes, 2);
        assert_eq!(roles.workers, [vec![0, 1], vec![0, 1]]);
        assert_eq!(
            (roles.service_shares().unwrap().as_str(), roles.worker_cpus()),
            ("service and workers share CPU 0-1", 2)
        );
        let with_a_third = without_inference(&[0, 1, 2], &shapes, 2);
        assert_eq!((with_a_third.service_shares(), &with_a_third.workers[0]), (None, &vec![2]));
    }

    #[test]
    fn a_fraction_of_a_cpu_reserves_a_whole_one() {
        let roles = without_inference(&[0, 1, 2], &shapes(0.5, 0.05), 1);
        assert_eq!((roles.service, roles.workers), (vec![0], vec![vec![1]]));
    }

    #[test]
    fn neighbouring_cpus_are_listed_as_a_range() {
        assert_eq!(list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
