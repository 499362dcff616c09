//! The limits of this machine: descriptors, ports, backlog, CPUs. Each is reported before the run, with what to change
//! when it is too low.

use std::{fmt, fs, net::IpAddr};

use anyhow::{Context, bail};
use driver::service_process::{AllowedCpus, ServiceProcess};
use loadgen_core::{
    connect::{Sources, check_source, resolve},
    preflight as limits,
};
use process_usage::cgroup::{CpuCgroup, cpu_limit};

use crate::cli::MOST_WORKERS;

/// A smaller backlog loses SYNs of a storm.
const SMALL_BACKLOG: u32 = 1024;

/// This machine, and the service's process if it runs here.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Descriptors that each process may open.
    pub open_files: u64,
    /// Addresses that connections start from.
    pub sources: Sources,
    /// The service's process; absent when it isn't found on this machine.
    pub service: Option<ServiceProcess>,
    /// CPUs that all workers may use together.
    cpus: f64,
    /// `net.core.somaxconn`; absent when it can't be read.
    somaxconn: Option<u32>,
    /// `net.ipv4.tcp_tw_reuse` as text; empty when it can't be read.
    tw_reuse: String,
}

/// The largest load of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Largest number of connections.
    pub connections: u32,
    /// Worker processes for these connections.
    pub workers: u32,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the limit.
    pub name: &'static str,
    /// Whether the limit suffices.
    pub is_sufficient: bool,
    /// The limit and the need as text, with what to change when it isn't enough.
    pub description: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, is_sufficient, description } = self;
        write!(f, "preflight: {name}: {description}{}", if *is_sufficient { "" } else { " (!)" })
    }
}

impl Machine {
    /// Reads this machine's limits, and raises the limit of descriptors as far as allowed.
    ///
    /// # Errors
    /// When the address can't be resolved, or a source address can't be used for it.
    pub fn read(address: &str, source_addresses: &[IpAddr]) -> anyhow::Result<Self> {
        let target = resolve(address)?;
        for source in source_addresses {
            if source.is_ipv4() != target.is_ipv4() {
                bail!("--source-address {source} can't reach {target}: one is IPv4 and the other is IPv6");
            }
            let description =
                || format!("--source-address {source} can't be used; give an address that this machine has");
            check_source(*source).with_context(description)?;
        }
        let read =
            |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default().trim().to_owned();
        Ok(Self {
            open_files: limits::raise_open_files(),
            sources: Sources::new(target, source_addresses),
            service: ServiceProcess::listening(target),
            cpus: cpu_limit(CpuCgroup::find().as_ref()),
            somaxconn: read("core/somaxconn").parse().ok(),
            tw_reuse: read("ipv4/tcp_tw_reuse"),
        })
    }

    /// Worker processes for a number of connections: those requested, else as many as the descriptors require.
    pub fn workers(&self, requested: Option<u32>, connections: u32) -> u32 {
        let each = limits::most_connections(self.open_files, 1).max(1);
        let needed = u64::from(connections).div_ceil(each).clamp(1, u64::from(MOST_WORKERS));
        requested.unwrap_or(needed as u32)
    }

    /// Connections for which there are descriptors, with the requested workers or the largest number of them.
    pub fn most_by_descriptors(&self, requested: Option<u32>) -> u64 {
        limits::most_connections(self.open_files, requested.unwrap_or(MOST_WORKERS))
    }

    /// The checks to report before a run.
    pub fn checks(&self, need: &Need) -> Vec<Check> {
        let allowed_cpus = self.service.as_ref().and_then(ServiceProcess::allowed_cpus);
        let mut checks = vec![self.descriptors(need), self.ports(need), self.backlog(), self.cpu(allowed_cpus)];
        checks.extend(self.services_descriptors(need));
        if self.tw_reuse == "0" {
            let description =
                "net.ipv4.tcp_tw_reuse is 0: ports stay taken for a minute after each test; set it to 2".into();
            checks.push(Check { name: "ports", is_sufficient: false, description });
        }
        checks
    }

    fn descriptors(&self, need: &Need) -> Check {
        let Need { connections, workers } = *need;
        let most = limits::most_connections(self.open_files, workers);
        let is_sufficient = u64::from(connections) <= most;
        let description =
            format!("{} for each process; {connections} connections from {workers} worker(s)", self.open_files);
        let remedy = format!(", which can hold {most}: raise `ulimit -n`, or give more --workers");
        Check {
            name: "descriptors",
            is_sufficient,
            description: if is_sufficient { description } else { description + &remedy },
        }
    }

    fn ports(&self, need: &Need) -> Check {
        let (each, most) = (self.sources.ports_per_address(), self.sources.most_connections());
        let is_sufficient = u64::from(need.connections) <= most;
        let addresses = self.sources.addresses_for(need.connections);
        let description =
            format!("{each} for each source address; {} connections from {addresses} of them", need.connections);
        let remedy = ": give more with --source-address, or widen net.ipv4.ip_local_port_range";
        Check {
            name: "ports",
            is_sufficient,
            description: if is_sufficient { description } else { description + remedy },
        }
    }

