//! What the largest tier of each ladder needs of machines: processes, descriptors, ports and memory, and what of it there
//! is too little of. Worked out before a climb. Pure.
//!
//! Memory is what connections take that stay open and exchange small messages. A flood also fills buffers.

use std::{collections::BTreeMap, fmt};

use bench_format::Name;
use ws_bench::descriptors;

use super::{Ladder, Plan};
use crate::registry::Registry;

/// Tiers with fewer connections than this need nothing that a machine could lack.
const FEW_CONNECTIONS: u32 = 1000;
/// Memory that the kernel takes for its end of a connection, in bytes: half of the largest value for both ends.
const KERNEL_BYTES: u64 = 5 << 10;
/// Memory of a process for a connection, in bytes. wse-server and wse-bench take two thirds of it.
const CONNECTION_BYTES: u64 = 1 << 10;
/// Memory of a gateway for a session, in bytes: that of rust-axum.
const GATEWAY_BYTES: u64 = 90 << 10;
/// Memory of a process without connections, in bytes; most of those in the registry take less.
const PROCESS_BYTES: u64 = 64 << 20;
/// Where the figures for memory come from.
pub const SOURCES: &str = "memory of a connection, on each side: 5 KiB of the kernel and 1 KiB of the process, or 90 KiB \
    of a gateway's; 64 MiB of a process beside its connections; where that was measured: docs/METHODOLOGY.md, Many connections";

/// What processes may have.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Descriptors that each process may open.
    pub open_files: u64,
    /// Local ports that a worker may use for one target.
    pub ports: Ports,
    /// Memory of the processes.
    pub memory: Memory,
}

/// Local ports for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// More than connections: targets on loopback can be reached from any address of 127.0.0.0/8.
    Plenty,
    /// This many, from the one address of a worker.
    OfOneAddress(u32),
}

/// Memory that processes may use, in bytes.
#[derive(Clone, Debug)]
pub enum Memory {
    /// All share that of one machine.
    Machine(u64),
    /// Each pod has its own.
    Pods {
        /// Of a pod of a service, by its name.
        services: BTreeMap<String, u64>,
        /// Of a worker's pod, by its protocol.
        workers: BTreeMap<String, u64>,
    },
}

/// What a tier needs, and what of that there is too little of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierNeeds {
    /// Workload, variant and connections of the tier.
    pub tier: String,
    /// Number of workers that the tier gets, as many for each service process.
    pub workers: u32,
    /// Connections of the worker that has the most.
    pub of_worker: u32,
    /// Number of service processes.
    pub replicas: u32,
    /// Connections of the service process that has the most.
    pub of_replica: u32,
    /// Memory of a worker with the kernel's end of its connections, in bytes.
    pub worker_bytes: u64,
    /// Memory of a service process with the kernel's end of its connections, in bytes; of the service that takes the most.
    pub replica_bytes: u64,
    /// What there is too little of, each with how much is needed and how the plan fits; empty if it fits.
    pub misfits: Vec<String>,
}

impl TierNeeds {
    /// Memory of all processes together, in bytes.
    pub fn all_bytes(&self) -> u64 {
        u64::from(self.workers) * self.worker_bytes + u64::from(self.replicas) * self.replica_bytes
    }
}

impl fmt::Display for TierNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, workers, of_worker, replicas, of_replica, worker_bytes, replica_bytes, .. } = self;
        let [for_worker, for_replica] =
            [of_worker, of_replica].map(|&connections| descriptors::of_process(connections));
        write!(
            f,
            "{tier}: {workers} workers with {of_worker} connections each ({for_worker} descriptors, {of_worker} ports, {}), \
             {replicas} service processes with {of_replica} each ({for_replica} descriptors, {}); {} in all",
            size(*worker_bytes),
            size(*replica_bytes),
            size(self.all_bytes())
        )
    }
}

impl Plan {
    /// The needs of each ladder's largest tier, if that has a thousand connections or more.
    pub fn needs(&self, registry: &Registry, limits: &Limits) -> Vec<TierNeeds> {
        let largest = |ladder: &Ladder| ladder.tiers.last().copied().filter(|tier| *tier >= FEW_CONNECTIONS);
        let of_ladder = |ladder| Some(self.needs_of(ladder, largest(ladder)?, registry, limits));
        self.ladders.iter().filter_map(of_ladder).collect()
    }