    fn backlog(&self) -> Check {
        let (is_sufficient, description) = match self.somaxconn {
            None => (false, "net.core.somaxconn can't be read; a storm needs 4096".into()),
            Some(backlog) if backlog < SMALL_BACKLOG => {
                let description =
                    "a storm loses SYNs and waits a second for each; set it to 4096, and start the service again";
                (false, format!("net.core.somaxconn is {backlog}: {description}"))
            }
            Some(backlog) => (true, format!("net.core.somaxconn is {backlog}")),
        };
        Check { name: "backlog", is_sufficient, description }
    }

    fn cpu(&self, allowed_cpus: Option<AllowedCpus>) -> Check {
        let own = format!("workers may use {} CPU(s)", self.cpus);
        let Some((service, allowed_cpus)) = self.service.as_ref().zip(allowed_cpus) else {
            let description = "the service's process can't be read from here, so what limited a figure is shown only if it was the \
                         generator; to read it, run on the service's machine as its user";
            return Check { name: "CPU", is_sufficient: false, description: format!("{own}; {description}") };
        };
        let service = format!("{own}; {} may use {}", service.description(), allowed_cpus.cpus);
        let description = match allowed_cpus.shared {
            false => format!("{service}, none of them shared"),
            true => format!("{service}, and they share them: give each its own with `taskset -c`"),
        };
        Check { name: "CPU", is_sufficient: !allowed_cpus.shared, description }
    }

    /// A check that fails when the service's process may open too few descriptors: it also needs one for each
    /// connection.
    fn services_descriptors(&self, need: &Need) -> Option<Check> {
        let service = self.service.as_ref()?;
        let open_files = service.open_files().filter(|files| *files <= u64::from(need.connections))?;
        let description = format!(
            "{} may hold {open_files}, fewer than {} connections: raise its `ulimit -n`, or start more processes of it",
            service.description(),
            need.connections
        );
        Some(Check { name: "descriptors of the service", is_sufficient: false, description })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let mut machine = Machine::read("127.0.0.1:9", &[]).unwrap();
        (machine.open_files, machine.cpus, machine.somaxconn) = (1100, 2.0, Some(4096));
        (machine.service, machine.tw_reuse) = (None, "2".into());
        machine
    }

    fn check(machine: &Machine, name: &str, connections: u32, workers: u32) -> Check {
        let mut checks = machine.checks(&Need { connections, workers });
        checks.retain(|check| check.name == name);
        checks.remove(0)
    }

    #[test]
    fn workers_are_as_many_as_descriptors_ask_for() {
        let machine = machine();
        assert_eq!([1, 1000, 1001, 2500].map(|connections| machine.workers(None, connections)), [1, 1, 2, 3]);
        assert_eq!((machine.workers(Some(7), 1), machine.most_by_descriptors(Some(7))), (7, 7000));
    }

    #[test]
    fn too_few_descriptors_are_reported_with_the_remedy() {
        assert!(check(&machine(), "descriptors", 2000, 2).is_sufficient);
        let check = check(&machine(), "descriptors", 5000, 2);
        assert!(!check.is_sufficient && check.description.contains("can hold 2000: raise `ulimit -n`"), "{check}");
    }

    #[test]
    fn too_few_ports_are_reported_with_the_remedy() {
        let remote = Machine { sources: Sources::new("192.0.2.1:9".parse().unwrap(), &[]), ..machine() };
        let check = check(&remote, "ports", 1_000_000, 1000);
        assert!(!check.is_sufficient && check.description.contains("--source-address"), "{check}");
        assert!(self::check(&machine(), "ports", 1_000_000, 1000).is_sufficient, "loopback has addresses to spare");
    }

    #[test]
    fn a_small_backlog_is_reported_with_the_remedy() {
        let small = Machine { somaxconn: Some(128), ..machine() };
        let check = check(&small, "backlog", 1, 1);
        assert!(!check.is_sufficient && check.description.contains("set it to 4096"), "{check}");
    }

    #[test]
    fn a_service_on_the_same_cpus_is_named_and_so_is_one_that_cannot_be_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = Machine { service: ServiceProcess::listening(listener.local_addr().unwrap()), ..machine() };
        assert!(check(&here, "CPU", 1, 1).description.contains("they share them"), "{}", check(&here, "CPU", 1, 1));
        assert!(check(&machine(), "CPU", 1, 1).description.contains("can't be read"));
    }

    #[test]
    fn a_source_address_that_is_not_ours_is_refused() {
        let refused =
            |target, source: &str| format!("{:#}", Machine::read(target, &[source.parse().unwrap()]).unwrap_err());
        assert!(refused("127.0.0.1:9", "192.0.2.1").contains("give an address that this machine has"));
        assert!(refused("127.0.0.1:9", "::1").contains("one is IPv4"));
        assert!(Machine::read("127.0.0.1:9", &["127.0.0.3".parse().unwrap()]).is_ok());
    }
}