    fn needs_of(&self, ladder: &Ladder, connections: u32, registry: &Registry, limits: &Limits) -> TierNeeds {
        let (workers, replicas) = (self.workers_for(ladder, connections).max(1), ladder.replicas.max(1));
        let of_worker = connections.div_ceil(workers);
        // The first workers have one more, and workers take the replicas in turn.
        let of_replica = connections / workers * (workers / replicas) + (connections % workers).div_ceil(replicas);
        let replica_bytes = |service: &Name| {
            let has_inference =
                registry.services.get(service).is_some_and(|service| registry.inference_of(service).is_some());
            let each = if has_inference { GATEWAY_BYTES } else { CONNECTION_BYTES };
            PROCESS_BYTES + u64::from(of_replica) * (each + KERNEL_BYTES)
        };
        let mut needs = TierNeeds {
            tier: format!("{}/{}/{connections}", ladder.workload, ladder.variant),
            workers,
            of_worker,
            replicas,
            of_replica,
            worker_bytes: PROCESS_BYTES + u64::from(of_worker) * (CONNECTION_BYTES + KERNEL_BYTES),
            replica_bytes: ladder.services.iter().map(replica_bytes).max().unwrap_or_default(),
            misfits: Vec::new(),
        };
        needs.misfits.extend(descriptors_of_workers(&needs, limits.open_files));
        // A described service without a command runs elsewhere, with limits of its own.
        let is_ours = |name: &Name| {
            let described = registry.services.get(name).and_then(|service| service.described.as_ref());
            described.is_none_or(|described| !described.command.is_empty())
        };
        if ladder.services.iter().all(is_ours) {
            needs.misfits.extend(descriptors_of_replicas(&needs, connections, limits.open_files));
        }
        needs.misfits.extend(ports(&needs, limits.ports));
        match &limits.memory {
            Memory::Machine(bytes) => needs.misfits.extend(memory_of_machine(&needs, *bytes)),
            Memory::Pods { services, workers } => {
                for name in &ladder.services {
                    let protocol = registry.services.get(name).map(|service| service.protocol.as_str());
                    let worker = protocol.and_then(|protocol| Some((protocol, *workers.get(protocol)?)));
                    let of_pods = memory_of_pods(
                        &needs,
                        (name, services.get(name.as_str()).copied(), replica_bytes(name)),
                        worker,
                    );
                    needs.misfits.extend(of_pods);
                }
                needs.misfits.dedup();
            }
        }
        needs
    }
}

fn descriptors_of_workers(needs: &TierNeeds, open_files: u64) -> Option<String> {
    let most = descriptors::most_of_process(open_files);
    (u64::from(needs.of_worker) > most).then(|| {
        format!(
            "a worker needs {} descriptors and may have {open_files}: raise `ulimit -n`, or give connections_per_worker: {most}",
            descriptors::of_process(needs.of_worker)
        )
    })
}

fn descriptors_of_replicas(needs: &TierNeeds, connections: u32, open_files: u64) -> Option<String> {
    let most = descriptors::most_of_process(open_files);
    (u64::from(needs.of_replica) > most).then(|| {
        format!(
            "a service process needs {} descriptors and may have {open_files}: raise `ulimit -n`, or give the ladder \
             replicas: {}",
            descriptors::of_process(needs.of_replica),
            u64::from(connections).div_ceil(most.max(1))
        )
    })
}

fn ports(needs: &TierNeeds, ports: Ports) -> Option<String> {
    let Ports::OfOneAddress(ports) = ports else { return None };
    (needs.of_worker > ports).then(|| {
        format!(
            "a worker needs {} local ports for its target and has {ports} (nine tenths of net.ipv4.ip_local_port_range): \
             give connections_per_worker: {ports}",
            needs.of_worker
        )
    })
}

fn memory_of_machine(needs: &TierNeeds, bytes: u64) -> Option<String> {
    (needs.all_bytes() > bytes).then(|| {
        format!(
            "all processes need {} of memory, and this machine has {}: give fewer connections, or climb in a cluster",
            size(needs.all_bytes()),
            size(bytes)
        )
    })
}

fn memory_of_pods(
    needs: &TierNeeds,
    (service, of_service, needed): (&Name, Option<u64>, u64),
    worker: Option<(&str, u64)>,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(has) = of_service.filter(|has| needed > *has) {
        found.push(format!(
            "a pod of {service} needs {} of memory and has {}: set services.{service}.resources.memory, or give the ladder \
             more replicas",
            size(needed),
            size(has)
        ));
    }
    if let Some((protocol, has)) = worker.filter(|(_, has)| needs.worker_bytes > *has) {
        found.push(format!(
            "a worker's pod needs {} of memory and has {}: set protocols.{protocol}.resources.memory, or give a lower \
             connections_per_worker",
            size(needs.worker_bytes),
            size(has)
        ));
    }
    found
}

/// A size as text, rounded up.
fn size(bytes: u64) -> String {
    match bytes.div_ceil(1 << 20) {
        mebibytes @ ..10_240 => format!("{mebibytes}Mi"),
        mebibytes => format!("{}Gi", mebibytes.div_ceil(1024)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::check::fixture::{machine_limits, minimal, registry};

    const ENOUGH: Limits = Limits { open_files: 1 << 20, ports: Ports::Plenty, memory: Memory::Machine(1 << 40) };

    /// The needs of a tier with this number of connections for each worker and this number of replicas.
    fn needs(connections: u32, per_worker: u32, replicas: u32, limits: &Limits) -> TierNeeds {
        let mut plan = minimal();
        plan.connections_per_worker = Some(per_worker);
        (plan.ladders[0].tiers, plan.ladders[0].replicas) = (vec![10, connections], replicas);
        let plan = Plan::check(plan, Path::new("p.yaml"), &registry(), &machine_limits()).unwrap();
        plan.needs(&registry(), limits).remove(0)
    }

    #[test]
    fn half_a_million_connections_are_shared_by_workers_and_replicas() {
        let needs = needs(500_000, 20_000, 10, &ENOUGH);
        assert_eq!((needs.workers, needs.of_worker, needs.replicas, needs.of_replica), (30, 16_667, 10, 50_000));
        assert_eq!(needs.misfits, Vec::<String>::new());
        assert_eq!(
            needs.to_string(),
            "throughput/standard/500000: 30 workers with 16667 connections each (16767 descriptors, 16667 ports, 162Mi), \
             10 service processes with 50000 each (50100 descriptors, 357Mi); 8420Mi in all"
        );
    }

    #[test]
    fn the_shares_of_replicas_are_those_that_workers_get() {
        for (connections, workers, replicas) in [(13_007_u32, 6, 2), (5000, 5, 5), (4001, 4, 1), (9_999, 9, 3)] {
            let needs = needs(connections, connections.div_ceil(workers), replicas, &ENOUGH);
            let share = |worker: u32| connections / needs.workers + u32::from(worker < connections % needs.workers);
            let of =
                |replica: u32| (0..needs.workers).filter(|worker| worker % replicas == replica).map(share).sum::<u32>();
            assert_eq!((0..replicas).map(of).max(), Some(needs.of_replica), "{connections} {workers} {replicas}");
        }
    }

    #[test]
    fn too_few_descriptors_are_named_with_the_numbers_that_fit() {
        let here = Limits { open_files: 20_000, ..ENOUGH };
        assert_eq!(needs(60_000, 15_000, 4, &here).misfits, Vec::<String>::new());
        assert_eq!(
            needs(60_000, 30_000, 2, &here).misfits,
            [
                "a worker needs 30100 descriptors and may have 20000: raise `ulimit -n`, or give connections_per_worker: 19900",
                "a service process needs 30100 descriptors and may have 20000: raise `ulimit -n`, or give the ladder replicas: 4",
            ]
        );
    }

    #[test]
    fn too_few_ports_of_a_workers_address_are_named() {
        let limits = Limits { ports: Ports::OfOneAddress(25_407), ..ENOUGH };
        assert_eq!(needs(50_000, 25_000, 1, &limits).misfits, Vec::<String>::new());
        let misfits = needs(50_000, 50_000, 1, &limits).misfits;
        assert!(misfits[0].starts_with("a worker needs 50000 local ports for its target and has 25407"), "{misfits:?}");
    }

    #[test]
    fn too_little_memory_is_named_on_one_machine_and_in_each_pod() {
        let machine = Limits { memory: Memory::Machine(1 << 30), ..ENOUGH };
        let misfits = needs(500_000, 20_000, 1, &machine).misfits;
        assert!(misfits[0].contains("and this machine has 1024Mi"), "{misfits:?}");
        let pods = |service: u64, worker: u64| {
            let (services, workers) = ([("ours".into(), service << 20)].into(), [("wse".into(), worker << 20)].into());
            needs(500_000, 20_000, 10, &Limits { memory: Memory::Pods { services, workers }, ..ENOUGH }).misfits
        };
        assert_eq!(pods(357, 162), Vec::<String>::new());
        let misfits = pods(356, 161);
        assert!(
            misfits[0].contains("a pod of ours needs 357Mi of memory and has 356Mi: set services.ours.resources"),
            "{misfits:?}"
        );
        assert!(
            misfits[1].contains("needs 162Mi of memory and has 161Mi: set protocols.wse.resources.memory"),
            "{misfits:?}"
        );
    }

    #[test]
    fn small_tiers_need_no_look() {
        let plan = Plan::check(minimal(), Path::new("p.yaml"), &registry(), &machine_limits()).unwrap();
        assert_eq!(plan.needs(&registry(), &ENOUGH), []);
    }
}
